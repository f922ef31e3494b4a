"""``advisor replay deadline`` as it is typed, and the fields it prints."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from advisor.model.errors import BadInput
from tests.commands import app

runner = CliRunner()


def test_deadline_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "spot.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 900}, "data": [1, 1, 1, 1, 0, 0, 0, 1] * 12}))
    words = ["replay", "deadline", "--spot", str(path), "--hours", "4", "--history", "8", "--starts", "2"]
    result = runner.invoke(app, [*words, "--format", "json"], catch_exceptions=False)
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["traces"][0]["trace"] == "spot"
    assert found["all"]["jobs"] == 2
    assert all(policy["missed"] == 0 for policy in found["all"]["policies"].values())
    text = runner.invoke(app, words, catch_exceptions=False).stdout
    assert "uniform progress" in text
    assert "all traces: 2 jobs" in text


def test_a_file_that_is_no_trace_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "spot.json"
    path.write_text("no trace")
    assert isinstance(runner.invoke(app, ["replay", "deadline", "--spot", str(path)]).exception, BadInput), (
        "the command line ends with code 2"
    )
