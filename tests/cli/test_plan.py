"""``advisor plan`` as it is typed, and the fields it prints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor.model.errors import BadInput
from advisor.service.admin.plan_words import plan_words
from tests.commands import app

pytestmark = pytest.mark.slow

LOG = ("plan", "--trace", "synthetic:900:2", "--processes", "1")


def planned(*words: str, since: str = "7d") -> str:
    done = CliRunner().invoke(app, [*LOG, "--since", since, *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(planned("--node-cores", "4", "--wait", "600", "--format", "json"))
    return result


def test_the_curve_its_optimum_and_how_far_to_trust_it(found: dict[str, Any]) -> None:
    best = found["optimum"]
    assert best["cores"] == 4 * best["nodes"]
    assert best in found["curve"]
    assert best["mean_wait_seconds"] <= found["target_wait_seconds"] == 36_000.0
    assert found["own_usd_per_core_hour"] == pytest.approx(0.4 * found["usd_per_core_hour"])
    assert found["fidelity"]["jobs"] == found["jobs"]


def test_for_people() -> None:
    text = planned(since="2d")
    for word in ("total USD a year", "Cheapest: ", "USD a month", "All on-premise, the mean wait is"):
        assert word in text


def test_a_wait_that_no_size_keeps_is_said(found: dict[str, Any]) -> None:
    _, last = plan_words({**found, "optimum": None, "target_wait_seconds": 0.0})
    assert "No size and budget shown keeps the mean wait within 0 s." in last


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(BadInput, match="no finished job"):
        CliRunner().invoke(app, [*LOG, "--since", "2100-01-01"], catch_exceptions=False)
