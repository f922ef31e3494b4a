"""``advisor uninstall``: a dry run changes nothing; what fails is said with the way by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor.cli import uninstall as command
from advisor.model.errors import TellAdmin
from advisor.service.admin.remnants import Remnant
from tests.commands import app


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []

    def fails() -> None:
        raise TellAdmin("no rights", code="x")

    found = [
        Remnant("units", "stop them", lambda: done.append("units")),
        Remnant("jobs", "return them", fails),
        Remnant("history", "rm -r it"),
    ]
    monkeypatch.setattr(command, "remnants", lambda _settings: SimpleNamespace(all=lambda: iter(found)))
    return done


def said(*arguments: str) -> tuple[int, dict[str, Any]]:
    found = CliRunner().invoke(app, ["uninstall", "--format", "json", *arguments])
    return found.exit_code, {row["what"]: row for row in json.loads(found.stdout)["found"]}


def test_g20_8_a_dry_run_lists_everything_and_changes_nothing(undone: list[str]) -> None:
    code, rows = said("--dry-run")
    assert (code, undone) == (0, [])
    states = {what: row["state"] for what, row in rows.items()}
    assert states == {"units": "would be undone", "jobs": "would be undone", "history": "left to you"}


def test_what_is_safe_is_undone_and_a_failure_hides_nothing(undone: list[str]) -> None:
    code, rows = said()
    assert (code, undone) == (1, ["units"])
    assert [row["state"] for row in rows.values()] == ["done", "failed", "left to you"]
    assert rows["jobs"]["how"].endswith("no rights; by hand: return them")
    text = CliRunner().invoke(app, ["uninstall", "--dry-run"]).stdout
    assert "left to you: history" in text
    assert "rm -r it" in text


def test_a_command_that_is_missing_or_fails_is_said() -> None:
    with pytest.raises(TellAdmin, match="no-such-program"):
        command._run("/no-such-program")
    with pytest.raises(TellAdmin, match="false"):
        command._run("false")
