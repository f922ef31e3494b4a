"""Which jobs may keep a place on-premise, which are tried out, and what their users are told."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment, message
from advisor.decide.explanation.wording import explanation, recorded_explanation
from advisor.decide.submission.published_policies import speculation_of
from advisor.decide.submission.rules import may_be_brought_back
from advisor.model.advice import Capacity, Hedge, HedgeKind, Placement
from advisor.model.estimate import Estimate, Estimates
from tests.decide.cases import (
    NOTHING_KNOWN,
    ask,
    make_cloud,
    make_job,
    make_settings,
)


def run_of(*quantiles: float) -> Estimates:
    middle = sorted(quantiles)[len(quantiles) // 2]
    return Estimates(wait=Estimate(seconds=7200.0, variance=100.0), run=_estimate(middle, quantiles))


def _estimate(seconds: float, quantiles: tuple[float, ...]) -> Estimate:
    return Estimate(seconds=seconds, variance=1e12, quantiles=tuple(sorted(quantiles)))


@pytest.mark.parametrize(
    "fields",
    [
        {"requeue": False},
        {"array_tasks": 2},
        {"interactive": True},
        {"dependency": "afterok:7"},
        {"heterogeneous": True},
        {"comment": "advisor:no-hedge"},
        {"comment": "me,NO-HEDGE please"},
        {"gres": "gres:gpu:1"},
        {"licenses": "matlab:1"},
        {"reservation": "course"},
        {"node_list": "onprem1"},
    ],
)
def test_whoever_might_be_harmed_is_left_alone(fields: dict[str, Any]) -> None:
    settings = make_settings(cluster={"policy": "ambati2021"})
    job = make_job(**fields)
    assert not may_be_brought_back(job, settings)
    assert speculation_of(job, settings) is None


AMBATI = {"policy": "ambati2021"}
SPECULATE = {"long_job_seconds": 900.0}


def speculates(estimates: Estimates, *, slowdown: float = 1.0, **waiting: Any) -> bool:
    settings = make_settings(
        cluster=AMBATI,
        waiting=SPECULATE | waiting,
        placement={"overhead_per_processor": 0.0, "boot_seconds": 0.0, "baseline": slowdown},
    )
    found = ask(estimates=structs.replace(estimates, wait=LONG_WAIT), settings=settings)
    return found.hedge is not None and found.hedge.kind is HedgeKind.SPECULATION


LONG_WAIT = Estimate(seconds=1e6, variance=1.0)


def test_a_long_job_with_a_chance_gets_its_chance() -> None:
    assert speculates(run_of(*[100.0] * 3, *[9000.0] * 17))
    assert not speculates(run_of(100.0, *[9000.0] * 19))
    assert not speculates(run_of(*[800.0] * 20), slowdown=1.2)  # too slow there
    assert speculates(NOTHING_KNOWN)


def test_seeds_3_a_stop_at_t_also_for_jobs_forecast_short_unless_that_is_nearly_sure() -> None:
    """Mean 800 s, over t = 900 s with a chance of .4: it moved without any stop."""
    likely_short = run_of(*[500.0] * 12, *[1250.0] * 8)
    assert likely_short.run.seconds < 900.0
    assert speculates(likely_short)
    assert speculates(likely_short, short_wait_seconds=86_400.0)
    assert not speculates(run_of(*[500.0] * 20))


def test_a_trial_is_paid_for_by_the_budget_up_to_t() -> None:
    """A trial that the budget refused: its run of 17 hours did not count, nor did its quarter of an hour."""
    cloud = make_cloud(spot_usd_per_core_hour=1.0, on_demand_usd_per_core_hour=1.0)
    long = structs.replace(run_of(*[100.0] * 3, *[60_000.0] * 17), wait=LONG_WAIT)
    for cap, moves in ((2.0, True), (0.5, False)):  # 4 cores for 17 minutes with the boot: 1.13 USD
        advice = ask(
            estimates=long,
            cloud=cloud,
            settings=make_settings(
                cluster=AMBATI,
                waiting=SPECULATE,
                budget={"usd": cap, "period": "day"},
                placement={"boot_seconds": 120.0},
            ),
        )
        assert (advice.placement is Placement.BURST) is moves, cap


def test_a_trial_for_which_there_is_no_capacity_is_not_kept_by_an_unknown_cost() -> None:
    settings = make_settings(cluster=AMBATI, waiting=SPECULATE, budget={"usd": 5.0})
    closed = make_cloud(spot_open=False, on_demand_open=False)
    kept = ask(estimates=NOTHING_KNOWN, cloud=closed, settings=settings).decisive
    assert kept.reason == Reason.NONE_OPEN


def test_speculation_is_said_and_stops_at_t() -> None:
    sure = Estimates(
        wait=Estimate(seconds=9e5, variance=1.0),
        run=Estimate(seconds=9000.0, variance=1.0, quantiles=(100.0, 9000.0, 9500.0)),
    )
    advice = ask(estimates=sure, settings=make_settings(cluster=AMBATI, waiting=SPECULATE))
    assert advice.hedge is not None
    assert (advice.hedge.kind, advice.hedge.stop_seconds) == (HedgeKind.SPECULATION, 900.0)
    assert advice.decisive.reason in {Reason.SPECULATED, Reason.SPOT, Reason.ON_DEMAND}
    said = message(advice)
    assert said is not None
    assert "when its slot is free or after 15 min it may be stopped and restarted here, once" in said
    assert "keeps its place in the queue here" in explanation(advice)


@pytest.mark.parametrize("capacity", list(Capacity))
@given(stop=st.one_of(st.just(math.inf), st.floats(1.0, 1e7)), kind=st.sampled_from(HedgeKind))
def test_the_comment_carries_the_promise(capacity: Capacity, stop: float, kind: HedgeKind) -> None:
    advice = structs.replace(
        ask(),
        capacity=capacity,
        hedge=Hedge(kind=kind, stop_seconds=stop),
    )
    read = parse_admin_comment(admin_comment(advice))
    assert read is not None
    assert "keeps its place in the queue here" in recorded_explanation(read)
    assert read.hedge is not None
    assert read.hedge.kind is kind
    assert read.hedge.stop_seconds == pytest.approx(stop, abs=0.06)


@pytest.mark.parametrize(
    "forged", [["hedge", -1], ["hedge", "x"], ["other", 5], ["hedge"], "hedge", [[], 1], ["hedge", 1, 2]]
)
def test_a_forged_promise_is_none(forged: object) -> None:
    content = json.loads(admin_comment(ask()))
    content["hedge"] = forged
    read = parse_admin_comment(json.dumps(content))
    assert read is not None
    assert read.hedge is None
