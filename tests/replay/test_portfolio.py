"""The replay: what may be known when, who leads, and that nothing of the future is used."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from advisor.cli.main import app
from advisor.decide.portfolio_lead import (
    CHAMPION,
    Options,
    champions_of,
    days_of,
    leaders_of,
    usual_evidence,
    usual_margins,
    usual_policies,
)
from advisor.model.errors import BadInput
from advisor.replay.plots import refuse_unwritable
from advisor.replay.portfolio import replay
from advisor.replay.portfolio_known import Knowledge, Leadership, prepared
from advisor.replay.sources import load_table
from advisor.simulate.portfolio.cluster import Cloud, RentedCluster, Runtimes, replay_policy
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED, Release


def checkpoints(*utilities: float):
    """Rows of charged, work, slowdown, jobs with these utilities over kappa."""
    return np.array([[1000.0, 1000.0 * u, 10.0, 10.0] for u in utilities])


def test_champions_start_from_the_prior_and_follow_the_scores():
    before = np.concatenate([checkpoints(0.5), checkpoints(0.6)])
    champions = champions_of([checkpoints(0.5, 0.9), checkpoints(0.5, 0.5)], before, Options())
    assert champions.tolist() == [1, 1, 0]


def test_how_many_nodes_to_keep_warm_is_learnt_sooner():
    """A prior of 500 jobs says one node, one of 100 jobs is soon outweighed by what three nodes make."""
    policies = PUBLISHED[:1] + BEYOND[1:4]
    options = Options(policies=policies, runtimes=Runtimes.PREDICTED)
    before = np.concatenate([50.0 * checkpoints(u) for u in (0.1, 0.60, 0.58, 0.50)])
    found = [20.0 * checkpoints(u, u) for u in (0.2, 0.5, 0.5, 0.58)]
    assert champions_of(found, before, options).tolist() == [1, 3, 3]
    # with known run times the prior counts 150 jobs itself
    exact = Options(policies=policies)
    assert champions_of(found, before, exact).tolist() == [1, 1, 1]


def test_of_warm_nodes_the_best_number_is_taken_at_once():
    """Half a per cent is enough; between policies of other kinds a whole one is needed."""
    before = np.concatenate([1e-6 * checkpoints(u) for u in (0.5, 0.5)])
    found = [checkpoints(0.500, 0.500, 0.500), checkpoints(0.4975, 0.5025, 0.4975)]
    warm = Options(policies=BEYOND[2:4])
    assert champions_of(found, before, warm).tolist() == [0, 0, 1, 0]
    other = Options(policies=(PUBLISHED[0], PUBLISHED[20]))
    assert champions_of(found, before, other).tolist() == [0, 0, 0, 0]


def test_a_policy_of_another_kind_has_the_whole_prior():
    policies = (PUBLISHED[0], BEYOND[1])
    before = np.concatenate([50.0 * checkpoints(u) for u in (0.5, 0.60)])
    found = [20.0 * checkpoints(u, u) for u in (0.62, 0.5)]
    guessed = Options(policies=policies, runtimes=Runtimes.PREDICTED)
    assert champions_of(found, before, guessed).tolist() == [1, 1, 1]


def test_a_selection_leads_only_beyond_the_hurdle():
    """Five per cent, on top of a per cent's loyalty."""
    led = leaders_of(
        [checkpoints(0.5, 0.5, 0.5)],
        np.zeros(4, np.int64),
        [checkpoints(0.52, 0.56, 0.50)],
        np.zeros(4),
        Options(hurdle=0.05),
    )
    assert led.tolist() == [CHAMPION, CHAMPION, 0, CHAMPION]


def days(*charged: float):
    """Checkpoints once a day: ten jobs each, so much charged for them, the same slowdown."""
    one = np.array([[0.0, 1000.0, 10.0, 10.0]] * len(charged))
    one[:, 0] = charged
    return np.cumsum(one, axis=0)


DAILY = Options(checkpoint_seconds=86_400.0)


def led_by(champion, *selections, first: int = 0) -> list[int]:
    """Leaders day by day, each contender charged so much a day."""
    options = replace(DAILY, first_leader=first)
    found = [days(*each) for each in selections]
    reigns = np.zeros(len(champion) + 1, np.int64)
    return leaders_of([days(*champion)], reigns, found, days(1.0)[0], options).tolist()


def test_the_first_leader_is_not_refuted_by_a_burst():
    """The champion was far better in one burst, and is by a third ahead in sum."""
    burst = (800.0,) + (100.0,) * 11
    assert led_by((100.0,) * 12, burst, (200.0,) * 12) == [0] * 13


def test_better_days_refute_the_first_leader():
    """Three days of the same gain are more than one and a half standard errors."""
    assert led_by((90.0,) * 9, (100.0,) * 9) == [0] * 3 + [CHAMPION] * 7
    assert led_by((100.0,) * 9, (100.0,) * 9, (90.0,) * 9) == [0] * 3 + [1] * 7


def test_who_refuted_the_leader_is_refuted_by_days_as_well():
    """The first leader has the better days from the fifth on: it takes more than as many until they tell."""
    champion = (90.0,) * 4 + (110.0,) * 20
    led = led_by(champion, (100.0,) * 24)
    assert led[:3] == [0] * 3
    assert led[3:10] == [CHAMPION] * 7
    assert led[-1] == 0


def test_a_per_cent_is_no_reason_to_change():
    assert led_by((99.5,) * 40, (100.0,) * 40) == [0] * 41


def evidence_of(alone, reigning, contender, options):
    """After 1, 2, ... days."""
    each = round(86_400.0 / options.checkpoint_seconds)
    champions = days_of(alone, options).reigning(reigning, each)
    return days_of([contender], options).evidence(champions)[0, 1:]


def test_one_day_of_great_gains_is_no_evidence():
    champion = days(*[100.0] * 9)
    reigning = np.zeros(9, np.int64)
    lucky = evidence_of([champion], reigning, days(100, 100, 101, 99, 20, 101, 99, 101, 101), DAILY)
    steady = evidence_of([champion], reigning, days(*[98.0] * 9), DAILY)
    assert lucky[-1] < 1.0
    assert steady[-1] == pytest.approx(math.sqrt(9.0))
    assert evidence_of([champion], reigning, champion, DAILY).tolist() == [0.0] * 9


def test_evidence_is_of_the_champion_that_reigns():
    worse, better = days(*[200.0] * 9), days(*[100.0] * 9)
    contender = days(*[150.0] * 9)
    reigns = np.array([0] * 9), np.array([1] * 9)
    first, second = (evidence_of([worse, better], reign, contender, DAILY)[-1] for reign in reigns)
    assert first == pytest.approx(-second)
    assert first > 2.0


def test_evidence_of_hours_counts_whole_days():
    hours = np.cumsum([[100.0, 1.0, 10.0, 10.0]] * 72, axis=0)
    found = evidence_of([hours], np.zeros(len(hours), np.int64), hours * [0.9, 1.0, 1.0, 1.0], Options())
    assert found == pytest.approx([1.0, math.sqrt(2.0), math.sqrt(3.0)])


def test_days_with_hardly_a_job_tell_nothing():
    idle = days(*[100.0] * 9)
    idle[:, 3] = np.arange(9)
    assert evidence_of([idle], np.zeros(9, np.int64), days(*[50.0] * 9), DAILY).tolist() == [0.0] * 9


ORDERS = (PUBLISHED[0], PUBLISHED[3], PUBLISHED[12])
"""ODA-FCFS, ODA-LXF and ODB-FCFS."""


def champion_after(*losses: tuple[float, ...]) -> list[int]:
    """Champions day by day, of policies that begin as equals but for a hair and are charged so much a day."""
    found = [days(*each) for each in losses]
    before = np.concatenate([days(1.0 + 0.1 * at) for at in range(len(losses))])
    options = replace(DAILY, evidence=2.0, policies=ORDERS[: len(losses)])
    return champions_of(found, before, options).tolist()


def test_another_order_of_jobs_needs_better_days():
    """One burst in which the other order was far better is one day; four days of the same gain are enough."""
    assert champion_after((100.0,) * 5 + (900.0,) + (100.0,) * 6, (100.0,) * 12) == [0] * 13
    assert champion_after((100.0,) * 9, (90.0,) * 9) == [0] * 4 + [1] * 6


def test_an_order_that_has_proved_itself_is_not_kept_out_by_one_that_has_not():
    burst = (300.0, *[100.0] * 7)  # only better in the burst, but best in sum
    losses = (800.0, *[100.0] * 7), burst, (750.0, *[95.0] * 7)
    found = [days(*each) for each in losses]
    before = np.concatenate([days(1.0 + 0.1 * at) for at in range(3)])
    options = replace(DAILY, evidence=2.0, policies=(PUBLISHED[0], PUBLISHED[3], PUBLISHED[6]))
    assert champions_of(found, before, options).tolist() == [0] * 5 + [2] * 4


def test_evidence_for_an_order_counts_days_and_not_hours():
    """Three whole days of hourly checkpoints, all the same gain: not enough; the fourth is."""
    hours = [np.cumsum([[each, 1000.0, 10.0, 10.0]] * 120, axis=0) for each in (100.0, 90.0)]
    before = np.concatenate([days(1.0), days(1.1)])
    options = Options(evidence=2.0, policies=ORDERS[:2])
    assert champions_of(hours, before, options).tolist() == [0] * 96 + [1] * 25
    shorter = replace(options, day_seconds=6 * 3600.0)
    assert champions_of(hours, before, shorter).tolist() == [0] * 24 + [1] * 97


def test_the_best_of_the_reigning_order_takes_over_meanwhile():
    """The other order has not proved itself yet: the better provisioning goes with the order that reigns."""
    assert champion_after((100.0,) * 3, (50.0,) * 3, (70.0,) * 3) == [0, 2, 2, 2]


def test_another_provisioning_needs_no_better_days():
    """A champion that is wrong for a site must go at once: waiting for evidence lost 68 % of LPC-EGEE."""
    found = [days(*[100.0] * 12), days(*[100.0] * 5, 1.0, *[100.0] * 6)]
    before = np.concatenate([days(100.0), days(101.0)])
    guessed = replace(DAILY, evidence=2.0, policies=(PUBLISHED[0], PUBLISHED[12]))
    assert champions_of(found, before, guessed).tolist() == [0] * 6 + [1] * 7


def test_a_selection_leads_from_enough_evidence_until_half_of_it_is_gone():
    champion = days(*[100.0] * 12)
    contender = days(*[80.0] * 6, *[105.0] * 2, *[125.0] * 4)
    reigns = np.zeros(13, np.int64)
    options = replace(DAILY, evidence=1.9)
    evidence = evidence_of([champion], reigns[1:], contender, options)
    led = leaders_of([champion], reigns, [contender], np.zeros(4), options)
    assert led[:4].tolist() == [CHAMPION] * 4
    assert evidence[3] == pytest.approx(2.0)
    kept = evidence[4:] >= 0.95
    assert 0 < kept.sum() < len(kept)
    assert led[4:].tolist() == [0, *np.where(kept, 0, CHAMPION)]
    assert leaders_of([champion], reigns, [contender], np.zeros(4), DAILY)[2] == 0


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


def test_usual_policies():
    assert usual_policies(Release.HOUR) == (*PUBLISHED, BEYOND[0])  # no warm nodes: they are given back
    assert usual_policies(Release.SECOND) == PUBLISHED + BEYOND


def test_only_exact_run_times_are_worth_any_deviation():
    assert usual_margins(Runtimes.ACTUAL) == (0.0, 0.05)
    assert all(usual_margins(known) == (0.05,) for known in Runtimes if known is not Runtimes.ACTUAL)
    assert [usual_evidence(known) == 0.0 for known in Runtimes] == [
        known is Runtimes.ACTUAL for known in Runtimes
    ]


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
