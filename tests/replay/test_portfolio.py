"""The replay: what may be known when, that nothing of the future is used, and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from advisor.cli.main import app
from advisor.decide.portfolio_options import CHAMPION, Options
from advisor.model.errors import BadInput
from advisor.replay.plots import refuse_unwritable
from advisor.replay.portfolio import replay
from advisor.replay.portfolio_known import Knowledge, Leadership, prepared
from advisor.replay.sources import load_table
from advisor.simulate.portfolio.cluster import Cloud, RentedCluster, Runtimes, replay_policy
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED


def test_the_last_charge_holds_on():
    charge = Leadership(np.array([3, 4]), [CHAMPION, 0])
    assert [charge.after(known) for known in (0, 1, 2, 99)] == [(3, CHAMPION), (4, 0), (4, 0), (4, 0)]


def test_nothing_is_known_of_run_times_that_are_not_over():
    """With guessed run times no job had run for longer, at a checkpoint that is known, than it has here."""
    log = prepared(load_table("synthetic:300"), Cloud(), None)
    options = Options(runtimes=Runtimes.PREDICTED)
    slow, quick = PUBLISHED[12], PUBLISHED[0]  # ODB leads, and ODA alongside starts many jobs before it
    earliest = np.min(
        [replay_policy(log, Cloud(), Runtimes.PREDICTED, one)[2] for one in (slow, quick)], axis=0
    )
    cluster = RentedCluster(log, Cloud(), Runtimes.PREDICTED, [slow], 3600.0)
    known, foresees = Knowledge(log, options, earliest), Knowledge(log, Options(), earliest)
    hidden = seen = 0
    while not cluster.advance(chooses=True):
        count, every = known.checkpoints(cluster), foresees.checkpoints(cluster)
        moment = log.submit[0] + 3600.0 * count
        job = cluster.state.job
        ran_there = np.minimum(np.maximum(moment - earliest, 0.0), log.run)
        started = np.nan_to_num(job["start"], nan=np.inf)
        ran_here = np.where(np.isnan(job["end"]), np.maximum(cluster.now - started, 0.0), log.run)
        assert count == 0 or (ran_there <= ran_here).all()
        assert count <= every
        hidden += every - count
        seen += count
        cluster.apply(0, 3600.0)
    assert hidden > 0
    assert seen > 0


@pytest.mark.parametrize("evidence", [0.0, 1.0])
def test_the_future_changes_nothing(monkeypatch, evidence):
    """Choices made on the first half of a log are the same when the second half is another."""
    whole = prepared(load_table("synthetic:240"), Cloud(), None)
    half = whole.select(slice(0, 120))
    options = Options(
        runtimes=Runtimes.PREDICTED, policies=PUBLISHED[::7] + PUBLISHED[-1:], evidence=evidence
    )
    monkeypatch.setattr("advisor.replay.portfolio_known.PRIOR_WORKLOADS", ("synthetic:200:1",))
    uses = [replay(log, options, lambda *_: None).portfolio.use for log in (whole, half)]
    early = [
        [(moment, policy) for moment, policy in zip(use.moments, use.policies, strict=True) if moment < end]
        for use in uses
        for end in [float(half.submit[-1])]
    ]
    assert early[0] == early[1]
    assert len(early[0]) > 20


def test_wide_jobs_are_left_out_and_none_left_is_refused():
    log = load_table("synthetic:300")
    assert prepared(log, Cloud(), None).processors.max() <= 64
    with pytest.raises(BadInput):
        prepared(log.select(log.processors > 64), Cloud(), None)


@pytest.mark.parametrize("billing", ["hour", "second"])
def test_command(billing, tmp_path, monkeypatch):
    """The contract's fields; the billing and its rule are named; a page is written."""
    monkeypatch.setattr("advisor.replay.portfolio_known.PRIOR_WORKLOADS", ("synthetic:200:1",))
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
    monkeypatch.setattr("advisor.replay.portfolio_known.PRIOR_WORKLOADS", ("synthetic:200:1",))
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


def test_a_page_that_cannot_be_written_is_refused_before_the_replay(tmp_path, monkeypatch):
    monkeypatch.setattr("advisor.replay.portfolio.report", lambda *_, **__: pytest.fail("replayed in vain"))
    page = tmp_path / "nowhere" / "page.html"
    line = ["replay", "portfolio", "--trace", "synthetic:300", "--plot", str(page)]
    found = CliRunner().invoke(app, line)
    assert isinstance(found.exception, BadInput)
    assert str(page) in str(found.exception)
    with pytest.raises(BadInput, match="directory"):
        refuse_unwritable(tmp_path)


@pytest.mark.parametrize("option", ["--alpha", "--beta"])
@pytest.mark.parametrize("weight", ["-1", "1000", "inf", "nan"])
def test_weights_that_leave_no_utility_are_refused(option, weight):
    found = CliRunner().invoke(app, ["replay", "portfolio", "--trace", "synthetic:9", option, weight])
    assert found.exit_code == 2
