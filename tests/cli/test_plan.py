"""``advisor plan`` as it is typed, and the fields it prints."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from advisor.model import BadInput
from tests.commands import app

SMALL = ("plan", "--trace", "synthetic:900:2", "--since", "10d", "--processes", "1")


def planned(*words: str) -> str:
    done = CliRunner().invoke(app, [*SMALL, *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_curve_its_optimum_and_how_far_to_trust_it() -> None:
    found = json.loads(planned("--node-cores", "4", "--wait", "600", "--format", "json"))
    best = found["optimum"]
    assert best["cores"] == 4 * best["nodes"]
    assert best in found["curve"]
    assert best["mean_wait_seconds"] <= found["target_wait_seconds"] == 36_000.0
    assert found["own_usd_per_core_hour"] == pytest.approx(0.4 * found["usd_per_core_hour"])
    assert found["fidelity"]["jobs"] == found["jobs"]


def test_for_people() -> None:
    text = planned()
    for word in ("total USD a year", "Cheapest: ", "USD a month", "All on-premise, the mean wait is"):
        assert word in text


def test_a_wait_that_no_size_keeps_is_said() -> None:
    assert "No size and budget shown keeps the mean wait within 0 s." in planned("--wait", "0")


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(BadInput, match="no finished job"):
        CliRunner().invoke(app, [*SMALL, "--since", "2100-01-01"], catch_exceptions=False)
