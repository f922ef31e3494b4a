"""Named predicates of nodes: Slurm's words as a real slurmctld shows them, and words nobody knows."""

from __future__ import annotations

import pytest

from advisor.model.cluster import ClusterState, Node, NodePower
from advisor.model.job import Job


def node(*states: str) -> Node:
    return Node(name="burst1", states=frozenset(states), processors=4, memory_mb=4000)


@pytest.mark.parametrize(
    ("states", "power"),
    [
        (("IDLE", "CLOUD"), NodePower.UP),
        (("MIXED", "CLOUD"), NodePower.UP),
        (("IDLE", "CLOUD", "POWERED_DOWN"), NodePower.DOWN),
        (("IDLE", "CLOUD", "POWER_DOWN"), NodePower.DOWN),
        (("ALLOCATED", "CLOUD", "POWER_DOWN"), NodePower.UP),  # will go down after its job
        (("ALLOCATED", "CLOUD", "POWERING_UP"), NodePower.POWERING_UP),
        (("IDLE", "CLOUD", "POWERING_DOWN"), NodePower.POWERING_DOWN),
        (("DOWN", "CLOUD"), NodePower.UNKNOWN),
        (("LEVITATING",), NodePower.UNKNOWN),
        ((), NodePower.UNKNOWN),
    ],
)
def test_power(states: tuple[str, ...], power: NodePower) -> None:
    assert node(*states).power is power


@pytest.mark.parametrize(
    ("states", "predicates"),
    [
        (("IDLE",), set()),
        (("IDLE", "CLOUD"), {"is_cloud"}),
        (("IDLE", "DRAIN"), {"is_draining"}),
        (("DOWN", "DRAIN", "NOT_RESPONDING"), {"is_down", "is_draining"}),
        (("FAIL", "CLOUD"), {"is_down", "is_cloud"}),
        (("ERROR",), {"is_down"}),
        (("ALLOCATED",), {"is_busy"}),
        (("MIXED", "DRAIN"), {"is_busy", "is_draining"}),
        (("IDLE", "COMPLETING"), {"is_busy"}),
        (("LEVITATING",), set()),
    ],
)
def test_what_a_node_is(states: tuple[str, ...], predicates: set[str]) -> None:
    asked = ("is_cloud", "is_down", "is_draining", "is_busy")
    assert {name for name in asked if getattr(node(*states), name)} == predicates


@pytest.mark.parametrize(("tasks", "left"), [(1, (100, 720_000.0)), (100, (1, 7200.0)), (102, (0, 0.0))])
def test_an_array_that_waits_does_not_wait_for_its_own_tasks(tasks: int, left: tuple[int, float]) -> None:
    state = ClusterState(
        time=0.0,
        queue_size=101,
        queued_work_core_seconds=100 * 2 * 3600.0 + 7200.0,
        remaining_work_core_seconds=0.0,
        free_processors=0,
        total_processors=64,
        running_jobs=0,
    )
    array = Job(job_id=1, submit_time=0.0, processors=2, requested_time=3600.0, array_tasks=tasks)
    found = state.without(array)
    assert (found.queue_size, found.queued_work_core_seconds) == left
