"""``advisor replay waiting``: its policies, its scores, and that it never looks ahead."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from advisor.papers.forests.distribution import ForestSettings
from advisor.papers.waiting.waiting import WaitingOptions, report
from advisor.papers.waiting.waiting_policies import policies
from advisor.papers.waiting.waiting_results import brier_skill, calibration, matthews
from advisor.papers.waiting.waiting_rows import Replayed, workload_from
from advisor.papers.waiting.waiting_worlds import Case, LearningOptions, Lockstep
from advisor.papers.waiting.world.costs import CostModel
from advisor.papers.waiting.world.world import Dispatch, Mode
from advisor.replay.sources import load_table

T, B = 900.0, 86_400.0
LEARNING = LearningOptions(learn_from=0.2, forest=ForestSettings(trees=3))
CORES = 40


@pytest.fixture(scope="module")
def table():
    return load_table("synthetic:4000:5")


@pytest.fixture(scope="module")
def result(table):
    return report(table, WaitingOptions(fixed_cores=CORES, learning=LEARNING))


@pytest.fixture(scope="module")
def rows(result):
    return {row["variant"]: row for row in result["rows"]}


def test_every_policy_has_its_row(rows):
    assert set(rows) == set(policies(T, B))


def test_nobody_waits_longer_than_b_where_there_is_one(rows):
    for name, row in rows.items():
        unbounded = name.startswith(("long-jobs-wait", "all-wait"))
        assert row["max_wait"] <= B or unbounded, name


def test_the_extremes(rows):
    assert rows["none-wait"]["mean_wait"] == 0.0
    dearest = max(row["ondemand_cost_share_of_fixed"] for row in rows.values())
    assert rows["none-wait"]["ondemand_cost_share_of_fixed"] == dearest
    waits = [row["mean_wait"] for row in rows.values()]
    assert rows["all-wait"]["mean_wait"] == max(waits)
    assert rows["oracle"]["mean_wait_vs_oracle"] == rows["oracle"]["total_cost_vs_oracle"] == 1.0


def test_an_oracle_of_waits_costs_what_patience_does(rows):
    """Short waits wait is cost-neutral (section 2.1), and waits less."""
    oracle, naive = rows["short-waits-wait+oracle"], rows["short-waits-wait+naive"]
    share = "ondemand_cost_share_of_fixed"
    assert oracle[share] == pytest.approx(naive[share])
    assert oracle["mean_wait"] < naive["mean_wait"]


def test_the_wait_model_is_never_worse_than_plain_speculation_on_both(rows):
    ours, plain = rows["speculation+wait-model"], rows["speculation"]
    cost = "ondemand_cost_share_of_fixed"
    assert ours["mean_wait"] < plain["mean_wait"] or ours[cost] < plain[cost]
    assert ours["left_early"] > 0


def test_what_was_learned_is_scored(result):
    assert set(result["wait_model"]["mcc"]) == {"10800", "21600", "43200", "86400"}
    assert result["wait_model"]["jobs_asked"] > 100
    assert result["price_core_seconds_per_second"] > 0.0


def test_the_same_again(table, result):
    again = report(table, WaitingOptions(fixed_cores=CORES, learning=LEARNING))
    assert again["rows"] == result["rows"]


def learned(table, workload):
    case = Case(
        workload=workload,
        cores=CORES,
        short_seconds=T,
        longest_wait_seconds=B,
        skip_below=0.1,
        dispatch=Dispatch.FCFS,
    )
    return Lockstep(case, LEARNING).run()


def test_nothing_is_known_before_its_time(table):
    """Other run times for all that had not ended by a moment change nothing before it."""
    workload = workload_from(table, CostModel(), 1)
    before = learned(table, workload)
    moment = float(np.quantile(workload.submit, 0.75))
    unknown = ~before.real.ended(moment)
    assert 0.2 < unknown.mean() < 0.5
    after = learned(
        table, replace(workload, run=np.where(unknown, 3.0 * workload.run + 50_000.0, workload.run))
    )
    started = before.real.jobs["start"] < moment
    started &= before.real.jobs["where"] != 1
    first, second = before.real.outcome(), after.real.outcome()
    tried = unknown & (second.restarts != first.restarts)  # a short trial that is long now runs on
    same = started & ~tried
    assert same.sum() > 0.6 * len(workload)
    assert np.array_equal(first.start[same], second.start[same])


def test_a_job_that_joins_the_queue_in_the_second_of_a_sweep_is_scored_once(table):
    """Rounded to five minutes, one trial in 24 ends as the whole queue is asked again."""
    workload = workload_from(table, CostModel(spot_mean_seconds=math.inf), 1)
    scored = learned(table, replace(workload, submit=np.round(workload.submit / 300.0) * 300.0)).scores.rows
    assert len(scored) > 100
    assert len(np.unique(scored)) == len(scored)


def test_trials_on_on_demand_cost_more_and_are_never_revoked(table):
    options = WaitingOptions(fixed_cores=CORES, capacity="on-demand")
    assert options.trial_costs.spot == options.costs.on_demand
    assert math.isinf(options.trial_costs.spot_mean_seconds)
    spot = workload_from(table, WaitingOptions().trial_costs, 1)
    safe = workload_from(table, options.trial_costs, 1)
    assert np.all(np.isfinite(spot.revoked_after))
    assert np.all(np.isinf(safe.revoked_after))


@pytest.mark.parametrize("dispatch", [Dispatch.SJF, Dispatch.EASY])
def test_other_dispatch(table, dispatch):
    workload = workload_from(table, CostModel(), 1)
    found = Replayed(workload=workload, cores=CORES, dispatch=dispatch).outcome(policies(T, B)["oracle"])
    long = workload.run > T
    assert np.all(found.start[~long] == workload.submit[~long])
    # an oracle sends away at once: who did not start on fixed cores did not wait
    assert np.all((found.start == workload.submit) | found.on_fixed)


def test_matthews_by_hand():
    predicted = np.array([True, True, True, False, False])
    happened = np.array([True, True, False, True, False])
    # TP 2, TN 1, FP 1, FN 1
    assert matthews(predicted, happened) == pytest.approx((2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2))
    assert matthews(predicted, happened, 5) == pytest.approx((2 * 6 - 1) / math.sqrt(3 * 3 * 7 * 7))
    assert math.isnan(matthews(np.ones(3, np.bool_), np.ones(3, np.bool_)))


def test_skill_and_calibration_by_hand():
    chance, happened = np.array([0.05, 0.05, 0.95, 0.95]), np.array([False, False, True, True])
    assert brier_skill(chance, happened) == pytest.approx(1.0 - 0.05**2 / 0.25)
    assert brier_skill(np.full(4, 0.5), happened) == pytest.approx(0.0)
    low, high = calibration(chance, happened)
    assert (low["jobs"], low["happened"], high["chance"]) == (2, 0.0, pytest.approx(0.95))


@pytest.mark.traces
@pytest.mark.parametrize(
    ("log", "cores", "cost", "hours"),
    [
        ("HPC2N-2002-2.2-cln", 157, 0.389, 1.79),
        ("SDSC-BLUE-2000-4.2-cln", 975, 0.483, 0.71),
        ("LPC-EGEE-2004-1.2-cln", 41, 1.080, 2.14),
    ],
)
def test_oracle_rows_of_the_reference_implementation(traces, log, cores, cost, hours):
    workload = workload_from(load_table(traces / f"{log}.swf.gz"), CostModel(), 1)
    found = Replayed(workload=workload, cores=cores).outcome(policies(T, B)["oracle"])
    first = int(0.7 * len(workload))
    rented = (found.ondemand_seconds * workload.processors)[first:].sum()
    held = workload.submit[-1] - workload.submit[first]
    assert rented / (0.4 * cores * held) == pytest.approx(cost, rel=0.005)
    assert (found.start - workload.submit)[first:].mean() / 3600 == pytest.approx(hours, rel=0.005)


@pytest.mark.parametrize("dispatch", [Dispatch.FCFS, Dispatch.SJF])
@pytest.mark.parametrize("name", ["oracle", "speculation+oracle-wait"])
def test_who_is_sent_away_at_once_changes_nobody_elses_start(table, name, dispatch):
    """What the oracle's short cut says, gone through again with those jobs away from the beginning."""
    workload = workload_from(table, CostModel(), 1)
    policy = policies(T, B)[name]
    replayed = Replayed(workload=workload, cores=CORES, dispatch=dispatch)
    found = replayed.outcome(policy)
    gone = (found.start == workload.submit) & ~found.on_fixed & (workload.run > T)
    assert gone.sum() > 20
    modes = np.where(gone, Mode.RENTS, replayed._modes(policy)).astype(np.int64)
    again = replayed._world(policy, modes, None).outcome()
    for field in fields(found):
        assert np.array_equal(getattr(found, field.name), getattr(again, field.name)), field.name
