"""A job starts no sooner than enough nodes have room for it, whatever all of them have free together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from advisor.model.job import Job
from advisor.model.machine import PartitionTerms, Sharing
from advisor.model.snapshot import QueuedJob
from advisor.service.price.queue_view import OnPremiseQueue, forecast_waits, on_premise_queue, seen_queues
from advisor.service.submit.recent import QueueForecast
from advisor.service.submit.state_holder import profiles_of
from advisor.simulate.pool.start_profile import NODE_COLUMNS, NODE_SLOTS, no_sooner
from tests.decide.cases import make_settings
from tests.service.doubles import make_look, make_node, make_queued
from tests.service.site import make_snapshot

NOW = 1_800_000_000.0
HOUR = 3600.0
NODES = tuple(
    make_node(f"n{n}", memory_mb=16_000, partitions=("cpu", "big") if n == 4 else ("cpu",))
    for n in range(1, 5)
)
"""Four nodes of four processors and 16,000 MiB."""


def busy(job_id: int, nodes: str, hours: float, processors: int = 1, memory: int = 9000) -> QueuedJob:
    run: dict[str, Any] = {"start_time": NOW, "requested_time": hours * HOUR, "nodes": nodes}
    found = make_queued(job_id, "RUNNING", queue="cpu", processors=processors, **run)
    number = 4 if nodes == "n[1-4]" else 1
    return replace(found, memory_mb=memory, job=structs.replace(found.job, nodes=number))


def waits(job_id: int, memory: int = 0, **job: Any) -> QueuedJob:
    return replace(make_queued(job_id, queue="cpu", requested_time=HOUR, **job), memory_mb=memory)


EACH_HAS_ONE = tuple(busy(n, f"n{n}", hours=float(n)) for n in range(1, 5))


def queue_of(*jobs: QueuedJob, memory: bool = True, **terms: Any) -> OnPremiseQueue:
    sharing = Sharing(memory=memory, partitions={"cpu": PartitionTerms(**terms)})
    look = replace(make_look(NOW, NODES, jobs), sharing=sharing)
    return on_premise_queue(look, make_settings(cluster={"on_premise_partitions": ["cpu", "big"]}))


def wait_of(seen: OnPremiseQueue, **asked: Any) -> float:
    """Hours that the submit server says of a job that comes now."""
    snapshot = replace(make_snapshot(NOW), queues=seen_queues(seen))
    usual = {"job_id": 0, "submit_time": NOW, "queue": "cpu", "processors": 1, "requested_time": HOUR}
    job = Job(**{**usual, **asked})
    return QueueForecast(snapshot.queues, profiles_of(snapshot)).waits(job, NOW)[0] / HOUR


@pytest.mark.parametrize(
    ("asked", "hours"),
    [
        ({"processors": 4}, 0.0),  # one on each
        ({"processors": 4, "node_processors": 4}, 1.0),  # -n4 -N1
        ({"processors": 8, "node_processors": 4, "nodes": 2}, 2.0),
        ({"memory_mb": 12_000, "memory_mb_per_node": 12_000}, 1.0),
        ({"memory_mb": 6_000, "memory_mb_per_node": 6_000}, 0.0),
        ({"processors": 3, "memory_mb": 18_000}, 0.0),  # 6,000 for each, on three nodes
        ({"processors": 3, "memory_mb": 30_000}, 1.0),
        ({"whole_nodes": True}, 1.0),
        ({"whole_nodes": True, "processors": 3, "nodes": 3}, 3.0),
        ({"whole_nodes": True, "queue": "big"}, 4.0),  # its one node
        ({"node_processors": 5, "processors": 5}, 0.0),  # on no node that is usable: nothing is known
    ],
)
def test_a_job_waits_for_room_on_a_node(asked: dict[str, Any], hours: float) -> None:
    assert wait_of(queue_of(*EACH_HAS_ONE), **asked) == hours


def test_memory_that_is_not_shared_out_is_not_waited_for() -> None:
    queue = queue_of(*EACH_HAS_ONE, memory=False)
    assert wait_of(queue, memory_mb=12_000, memory_mb_per_node=12_000) == 0.0
    assert wait_of(queue, processors=4, node_processors=4) == 1.0


def test_partitions_of_whole_nodes_wait_for_empty_ones() -> None:
    assert wait_of(queue_of(*EACH_HAS_ONE, whole_nodes=True)) == 1.0


def test_jobs_that_wait_are_known_by_what_squeue_shows() -> None:
    waiting = [
        waits(10, processors=1, memory=12_000),
        waits(11, processors=2, memory=12_000),
        waits(12, processors=4, whole_nodes=True),
    ]
    found = forecast_waits(queue_of(*EACH_HAS_ONE, *waiting))
    assert [found[number] / HOUR for number in (10, 11, 12)] == [1.0, 0.0, 1.0]


def test_of_many_jobs_on_a_node_no_end_is_taken_to_be_later_than_it_is() -> None:
    """Six jobs have 2,000 MiB on each node: the ends of four are told apart, two end with the one before."""
    jobs = [busy(n, "n[1-4]", float(n), processors=4, memory=8_000) for n in range(1, 7)]
    assert NODE_SLOTS == 4
    sizes = (6_000, 8_000, 10_000, 12_000, 14_000, 16_000)
    found = [wait_of(queue_of(*jobs), memory_mb=size, memory_mb_per_node=size) for size in sizes]
    assert found == [1.0, 2.0, 2.0, 4.0, 4.0, 6.0]
    assert wait_of(queue_of(*jobs), whole_nodes=True) == 6.0


@pytest.mark.parametrize(
    ("processors", "asked", "hours"),
    [
        (40, {"processors": 30, "node_processors": 30}, 0.0),  # 8 of 40 on one, and 32 on the other
        (72, {"processors": 8, "node_processors": 8}, 0.0),  # 32 and all
        (79, {"processors": 1, "memory_mb": 6000, "memory_mb_per_node": 6000}, 0.0),
        (79, {"processors": 1, "memory_mb": 6200, "memory_mb_per_node": 6200}, 1.0),
    ],
)
def test_how_a_job_is_spread_over_its_nodes_is_not_known(
    processors: int, asked: dict[str, Any], hours: float
) -> None:
    nodes = tuple(replace(NODES[0], name=f"n{n}", processors=40, partitions=("cpu",)) for n in (1, 2))
    job = busy(1, "n[1-2]", 1.0, processors=processors, memory=20_000)
    job = replace(job, job=structs.replace(job.job, nodes=2))
    look = replace(make_look(NOW, nodes, (job,)), sharing=Sharing(memory=True, partitions={}))
    queue = on_premise_queue(look, make_settings(cluster={"on_premise_partitions": ["cpu"]}))
    assert wait_of(queue, **asked) == hours


def test_one_long_job_beside_many_short_ones_keeps_no_job_from_the_node() -> None:
    """Forty jobs of one processor fill the node; all but one end within the hour."""
    node = replace(NODES[0], processors=40, partitions=("cpu",))
    jobs = [busy(n, "n1", 1.0 if n < 40 else 168.0, memory=0) for n in range(1, 41)]
    look = make_look(NOW, (node,), jobs)
    queue = on_premise_queue(look, make_settings(cluster={"on_premise_partitions": ["cpu"]}))
    assert wait_of(queue, processors=8, node_processors=8) == 1.0
    assert wait_of(queue, processors=40, node_processors=40) == 168.0


@given(st.integers(0, 10_000))
def test_as_by_hand(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = np.zeros((6, NODE_COLUMNS))
    nodes[:, 0], nodes[:, 1] = rng.integers(1, 3, 6), rng.integers(0, 4, 6)
    nodes[:, 2], nodes[:, 3] = rng.integers(0, 4, 6), rng.integers(0, 40, 6)
    for k in range(4, NODE_COLUMNS, 3):
        before = nodes[:, k - 3] if k > 4 else 100.0
        nodes[:, k] = before + rng.integers(1, 50, 6)
        nodes[:, k + 1], nodes[:, k + 2] = rng.integers(1, 4, 6), rng.integers(0, 40, 6)
    mask, count, whole = int(rng.integers(0, 3)), int(rng.integers(1, 5)), bool(rng.integers(0, 2))
    processors, memory = float(rng.integers(1, 10)), float(rng.integers(0, 80))
    found = no_sooner(nodes, np.array([mask, count, processors, memory, whole], np.float64), 100.0)
    ends = sorted({100.0, *(nodes[:, 4::3].ravel().tolist())})

    def enough(time: float) -> bool:
        number = 0.0
        for node in nodes:
            over = [k for k in range(4, NODE_COLUMNS, 3) if node[k] <= time]
            has = node[2] + sum(node[k + 1] for k in over), node[3] + sum(node[k + 2] for k in over)
            is_empty = len(over) == NODE_SLOTS
            fits = has[0] >= processors and has[1] >= memory and (is_empty or not whole)
            number += node[0] if fits and int(node[1]) & mask == mask else 0.0
        return number >= count

    assert found == next((time for time in ends if enough(time)), np.inf)
