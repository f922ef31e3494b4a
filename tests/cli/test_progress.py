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
    with ticking("starting") as tick:
        time.sleep(0.2)
        tick("reading", 3, 10)
        time.sleep(0.2)
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) >= 4
    assert lines[0].startswith("starting (")
    assert lines[-1].startswith("reading: 3 of 10 (")
    assert captured.out == ""


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
