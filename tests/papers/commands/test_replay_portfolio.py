"""`advisor replay portfolio`: what it prints, draws and refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from advisor.simulate.portfolio.policies import BEYOND
from tests.commands import app

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("billing", ["hour", "second"])
def test_command(billing, tmp_path, monkeypatch):
    """The contract's fields; the billing and its rule are named; a page is written."""
    monkeypatch.setattr("advisor.decide.portfolio.replay_knowledge.PRIOR_WORKLOADS", ("synthetic:200:1",))
    page = tmp_path / "page.html"
    line = ["replay", "portfolio", "--trace", "synthetic:300", "--billing", billing, "--simulate", "20"]
    done = CliRunner().invoke(app, [*line, "--plot", str(page), "--format", "json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    figures = {"utility", "mean_bounded_slowdown", "charged_vm_hours", "utilisation"}
    assert figures <= result["portfolio"].keys()
    assert len(result["constituents"]) == 60
    assert len(result["beyond_the_paper"]) == (1 if billing == "hour" else len(BEYOND))
    assert all({"policy", *figures} <= row.keys() for row in result["constituents"])
    best = max(row["utility"] for row in result["constituents"])
    gain = result["portfolio"]["utility"] / best - 1.0
    assert result["gain_over_best_constituent"] == pytest.approx(gain)
    assert result["billing"] == billing
    assert "charged" in result["release_rule"]
    assert {"p50", "p99"} <= result["simulate_all_policies_ms"].keys()
    assert sum(result["invocations"].values()) > 0
    warm = {name.partition("Fit")[2] for name in result["invocations"]}
    assert {kind[kind.find("+") :] if "+" in kind else "" for kind in result["use"]["share"]} == warm
    assert page.stat().st_size > 100_000


def test_the_billings_stand_side_by_side(tmp_path, monkeypatch):
    """Each as by itself, under its name; a column each for people, and each one's rule in words."""
    monkeypatch.setattr("advisor.decide.portfolio.replay_knowledge.PRIOR_WORKLOADS", ("synthetic:200:1",))
    page = tmp_path / "page.html"
    line = ["replay", "portfolio", "--trace", "synthetic:200", "--simulate", "20", "--billing"]
    done = CliRunner().invoke(app, [*line, "all", "--plot", str(page), "--format", "json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert list(result["billings"]) == ["hour", "hour-kept", "second"]
    alone = json.loads(CliRunner().invoke(app, [*line, "second", "--format", "json"]).stdout)
    beside = result["billings"]["second"]
    volatile = {"seconds", "simulate_all_policies_ms"}
    assert {key: beside[key] for key in beside.keys() - volatile} == {
        key: alone[key] for key in alone.keys() - volatile
    }
    drawn = page.read_text(encoding="utf-8")
    shown = CliRunner().invoke(app, [*line, "all"], env={"COLUMNS": "140"}).stdout
    for billing, each in result["billings"].items():
        assert each["billing"] == billing
        assert f"Billing `{billing}`: {each['release_rule']}" in " ".join(shown.split())
        assert each["release_rule"] in drawn
        assert f"{each['portfolio']['utility']:.2f}" in shown


@pytest.mark.parametrize("option", ["--alpha", "--beta"])
@pytest.mark.parametrize("weight", ["-1", "1000", "inf", "nan"])
def test_weights_that_leave_no_utility_are_refused(option, weight):
    found = CliRunner().invoke(app, ["replay", "portfolio", "--trace", "synthetic:9", option, weight])
    assert found.exit_code == 2
