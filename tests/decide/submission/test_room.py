"""First-day finding 2: with room here a job stays, by whatever rule."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from advisor.decide.explanation.wording import sentence
from advisor.decide.submission.advise import advise
from advisor.decide.submission.room import room_here
from advisor.model import Job, Placement
from advisor.model.estimate import Estimate, Estimates
from advisor.model.settings import ClusterSettings, HedgeSettings, PlacementSettings, Settings
from advisor.model.site import FreeNodes, SiteState
from tests.decide.cases import CLUSTER, make_cloud, make_job

IDLE = replace(
    CLUSTER, queue_size=0, queued_work_core_seconds=0.0, free_processors=64, waiting_mean_processors=0.0
)
LONG_WAIT = Estimate(
    seconds=7200.0, variance=1.0, lower=7200.0, upper=7200.0, neighbours=9, quantiles=(7200.0,)
)
SHORT_RUN = Estimate(seconds=60.0, variance=1.0, lower=60.0, upper=60.0, neighbours=9, quantiles=(60.0,))
FORECAST = Estimates(wait=LONG_WAIT, run=SHORT_RUN)


def reason(job: Job, cluster: Any = IDLE, room: Any = None, **placement: Any) -> tuple[str, Placement]:
    settings = Settings(
        cluster=ClusterSettings(policy="advisor"),
        placement=PlacementSettings(**placement),
        hedge=HedgeSettings(enabled=True),
    )
    state = SiteState(time=1000.0, cluster=cluster, cloud=make_cloud(), free_nodes=room)
    advice = advise(job, state, FORECAST, settings, advice_id="a")
    return advice.decisive.reason, advice.placement


@pytest.mark.parametrize("rule", ["published", "advisor"])
def test_day_one_2_with_room_here_a_job_stays_by_any_rule(rule: str) -> None:
    job = make_job(processors=4)
    assert reason(job, rule=rule) == ("turnaround.room_here", Placement.ON_PREMISE)
    assert reason(job, rule=rule, stay_where_room=False)[1] is Placement.BURST
    full = replace(IDLE, free_processors=3)
    assert reason(job, full, rule=rule)[1] is Placement.BURST


@pytest.mark.parametrize(
    ("free", "queue", "tasks", "stays"),
    [(4, 0, 1, True), (3, 0, 1, False), (64, 1, 1, False), (64, 0, 16, True), (64, 0, 17, False)],
)
def test_day_one_2_processors_for_all_tasks_are_free_and_nobody_waits(
    *, free: int, queue: int, tasks: int, stays: bool
) -> None:
    cluster = replace(IDLE, free_processors=free, queue_size=queue, waiting_mean_processors=float(queue))
    found, _ = reason(make_job(processors=4, array_tasks=tasks), cluster)
    assert (found == "turnaround.room_here") is stays


STANDARD = FreeNodes(nodes=4, processors=8, memory_mb=0, features=("x86",), partitions=("onprem",))
BIG = FreeNodes(
    nodes=2, processors=16, memory_mb=64_000, features=("x86", "big"), partitions=("big", "onprem")
)


@pytest.mark.parametrize(
    ("asked", "stays"),
    [
        ({"processors": 4}, True),
        ({"processors": 64}, True),
        ({"processors": 16, "nodes": 2}, True),
        ({"processors": 24, "nodes": 2}, True),
        ({"processors": 48, "nodes": 3}, False),  # two nodes have sixteen
        ({"processors": 8, "nodes": 7}, False),
        ({"processors": 4, "features": ("big",)}, True),
        ({"processors": 4, "features": ("arm",)}, False),
        ({"processors": 33, "features": ("big",)}, False),
        ({"processors": 4, "features": ("x86", "arm"), "plain_constraint": False}, False),
        ({"processors": 4, "memory_mb_per_node": 32_000, "memory_mb": 32_000}, True),
        ({"processors": 4, "memory_mb_per_node": 65_000, "memory_mb": 65_000}, False),
        ({"processors": 32, "nodes": 2, "memory_mb": 128_000}, True),
        ({"processors": 32, "memory_mb": 128_001}, False),
        ({"processors": 4, "queue": "big"}, True),
        ({"processors": 4, "queue": "other"}, False),
        ({"processors": 33, "queue": "big,other"}, False),
        ({"processors": 4, "queue": "big", "array_tasks": 8}, True),
        ({"processors": 4, "queue": "big", "array_tasks": 9}, False),  # the free rest is of another partition
    ],
)
def test_day_one_2_the_nodes_must_be_what_the_job_asks_for(*, asked: dict[str, Any], stays: bool) -> None:
    job = make_job(**{"queue": "onprem", **asked})
    state = SiteState(time=1000.0, cluster=IDLE, free_nodes=(STANDARD, BIG))
    assert (room_here(job, state) is not None) is stays
    assert room_here(job, replace(state, free_nodes=())) is None


def test_day_one_2_a_job_that_stays_by_room_is_told_so() -> None:
    state = SiteState(time=1000.0, cluster=IDLE)
    answer = room_here(make_job(processors=4), state)
    assert answer is not None
    assert (
        sentence(answer)
        == "It can start here at once: 64 cores are free, no job waits, and it asks for 4 cores."
    )
    assert room_here(make_job(processors=4), replace(state, cluster=None)) is None
    assert math.isfinite(answer.numbers[0][1].value)
