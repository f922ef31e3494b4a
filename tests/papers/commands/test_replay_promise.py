"""``advisor replay promise`` as it is typed, and the fields it prints."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from tests.commands import app

runner = CliRunner()


def test_promise_has_the_fields_of_the_contract() -> None:
    words = ["replay", "promise", "--trace", "synthetic:1200:2", "--format", "json"]
    result = runner.invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["jobs"] == 1080
    assert found["confidence"] == 0.95
    assert 0.9 <= found["kept_share"] <= 1.0
    assert len(found["kept_share_by_size"]) == 3
    assert found["cost_vs_clairvoyant"] >= 1.0
    assert found["seconds"] > 0.0


def test_a_job_that_keeps_no_place_does_not_come_back() -> None:
    words = ["replay", "promise", "--trace", "synthetic:1200:2", "--format", "json"]
    kept, given_up = (
        json.loads(runner.invoke(app, [*words, *more], catch_exceptions=False).stdout)
        for more in ([], ["--no-place"])
    )
    assert kept["came_back"] > 0 == given_up["came_back"]
    assert 0.9 <= given_up["kept_share"] < 1.0


def test_a_machine_that_never_waits_costs_nothing() -> None:
    words = ["replay", "promise", "--trace", "synthetic:300:2", "--nodes", "100000", "--format", "json"]
    found = json.loads(runner.invoke(app, words, catch_exceptions=False).stdout)
    assert found["cost_vs_clairvoyant"] is None
    assert found["promises"]["free"]["jobs"] == found["jobs"]
