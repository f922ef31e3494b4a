"""Who may start hedged or speculatively, for how long, and what he is told."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec import structs

from advisor.decide.explanation.admin_comment import admin_comment, parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.wording import explanation, message, recorded_explanation
from advisor.decide.hedge.hedge_offer import hedge_of, may_be_brought_back, priced, speculation_of
from advisor.decide.hedge.hedging import case_of, plan
from advisor.decide.submission.placement import as_case
from advisor.model import Capacity, Estimate, Estimates, Mode, Placement
from advisor.model.advice import Hedge, HedgeKind
from tests.decide.cases import (
    CLUSTER,
    NOTHING_KNOWN,
    ask,
    make_cloud,
    make_estimates,
    make_job,
    make_settings,
)

HEDGE = {"enabled": True, "by_default": True}
DOUBT = make_estimates(wait_variance=1e12, run_variance=1e12)


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
    settings = make_settings(hedge=HEDGE, waiting={"speculate": True, "long_job_seconds": 60.0})
    job = make_job(**fields)
    assert not may_be_brought_back(job, settings)
    assert hedge_of(job, make_cloud(), settings) is None
    assert speculation_of(job, settings) is None


@pytest.mark.parametrize(
    ("hedge", "fields", "is_hedged"),
    [
        ({}, {}, False),
        ({}, {"comment": "hedge"}, False),
        ({"enabled": True}, {}, False),
        ({"enabled": True}, {"comment": "hedge"}, True),
        ({"enabled": True}, {"comment": "hedges"}, False),
        ({"enabled": True}, {"comment": "hedge no-hedge"}, False),
        ({"enabled": True, "partitions": ["long"]}, {"queue": "long"}, True),
        ({"enabled": True, "partitions": ["long"]}, {"queue": "short"}, False),
        ({"enabled": True, "by_default": True}, {}, True),
        ({"enabled": True, "by_default": True}, {"comment": "no-hedge"}, False),
    ],
)
def test_in_and_out(*, hedge: dict[str, Any], fields: dict[str, Any], is_hedged: bool) -> None:
    found = hedge_of(make_job(**fields), make_cloud(), make_settings(hedge=hedge))
    assert (found is not None) == is_hedged


def test_requeue_default_of_the_site_holds_for_who_says_nothing() -> None:
    settings = make_settings(hedge=HEDGE, cluster={"requeue_default": False})
    assert hedge_of(make_job(), make_cloud(), settings) is None
    assert hedge_of(make_job(requeue=True), make_cloud(), settings) is not None


@given(
    processors=st.integers(1, 4096),
    per_node=st.integers(0, 128),
    hours=st.floats(0.01, 1e5),
    usd=st.just(0.0) | st.floats(0.01, 1e4),
    price=st.floats(0.0, 5.0),
)
def test_a_stop_loss_is_never_exceeded(
    processors: int, per_node: int, hours: float, usd: float, price: float
) -> None:
    """Whole nodes are paid for: neither core hours nor dollars go beyond what is set."""
    limits = {"stop_loss_core_hours": hours, "stop_loss_usd": usd}
    settings = make_settings(hedge=HEDGE | limits)
    cloud = make_cloud(processors_per_node=per_node, on_demand_usd_per_core_hour=price)
    hedge = hedge_of(make_job(processors=processors), cloud, settings)
    assert hedge is not None
    cores = math.ceil(processors / per_node) * per_node if per_node else processors
    used = hedge.stop_seconds / 3600.0 * cores
    assert used <= hours * (1 + 1e-9)
    if usd and price:
        assert used * price <= usd * (1 + 1e-9)
        assert math.isclose(used, hours) or math.isclose(used * price, usd)
    else:
        assert math.isclose(used, hours)


def test_a_doubt_is_hedged_where_the_job_would_wait() -> None:
    settings = make_settings(hedge=HEDGE)
    advice = ask(estimates=DOUBT, settings=settings)
    assert (advice.placement, advice.hedge is not None) == (Placement.BURST, True)
    assert Reason.HEDGED in [answer.reason for answer in advice.answers]
    kept = ask(estimates=DOUBT, settings=make_settings())
    assert (kept.placement, kept.hedge) == (Placement.ON_PREMISE, None)


def doubt_of(wait: float, run: float) -> Estimates:
    """Nobody is sure of anything, but there is a distribution."""
    return Estimates(
        wait=Estimate(seconds=wait, variance=1e12, quantiles=(0.0, 0.0, 3.0 * wait)),
        run=Estimate(seconds=run, variance=1e12, quantiles=(0.5 * run, run, 1.5 * run)),
    )


@pytest.mark.parametrize(
    ("price", "is_hedged"), [(None, True), (1e-5, True), (1.0, True), (1e3, False), (1e30, False)]
)
def test_a_doubt_is_hedged_where_it_is_worth_the_price(*, price: float | None, is_hedged: bool) -> None:
    """Hours of waiting may be won, or nothing, with four cores for ten minutes: some seconds for each."""
    settings = make_settings(hedge=HEDGE, placement={"boot_seconds": 0.0})
    advice = ask(estimates=doubt_of(7200.0, 600.0), settings=settings, hedge_price=price)
    assert (advice.hedge is not None) == is_hedged
    assert advice.placement is (Placement.BURST if is_hedged else Placement.ON_PREMISE)


def test_a_boot_is_no_part_of_the_time_a_job_may_run() -> None:
    """The price buys a stay in the cloud, boot included; the watch loop counts from the start on the node."""
    hedge, placement = (
        hedge_of(make_job(), make_cloud(), make_settings(hedge=HEDGE)),
        make_settings().placement,
    )
    stay = []
    for boot in (0.0, 120.0):
        case = as_case(
            processors=4,
            requested_time=None,
            estimates=doubt_of(7200.0, 600.0),
            boot=boot,
            settings=placement,
        )
        found = priced(hedge, case, 0.01)
        assert found is not None
        known = case_of(
            Estimates(wait=case.wait, run=case.run),
            processors=4,
            slowdown=case.performance_ratio,
            boot_seconds=boot,
            requested_time=None,
        )
        assert known is not None
        stay.append(found.stop_seconds + boot - plan(known, 0.01).stop_seconds)
    assert stay == [0.0, 0.0]


@hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the first one compiles
@given(price=st.floats(1e-5, 1e4), wait=st.floats(1.0, 1e6), run=st.floats(1.0, 1e6))
def test_the_settings_stop_loss_is_the_longest_at_any_price(price: float, wait: float, run: float) -> None:
    hedge = hedge_of(make_job(), make_cloud(), make_settings(hedge=HEDGE | {"stop_loss_core_hours": 0.1}))
    assert hedge is not None
    case, unknown = (
        as_case(
            processors=4, requested_time=None, estimates=each, boot=60.0, settings=make_settings().placement
        )
        for each in (doubt_of(wait, run), NOTHING_KNOWN)
    )
    found = priced(hedge, case, price)
    assert found is None or 0.0 < found.stop_seconds <= hedge.stop_seconds
    assert priced(hedge, unknown, price) is hedge
    assert priced(hedge, case, None) is hedge
    assert priced(None, case, price) is None


def test_a_sure_move_keeps_its_place_at_any_price() -> None:
    advice = ask(settings=make_settings(hedge=HEDGE), hedge_price=1e30)
    assert advice.hedge == hedge_of(make_job(), make_cloud(), make_settings(hedge=HEDGE))


def test_nobody_is_hedged_where_nobody_waits() -> None:
    idle = structs.replace(CLUSTER, queue_size=0, free_processors=64)
    advice = ask(estimates=DOUBT, settings=make_settings(hedge=HEDGE), cluster=idle)
    assert (advice.placement, advice.hedge) == (Placement.ON_PREMISE, None)
    # who waits will start at the next pass of the scheduler, and there is room for this one as well
    starting = structs.replace(CLUSTER, queue_size=3, waiting_mean_processors=4.0, free_processors=16)
    advice = ask(estimates=DOUBT, settings=make_settings(hedge=HEDGE), cluster=starting)
    assert (advice.placement, advice.hedge) == (Placement.ON_PREMISE, None)


def test_what_nobody_knows_anything_of_is_hedged_too() -> None:
    advice = ask(estimates=NOTHING_KNOWN, settings=make_settings(hedge=HEDGE))
    assert advice.hedge is not None
    assert advice.hedge.kind is HedgeKind.HEDGE


def test_a_sure_move_keeps_its_place_too() -> None:
    """The forecast may be wrong: then the job still loses no time."""
    advice = ask(settings=make_settings(hedge=HEDGE))
    assert (advice.placement, advice.hedge is not None) == (Placement.BURST, True)
    assert Reason.HEDGED not in [answer.reason for answer in advice.answers]


def test_shadow_mode_promises_nothing() -> None:
    advice = ask(settings=make_settings(hedge=HEDGE, cluster={"default_mode": Mode.SHADOW}))
    assert (advice.hedge, advice.partition) == (None, None)


SPECULATE = {"speculate": True, "long_job_seconds": 900.0}


def speculates(estimates: Estimates, *, slowdown: float = 1.0, **waiting: Any) -> bool:
    settings = make_settings(
        waiting=SPECULATE | waiting,
        placement={
            "rule": "published",
            "use_cutoff": False,
            "overhead_per_processor": 0.0,
            "boot_seconds": 0.0,
        }
        | {"baseline": slowdown},
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
    """A trial passed by the caps: its run of 17 hours did not count, nor did its quarter of an hour."""
    cloud = make_cloud(spot_usd_per_core_hour=1.0, on_demand_usd_per_core_hour=1.0)
    long = structs.replace(run_of(*[100.0] * 3, *[60_000.0] * 17), wait=LONG_WAIT)
    for cap, moves in ((2.0, True), (0.5, False)):  # 4 cores for 17 minutes with the boot: 1.13 USD
        advice = ask(
            estimates=long,
            cloud=cloud,
            settings=make_settings(
                waiting=SPECULATE | {"daily_cap_usd": cap},
                placement={"rule": "published", "use_cutoff": False, "boot_seconds": 120.0},
            ),
        )
        assert (advice.placement is Placement.BURST) is moves, cap


def test_speculation_is_said_and_stops_at_t() -> None:
    sure = Estimates(
        wait=Estimate(seconds=9e5, variance=1.0),
        run=Estimate(seconds=9000.0, variance=1.0, quantiles=(100.0, 9000.0, 9500.0)),
    )
    advice = ask(estimates=sure, settings=make_settings(waiting=SPECULATE))
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
        ask(settings=make_settings(hedge=HEDGE)),
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
    content = json.loads(admin_comment(ask(settings=make_settings(hedge=HEDGE))))
    content["hedge"] = forged
    read = parse_admin_comment(json.dumps(content))
    assert read is not None
    assert read.hedge is None
