"""An advice that is said to hold for another job is the one that would be worked out for it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.advise import advise
from advisor.decide.submission.record import record_of
from advisor.decide.submission.repeated import Moved, may_be_repeated
from advisor.model import Advice, Capacity, Earned, Estimate, Estimates, Job, SiteState, SizeEstimate
from advisor.model.advice import Hedge, HedgeKind
from advisor.model.settings import Settings
from advisor.model.site import Room
from tests.decide.cases import CLUSTER, make_cloud, make_job, make_settings

_TAKES = (Reason.DAILY_CAP, Reason.ACCOUNT_CAP, Reason.EXPOSURE_TOO_LARGE)


@dataclass
class World:
    """A site between two looks: what moved jobs take is taken, and nothing else changes."""

    settings: Settings
    base: SiteState
    usd: float = 0.0
    by_account: dict[str, float] = field(default_factory=dict)
    reserved: int = 0
    at_risk: float = 0.0
    processors: int = 0

    def at(self, time: float) -> SiteState:
        record = self.base.record
        cloud = self.base.cloud.committed(self.usd, self.by_account, self.reserved, self.processors)
        if record is not None:
            record = replace(record, at_risk_seconds=record.at_risk_seconds + self.at_risk)
        return replace(self.base, time=time, cloud=cloud, record=record)

    def take(self, job: Job, advice: Advice) -> None:
        if advice.partition is None:
            return
        usd = advice.number("predicted_cost") or 0.0
        self.usd += usd
        self.processors += self.base.cloud.processors_taken_by(job)
        if job.account:
            self.by_account[job.account] = self.by_account.get(job.account, 0.0) + usd
        if advice.capacity is Capacity.RESERVED:
            self.reserved += job.array_tasks * self.base.cloud.nodes_at_most(job)
        if advice.hedge is None:
            self.at_risk += job.array_tasks * (advice.number("stake") or 0.0)


def drawn_rooms(draw: random.Random, free: int) -> dict[str, tuple[Room, ...]]:
    """A cloud with little room, or much; now and then nodes that may be spot are told apart."""

    def room(processors: int) -> Room:
        places = free * 8 // processors
        later = tuple(sorted(1000.0 + draw.uniform(-5.0, 3600.0) for _ in range(3)))
        return Room(processors=processors, free=places, later=later, total=places + 3)

    kinds = draw.choice((("",), ("", "spot", "on-demand")))
    return {kind: (room(1), room(8)) for kind in kinds}


def drawn_world(draw: random.Random) -> World:
    settings = make_settings(
        placement={
            "rule": draw.choice(("advisor", "advisor", "published")),
            "use_cutoff": False,
            "boot_seconds": 60.0,
            "exposure_share": draw.choice((0.05, 1.0)),
        },
        waiting={
            "daily_cap_usd": draw.choice((0.0, 0.0, 4.0, 20.0)),
            "account_daily_cap_usd": draw.choice(({}, {"physics": 3.0})),
        },
        hedge={"enabled": True, "by_default": draw.random() < 0.2},
        rules={"move_deferred": draw.random() < 0.5},
    )
    cloud = make_cloud(
        reserved_free_nodes=draw.choice((0, 0, 3, 30)),
        processors_per_node=draw.choice((0, 8)),
        on_demand_usd_per_core_hour=0.05,
        spot_open=draw.random() < 0.7,
        spent_today_usd=draw.choice((0.0, 1.0)),
        rooms=draw.choice(({}, {}, drawn_rooms(draw, 40), drawn_rooms(draw, 2))),
        promised_usd=draw.choice((0.0, 1.0)),
    )
    record = record_of(Earned(saved_seconds=draw.choice((1e5, 1e6, 1e8))), settings.placement)
    return World(
        settings,
        SiteState(
            time=1000.0,
            cluster=CLUSTER,
            cloud=cloud,
            record=draw.choice((record, record, None)),
            hedge_price=draw.choice((None, 0.1)),
        ),
    )


def drawn_job(draw: random.Random) -> Job:
    return make_job(
        processors=draw.choice((1, 4, 16)),
        requested_time=draw.choice((None, 1800.0, 7200.0)),
        explicit_time_limit=draw.random() < 0.5,
        account=draw.choice((None, "physics", "chemistry")),
        array_tasks=draw.choice((1, 1, 5)),
        requeue=draw.choice((None, True, False)),
        comment=draw.choice((None, None, "no-burst", "no-hedge")),
        deferred=draw.random() < 0.2,
    )


def drawn_estimates(draw: random.Random) -> Estimates:
    def estimate(mean: float) -> Estimate:
        times = tuple(sorted(mean * draw.uniform(0.5, 1.5) for _ in range(8)))
        return Estimate(seconds=sum(times) / 8, variance=1e4, quantiles=times)

    size = SizeEstimate(is_small=draw.random() < 0.5, probability_small=0.5, divider_seconds=300.0)
    return Estimates(
        wait=estimate(draw.choice((50.0, 7200.0, 7200.0))),
        run=estimate(draw.choice((300.0, 3600.0))),
        size=size,
    )


def test_it_is_the_advice_worked_out_anew() -> None:
    """Loops of three kinds of jobs at many sites, until their money, record or reserved nodes are used up."""
    draw = random.Random(9)
    held, met = 0, Counter[str]()
    for _ in range(300):
        world = drawn_world(draw)
        jobs, estimates = [drawn_job(draw) for _ in range(3)], [drawn_estimates(draw) for _ in range(3)]
        kept: dict[int, Moved] = {}
        for number in range(30):
            kind = draw.randrange(3)
            state = world.at(1000.0 + number)
            job = replace(jobs[kind], submit_time=state.time, name=f"run_{number}")
            anew = advise(job, state, estimates[kind], world.settings, advice_id=f"advice-{number}")
            before = kept.get(kind)
            if before is not None and before.holds_for(job, state):
                again = replace(before.advice, advice_id=anew.advice_id, time=state.time)
                assert again == anew
                held += 1
            elif may_be_repeated(anew):
                kept[kind] = Moved(anew, anew.values(), job, state, estimates[kind], world.settings)
            elif before is not None:
                met[anew.decisive.reason] += 1
            world.take(job, anew)
    assert held > 1_000, "most hold"
    assert all(met[reason] > 5 for reason in _TAKES), met


def moved(job: Job, **sections: Any) -> Moved:
    """An advice that moved a job by the advisor's own rule."""
    settings = make_settings(placement={"rule": "advisor", "boot_seconds": 60.0}, **sections)
    record = record_of(Earned(saved_seconds=1e7), settings.placement)
    state = SiteState(time=1000.0, cluster=CLUSTER, cloud=make_cloud(), record=record)
    estimates = drawn_estimates(random.Random(3))
    advice = advise(job, state, estimates, settings, advice_id="advice-1")
    assert may_be_repeated(advice)
    return Moved(advice, advice.values(), job, state, estimates, settings)


OTHER = {
    "job_id": 7,
    "processors": 5,
    "requested_time": 60.0,
    "nodes": 2,
    "memory_mb": 1,
    "memory_mb_per_node": 1,
    "features": ("x86",),
    "requeue": False,
    "array_tasks": 2,
    "interactive": True,
    "explicit_partition": True,
    "explicit_time_limit": True,
    "heterogeneous": True,
    "deferred": True,
    "plain_constraint": False,
    "interruptions": 1,
    "keeps_place_of": 3,
}


@pytest.mark.parametrize("said", sorted(set(Job.__struct_fields__) - {"submit_time", "name"}))
def test_it_holds_for_no_job_that_says_anything_else(said: str) -> None:
    before = moved(make_job())
    assert before.holds_for(replace(before.job, submit_time=1001.0, name="another"), before.state)
    job = replace(before.job, **{said: OTHER.get(said, "another")})
    assert job != before.job
    assert not before.holds_for(job, before.state)


def test_it_ends_when_a_job_joins_the_queue_and_when_nothing_is_believed() -> None:
    before = moved(make_job())
    assert before.holds_for(before.job, replace(before.state, time=1000.5))
    assert not before.holds_for(before.job, replace(before.state, cluster=replace(CLUSTER, queue_size=4)))
    assert not before.holds_for(before.job, replace(before.state, cluster=None))
    assert not before.holds_for(before.job, replace(before.state, record=None))


def test_it_ends_where_the_caps_begin() -> None:
    before = moved(make_job(account="physics"), waiting={"account_daily_cap_usd": {"physics": 10.0}})
    cost = before.values["predicted_cost"]
    for spent, holds in ((10.0 - 1.01 * cost, True), (10.0 - 0.99 * cost, False)):
        cloud = before.state.cloud.committed(spent, {"physics": spent}, 0)
        assert before.holds_for(before.job, replace(before.state, cloud=cloud)) is holds


def test_only_what_was_moved_for_good_is_repeated() -> None:
    advice = moved(make_job()).advice
    hedge = Hedge(kind=HedgeKind.HEDGE, stop_seconds=60.0)
    assert may_be_repeated(advice)
    assert not may_be_repeated(replace(advice, hedge=hedge))
    assert not may_be_repeated(replace(advice, partition=None))
