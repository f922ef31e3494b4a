"""What a command says meanwhile."""

from __future__ import annotations

import json
import time

import pytest

from advisor.cli import progress
from advisor.cli.progress import ticking, working


def test_day_one_15_a_line_every_few_seconds_where_no_terminal_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a step says nothing for long."""
    assert progress.SILENCE_SECONDS <= 5.0
    monkeypatch.setattr(progress, "SILENCE_SECONDS", 0.02)
    out = err = ""

    def wait_for_lines(number: int, beginning: str) -> None:
        nonlocal out, err
        end = time.monotonic() + 60.0
        while sum(line.startswith(beginning) for line in err.splitlines()) < number:
            assert time.monotonic() < end, err
            time.sleep(0.01)
            captured = capsys.readouterr()
            out, err = out + captured.out, err + captured.err

    with ticking("starting") as tick:
        wait_for_lines(2, "starting (")
        tick("reading", 3, 10)
        wait_for_lines(2, "reading: 3 of 10 (")
        assert "left" not in err
        tick("reading", 5, 10)
        wait_for_lines(2, "reading: 5 of 10 (")
        assert ", about " in err.splitlines()[-1]
        assert err.splitlines()[-1].endswith(" left)")
    assert err.startswith("starting (")
    assert out + capsys.readouterr().out == ""


def test_what_is_over_at_once_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with working("asking Slurm") as now:
        now("asking EC2")
    assert capsys.readouterr().err == ""


def test_another_program_is_told_in_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_PROGRESS", "json")
    with ticking() as tick:
        for done in range(1001):
            tick("deciding", done, 1000)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(lines) == 101
    assert lines[-1] == {"progress": "deciding", "done": 1000, "total": 1000}


def test_a_command_that_takes_long_says_less(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weekly training wrote a line into the journal every five seconds, for an hour."""
    monkeypatch.setattr(progress, "SILENCE_SECONDS", 0.001)
    with ticking("working"):
        time.sleep(0.5)
    assert 2 <= len(capsys.readouterr().err.splitlines()) < 100
