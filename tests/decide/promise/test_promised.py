"""A job whose user names a time: it waits while that keeps it, and starts in the cloud when it has to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, timedelta, timezone
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.promise_words import price_list_words, promise_message
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.decide.explanation.wording import explanation
from advisor.decide.promise.chances import ended_of
from advisor.decide.promise.promised import kind_of, leaves_time, may_start_anew
from advisor.decide.submission.advise import advise
from advisor.model.advice import ENDING_SECONDS, Advice, HedgeKind, Placement
from advisor.model.estimate import Estimate, Estimates
from advisor.model.settings import Settings
from advisor.model.site import CloudState, PerformanceRatios, Price, Room, SiteState
from advisor.model.spot_pools import LASTS_HOURS, SpotPool
from advisor.predict.promised.known import PromisesKnown
from advisor.predict.promised.levels import Kind
from advisor.predict.promised.waits import Plans
from advisor.predict.run_times.grid import GRID, bin_of
from tests.decide.cases import CLUSTER, make_job, make_settings

HOUR = 3600.0
NOW = 10 * HOUR
LIMIT = 4 * HOUR


def settings(**sections: Any) -> Settings:
    given = {
        "cluster": {"policy": "price", "time_zone": "UTC"},
        "promise": {"enabled": True},
        "budget": {"usd": 100.0},
        "placement": {"boot_seconds": 120.0},
    }
    return make_settings(**(given | sections))


def estimates(wait: float) -> Estimates:
    """A job of one hour, seldom of two."""
    chances = np.zeros(len(GRID))
    chances[bin_of(HOUR)], chances[bin_of(2 * HOUR)] = 0.9, 0.1
    return Estimates(
        wait=Estimate(seconds=wait, variance=1.0),
        run=Estimate(seconds=HOUR, variance=1.0),
        run_chances=tuple(chances.tolist()),
        promise=PromisesKnown().chances(Plans(wait, wait), 4 * LIMIT, 4 * HOUR),
    )


def asked(
    by: str,
    *,
    wait: float = 20 * HOUR,
    limit: float | None = LIMIT,
    tokens: float = 50.0,
    spot_hours: float = 0.0,
    requeue: bool = True,
    interruptions: int = 0,
    explicit_partition: bool = False,
    cloud: Mapping[str, Any] | None = None,
    ratios: PerformanceRatios | None = None,
    **sections: Any,
) -> Advice:
    """A job that names a time; where `spot_hours` is given, spot instances live that long on average."""
    job = make_job(
        submit_time=NOW,
        comment=f"by={by}",
        requested_time=limit,
        queue="onprem",
        requeue=requeue,
        interruptions=interruptions,
        explicit_partition=explicit_partition,
        explicit_time_limit=ratios is not None,
    )
    lasts = tuple(math.exp(-hours / spot_hours) for hours in LASTS_HOURS) if spot_hours else ()
    there = CloudState(
        on_demand_usd_per_core_hour=0.05,
        spot_usd_per_core_hour=0.015,
        spot_open=True,
        spot_pools=(SpotPool(key="spot|a", usd_per_hour=0.06, lasts=lasts),) if lasts else (),
        processors_per_node=4,
        nodes_total=8,
        nodes_with={"on-demand": 8.0},
    )
    state = SiteState(
        time=NOW,
        cluster=CLUSTER,
        cloud=replace(there, **(cloud or {})),
        price=Price(seconds_per_usd=1e9, tokens_usd=tokens),
        ratios=ratios,
    )
    return advise(job, state, estimates(wait), settings(**sections), advice_id="a")


def test_a_job_waits_as_long_as_a_later_start_keeps_its_time() -> None:
    advice = asked("+12h")
    assert advice.placement is Placement.ON_PREMISE
    assert advice.decisive.reason == Reason.PROMISE_WAITS
    assert 9 * HOUR < advice.values()["last_start_in"] < 11 * HOUR


def test_a_job_without_a_limit_is_promised_a_time_for_free() -> None:
    advice = asked("+2d", limit=None, tokens=0.0)
    assert advice.values()["is_promised"] == 1.0
    assert 20 * HOUR < advice.values()["free_in"] < 48 * HOUR


def test_a_job_starts_in_the_cloud_when_it_has_to_whatever_an_hour_may_cost() -> None:
    advice = asked("+2.4h")
    assert (advice.placement, advice.partition) == (Placement.BURST, "burst")
    assert advice.capacity == "on-demand"  # spot may be taken back
    assert [answer.reason for answer in advice.answers[1:3]] == [Reason.PROMISE_GOES, Reason.PROMISE_PAID]
    assert "because the loss of a spot instance could make it late" in explanation(advice)
    assert advice.values()["predicted_cloud_run"] == pytest.approx(1.04 * HOUR)
    kept_off = asked("+2.4h", requeue=False)
    assert "because the job may not be requeued" in explanation(kept_off)


def test_it_starts_on_spot_where_that_is_in_time_even_if_its_instance_is_lost() -> None:
    advice = asked("+6h", spot_hours=10_000.0)
    assert advice.decisive.reason == Reason.PROMISE_WAITS
    advice = asked("+2.4h", spot_hours=10_000.0)
    assert advice.capacity == "spot"
    assert [answer.reason for answer in advice.answers[1:3]] == [Reason.PROMISE_GOES, Reason.PROMISE_ON_SPOT]
    assert "begins anew on-demand" in explanation(advice)
    # instances that last: until the last start on-demand; others: as long as there is time for a loss
    never, long, short = (asked("+12h", spot_hours=hours).values() for hours in (0.0, 10_000.0, 5.0))
    assert never["last_start_in"] == long["last_start_in"] > short["last_start_in"] > 0.0
    assert asked("+2.4h", spot_hours=5.0).capacity == "on-demand"


def test_with_checkpoints_spot_is_in_time_as_long_as_a_loss_leaves_time_for_a_new_start() -> None:
    """Instances live five hours: after a loss a whole run would be too late, and the rest of one is not."""
    without, saved = asked("+12h", spot_hours=5.0), asked("+12h,checkpoint=10min", spot_hours=5.0)
    never = asked("+12h").values()["last_start_in"]
    assert without.values()["last_start_in"] < saved.values()["last_start_in"] <= never
    assert asked("+2.5h", spot_hours=5.0).capacity == "on-demand"
    advice = asked("+2.5h,checkpoint=10min", spot_hours=5.0)
    assert advice.capacity == "spot"
    assert "goes on from its last checkpoint" in explanation(advice)
    # a start, and an hour of work, are more than there is time for
    assert asked("+2.5h,checkpoint=1h", spot_hours=5.0).capacity == "on-demand"


def test_with_checkpoints_little_is_paid_twice() -> None:
    once = asked("+2.4h").values()["worst_cost"]
    twice = asked("+2.4h,checkpoint=10min", spot_hours=10_000.0).values()["worst_cost"]
    assert once < twice < 1.1 * once


def rest_is_in_time(left: float, *, kept: float, hours: float = 5.0, saves: str = "10min") -> bool:
    """A job of an hour or two that has lost its instance, with so much time until its deadline."""
    lasts = tuple(math.exp(-each / hours) if hours else 0.0 for each in LASTS_HOURS)
    cloud = CloudState(
        on_demand_usd_per_core_hour=0.05,
        spot_open=True,
        spot_pools=(SpotPool(key="spot|a", usd_per_hour=0.06, lasts=lasts),) if hours else (),
        processors_per_node=4,
    )
    return leaves_time(
        make_job(comment=f"by=+3h,checkpoint={saves}", requested_time=LIMIT, interruptions=1),
        ended_of(np.array(estimates(HOUR).run_chances)),
        left=left,
        kept=kept,
        slowdown=1.0,
        cloud=cloud,
        settings=settings(),
    )


def test_after_a_loss_spot_is_tried_again_while_one_more_leaves_time() -> None:
    rest = 2 * HOUR - 1800.0
    assert rest_is_in_time(rest + 1500.0, kept=1800.0)  # for two starts and ten minutes; bins are wide
    assert not rest_is_in_time(rest + 900.0, kept=1800.0)
    assert rest_is_in_time(rest + 900.0, kept=2700.0)  # more of it is done
    assert not rest_is_in_time(2 * HOUR + 1500.0, kept=0.0, saves="30min")
    assert not rest_is_in_time(9 * HOUR, kept=1800.0, hours=0.0)  # how long instances last is not known


@pytest.mark.parametrize(("spare", "may"), [(2 * 900.0, True), (2 * 900.0 - 300.0, False)])
def test_a_new_start_leaves_time_for_itself_and_a_loss(spare: float, *, may: bool) -> None:
    """Each costs the work since the last checkpoint once: ten minutes, and five for the boot."""
    ended = np.zeros(len(GRID))
    ended[bin_of(4 * HOUR) :] = 1.0
    rest = float(GRID[bin_of(4 * HOUR)]) - HOUR
    found = may_start_anew(
        ended, left=1.5 * rest + spare, done=HOUR, slowdown=1.5, lost=900.0, confidence=0.95
    )
    assert found is may


def test_the_highest_cost_is_that_of_a_run_to_the_raised_limit() -> None:
    """The launch holds the money for that, once the limit is raised."""
    sure, unsure = (
        asked("+2.4h", ratios=PerformanceRatios(overhead=0.0, baseline=1.05, deviation=one, jobs=9))
        for one in (0.0, 0.25)
    )
    assert unsure.time_limit is not None
    assert unsure.time_limit.given_seconds > 1.25 * LIMIT
    usd_per_second = 4 * 0.05 / 3600.0
    longest = 120.0 + unsure.time_limit.given_seconds + ENDING_SECONDS
    assert unsure.values()["worst_cost"] == pytest.approx(usd_per_second * longest)
    assert sure.values()["predicted_cost"] == unsure.values()["predicted_cost"]


def test_a_start_on_spot_is_paid_with_the_start_that_a_loss_needs() -> None:
    once, on_spot = asked("+2.4h").values(), asked("+2.4h", spot_hours=10_000.0).values()
    assert on_spot["predicted_cost"] == pytest.approx(0.3 * once["predicted_cost"], rel=0.01)
    assert on_spot["worst_cost"] == pytest.approx(1.3 * once["worst_cost"])
    between = 1.1 * once["worst_cost"]
    assert asked("+2.4h", spot_hours=10_000.0, tokens=between).capacity == "on-demand"
    short = {"enabled": True, "usd_per_job": between}
    assert asked("+2.4h", spot_hours=10_000.0, promise=short).capacity == "on-demand"


def test_no_promise_is_kept_on_spot_that_may_not_be() -> None:
    for without in (
        asked("+2.4h", spot_hours=10_000.0, requeue=False),
        asked("+2.4h", spot_hours=10_000.0, interruptions=1),
        asked("+2.4h", spot_hours=10_000.0, capacity={"use_spot": False}),
        asked("+2.4h", spot_hours=10_000.0, capacity={"spot_by_survival": False}),
    ):
        assert (without.placement, without.capacity) == (Placement.BURST, "on-demand")


def test_it_keeps_its_place_if_the_site_and_its_user_allow_it() -> None:
    hedging = {"enabled": True}
    kept = asked("+2.4h", hedge=hedging).hedge
    assert kept is not None
    assert (kept.kind, kept.stop_seconds) == (HedgeKind.PROMISE, math.inf)
    recorded = parse_admin_comment(admin_comment(asked("+2.4h", hedge=hedging)))
    assert recorded is not None
    assert recorded.hedge == kept
    for without in (asked("+2.4h"), asked("+2.4h,no-hedge", hedge=hedging)):
        assert (without.placement, without.hedge) == (Placement.BURST, None)
    assert asked("+12h", hedge=hedging).hedge is None


def taken_for(hours: float, *, total: int = 8) -> dict[str, Any]:
    """All nodes of the cloud are taken for so long."""
    later = (NOW + hours * HOUR,) * total
    return {"rooms": {"": (Room(processors=4, free=0, later=later, total=total),)}}


def test_a_job_that_would_wait_in_the_cloud_as_well_is_to_start_there_earlier() -> None:
    free, taken = asked("+12h").values(), asked("+12h", cloud=taken_for(2.0)).values()
    assert taken["soonest_in"] == pytest.approx(free["soonest_in"] + 2 * HOUR)
    assert taken["last_start_in"] == pytest.approx(free["last_start_in"] - 2 * HOUR)
    assert asked("+2.4h", cloud=taken_for(2.0)).values()["chance_there"] == 0.0
    # no node is paid for while it waits
    assert taken["soonest_costs"] == free["soonest_costs"]
    later = asked("+4.4h", cloud=taken_for(2.0))
    assert later.values()["worst_cost"] == asked("+2.4h").values()["worst_cost"]


@pytest.mark.parametrize(
    ("by", "cloud"),
    [
        ("+6h", taken_for(5.0)),
        ("+6h", taken_for(0.0, total=0)),
        ("+12h", {"protected": "EC2 cannot be read"}),
    ],
)
def test_no_time_is_promised_that_only_a_cloud_without_nodes_could_keep(
    by: str, cloud: dict[str, Any]
) -> None:
    assert asked(by).values()["is_promised"] == 1.0
    advice = asked(by, cloud=cloud)
    assert (advice.placement, advice.values()["is_promised"]) == (Placement.ON_PREMISE, 0.0)
    assert asked("+40h", cloud=cloud).values()["is_promised"] == 1.0  # it is kept here


def test_a_job_that_may_not_move_and_cannot_be_kept_off_spot_is_promised_no_paid_time() -> None:
    on_spot_alone = {"nodes_with": MappingProxyType({"spot": 8.0})}
    assert asked("+12h", requeue=False, cloud=on_spot_alone).values()["is_promised"] == 0.0


def test_a_job_that_is_in_time_here_costs_nothing() -> None:
    advice = asked("+3h", wait=10.0)
    assert advice.decisive.reason in {Reason.PROMISE_HERE, Reason.PROMISE_WAITS}


def test_a_time_that_neither_can_keep_is_not_paid_for() -> None:
    assert asked("+10min").decisive.reason == Reason.PROMISE_HERE
    passed = make_job(submit_time=NOW - 2 * HOUR, comment="by=+1h", requested_time=LIMIT, queue="onprem")
    state = SiteState(time=NOW, cluster=CLUSTER, cloud=CloudState())
    advice = advise(passed, state, estimates(HOUR), settings(), advice_id="a")
    assert advice.decisive.reason == Reason.PROMISE_PASSED


@pytest.mark.parametrize(
    ("sections", "tokens", "reason"),
    [
        ({"promise": {"enabled": True, "usd_per_job": 0.5}}, 50.0, Reason.PROMISE_TOO_DEAR),
        ({"budget": {"usd": 0.0}}, 50.0, Reason.NO_BUDGET),
        ({}, 0.1, Reason.BUDGET_USED_UP),
    ],
)
def test_money_may_keep_it_here(sections: dict[str, Any], tokens: float, reason: Reason) -> None:
    advice = asked("+2.4h", tokens=tokens, **sections)
    assert advice.placement is Placement.ON_PREMISE
    assert advice.decisive.reason == reason


def test_without_the_setting_the_comment_means_nothing() -> None:
    assert "deadline_in" not in asked("+2.4h", promise={"enabled": False}).values()


def message(by: str, **given: Any) -> str:
    advice, job = asked(by, **given), make_job(submit_time=NOW, comment=f"by={by}")
    said = promise_message(job, advice, advice.values(), settings(), None)
    assert said is not None
    return said


def test_the_user_reads_the_price_list() -> None:
    said = message("18:00")
    assert said.startswith("Burst Advisor: done by 12:")
    assert " USD; by 1970-01-02 " in said
    assert said.endswith("free, in 95 of 100 cases; 18:00 is promised")
    assert message("+10min").endswith("cannot be promised")
    assert message("+40h").endswith("costs nothing")
    dear = message("18:00", promise={"enabled": True, "usd_per_job": 0.5})
    assert " USD, if it may start there; by 1970-01-02 " in dear
    assert dear.endswith("18:00 cannot be promised: for want of money or of nodes it may not start there")
    assert "if it may" not in said


def test_a_user_to_whom_nothing_is_promised_reads_why() -> None:
    assert message("18:00", explicit_partition=True) == (
        "Burst Advisor: nothing is promised. The user named the partition onprem; it is not changed."
    )


def test_a_time_of_the_list_can_be_named() -> None:
    """It is written without seconds: the minute before the soonest end would be refused."""
    values = {
        "deadline_in": 1e6,
        "soonest_in": 90.0,
        "soonest_costs": 1.0,
        "free_in": 120.0,
        "confidence": 0.95,
    }
    said = price_list_words(values, 36_000.0 + 5.0, UTC)  # 10:00:05
    assert said is not None
    assert said.startswith("done by 10:02 for about 1.00 USD; by 10:03 free,")
    said = price_list_words(
        values, 36_000.0 - 30.0, timezone(timedelta(hours=1))
    )  # 10:59:30 by the users' clock
    assert said is not None
    assert said.startswith("done by 11:01 for about 1.00 USD; by 11:02 free,")


def test_the_user_is_told_that_the_time_has_passed() -> None:
    assert message("1969-12-31T18:00").endswith("; 1969-12-31 18:00 has passed")


def test_the_user_is_told_what_is_no_time() -> None:
    assert "write by=18:00" in message("soon")


@pytest.mark.parametrize(("by", "tasks"), [("soon", 1), ("+3h", 4)])
def test_a_moved_job_of_whom_nothing_is_promised_is_told_of_the_move_first(by: str, tasks: int) -> None:
    job = make_job(submit_time=NOW, comment=f"by={by}", array_tasks=tasks)
    said = promise_message(job, asked("+2.4h"), {}, settings(), "Burst Advisor: moved to burst")
    assert said is not None
    assert said.startswith("Burst Advisor: moved to burst. ")


def test_the_user_is_told_that_the_site_makes_no_promises() -> None:
    job, off = make_job(submit_time=NOW, comment="by=18:00"), settings(promise={"enabled": False})
    advice = asked("18:00", promise={"enabled": False})
    assert promise_message(job, advice, {}, off, None) == (
        "Burst Advisor: by= is promised nothing: this site makes no promises"
    )
    assert promise_message(job, advice, {}, off, "Burst Advisor: moved to burst") is None
    assert promise_message(make_job(comment="standby"), advice, {}, off, None) is None


def test_the_row_that_was_promised_is_known_when_the_job_has_ended() -> None:
    assert kind_of(asked("+12h").values(), has_moved=False) is Kind.BETWEEN
    assert kind_of(asked("+40h").values(), has_moved=False) is Kind.FREE
    soonest = {"deadline_in": 7_920.0, "is_promised": 1.0, "free_in": 9_000.0, "soonest_in": 7_920.5}
    assert kind_of(soonest, has_moved=False) is Kind.SOONEST
    assert kind_of(asked("+40h").values(), has_moved=True) is Kind.BETWEEN
    assert kind_of(asked("+10min").values(), has_moved=False) is None
    assert kind_of(asked("+10min").values(), has_moved=True) is None
    # what may not be paid is not promised, unless it costs nothing
    poor = {"promise": {"enabled": True, "usd_per_job": 0.5}}
    assert kind_of(asked("+12h", **poor).values(), has_moved=False) is None
    assert kind_of(asked("+40h", **poor).values(), has_moved=False) is Kind.FREE
    assert kind_of({"deadline_in": math.nan}, has_moved=False) is None
