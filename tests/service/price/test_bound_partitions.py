"""Jobs of partitions that have some of a machine's nodes wait for those, and keep no others from the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from advisor.model.cluster import Node
from advisor.model.job import Job
from advisor.model.machine import Asked, Subset
from advisor.model.snapshot import QueuedJob
from advisor.replay.closed_loop.log import loop_jobs
from advisor.replay.closed_loop.world import Policy, World, WorldOptions
from advisor.replay.sources import load_table
from advisor.service.observation.site_view import cluster_state
from advisor.service.price.queue_view import OnPremiseQueue, forecast_waits, on_premise_queue, seen_queues
from advisor.service.submit.recent import QueueForecast
from advisor.service.submit.state_holder import profiles_of
from tests.decide.cases import make_settings
from tests.service.doubles import make_look, make_node, make_queued
from tests.service.site import make_snapshot

NOW = 1_800_000_000.0
HOUR = 3600.0
PARTITIONS = ("cpu", "big", "all", "gpu")
SMALL = tuple(make_node(f"c{n}", partitions=("cpu", "all")) for n in range(1, 9))
BIG = tuple(make_node(f"b{n}", partitions=("cpu", "big", "all")) for n in (1, 2))
GPU = (make_node("g1", partitions=("gpu", "all")), make_node("g2", "DOWN", partitions=("gpu", "all")))


def busy(job_id: int, nodes: str, processors: int = 4, hours: float = 1.0) -> QueuedJob:
    run: dict[str, Any] = {"start_time": NOW, "requested_time": hours * HOUR, "nodes": nodes}
    return make_queued(job_id, "RUNNING", queue="cpu", processors=processors, **run)


def waits(job_id: int, *partitions: str, **changes: Any) -> QueuedJob:
    job: dict[str, Any] = {"processors": 4, "requested_time": HOUR, "reason": "Resources"} | changes
    return make_queued(job_id, queue=partitions[0], partitions=partitions, **job)


def queue_of(*jobs: QueuedJob, ours: tuple[str, ...] = PARTITIONS) -> OnPremiseQueue:
    nodes = tuple(node for node in (*SMALL, *BIG, *GPU) if not set(ours).isdisjoint(node.partitions))
    return on_premise_queue(
        make_look(NOW, nodes, jobs), make_settings(cluster={"on_premise_partitions": list(ours)})
    )


def wait_of_new_job(queue: OnPremiseQueue, partition: str, **changes: Any) -> float:
    """What the submit server says of a job that comes now."""
    snapshot = replace(make_snapshot(NOW), queues=seen_queues(queue))
    usual = {"job_id": 0, "submit_time": NOW, "queue": partition, "processors": 4, "requested_time": HOUR}
    job = Job(**{**usual, **changes})
    return QueueForecast(snapshot.queues, profiles_of(snapshot)).waits(job, NOW)[0]


def test_subsets_are_the_nodes_of_partitions_that_have_not_all() -> None:
    (machine,) = queue_of().machines
    assert machine.partitions == PARTITIONS
    assert set(machine.subsets) == {
        Subset(("cpu", "big"), size=40, nodes=10),
        Subset(("big",), size=8, nodes=2),
        Subset(("gpu",), size=4, nodes=1),
    }
    assert queue_of(ours=("cpu",)).machines[0].subsets == ()


def test_jobs_that_wait_for_few_nodes_keep_no_job_from_the_others() -> None:
    """Thirty jobs wait for two full nodes; eight others are idle, and a job of theirs starts at once."""
    behind = [waits(n, "big", requested_time=20 * HOUR) for n in range(10, 40)]
    queue = queue_of(busy(1, "b1"), busy(2, "b2"), *behind, waits(50, "cpu"))
    found = forecast_waits(queue)
    assert [found[10], found[11], found[12], found[50]] == [HOUR, HOUR, 21 * HOUR, 0.0]
    assert wait_of_new_job(queue, "cpu") == 0.0
    assert wait_of_new_job(queue, "big") == 301 * HOUR


@pytest.mark.parametrize(
    ("partition", "wait"), [("cpu", HOUR), ("big", 2 * HOUR), ("all", 0.0), ("gpu", 0.0)]
)
def test_a_job_does_not_start_on_nodes_of_other_partitions(partition: str, wait: float) -> None:
    """All nodes of two partitions are full, and a GPU node is idle."""
    full = [busy(n, f"c{n}") for n in range(1, 9)]
    queue = queue_of(*full, busy(9, "b[1-2]", processors=8, hours=2.0))
    assert wait_of_new_job(queue, partition) == wait
    assert forecast_waits(queue_of(*full, busy(9, "b[1-2]", 8, 2.0), waits(20, partition))) == {20: wait}


def test_a_job_of_several_partitions_may_start_in_any() -> None:
    full = busy(1, "b[1-2]", processors=8)
    assert wait_of_new_job(queue_of(full), "big,cpu") == 0.0
    assert forecast_waits(queue_of(full, waits(2, "big", "cpu"), waits(3, "big"))) == {2: 0.0, 3: HOUR}


def test_a_job_of_partitions_of_two_machines_is_bound_to_its_partition_on_each() -> None:
    """The nodes of both are full; the idle ones are of other partitions of the first machine."""
    nodes = (*SMALL, *BIG, *GPU, make_node("x1", partitions=("extra",)))
    settings = make_settings(cluster={"on_premise_partitions": [*PARTITIONS, "extra"]})
    full = (busy(1, "b[1-2]", processors=8), replace(busy(2, "x1", hours=2.0), partitions=("extra",)))
    queue = on_premise_queue(make_look(NOW, nodes, (*full, waits(3, "big", "extra"))), settings)
    assert len(queue.machines) == 2
    assert forecast_waits(queue) == {3: HOUR if queue.places[3] == 0 else 2 * HOUR}
    assert wait_of_new_job(on_premise_queue(make_look(NOW, nodes, full), settings), "extra,big") == HOUR


def test_a_job_with_whole_nodes_takes_whole_nodes_of_its_subset() -> None:
    (machine,) = queue_of().machines
    place = (
        len(machine.sizes) - len(machine.subsets) + [s.partitions for s in machine.subsets].index(("big",))
    )
    assert machine.needs(Asked(1, nodes=2, partition="big", whole_nodes=True))[place] == 8
    assert machine.needs(Asked(5, partition="big"))[place] == 5
    assert machine.needs(Asked(5, partition="cpu"))[place] == 0
    assert machine.needs(Asked(9, partition="big"))[place] == 8


def test_jobs_of_a_partition_that_is_not_ours_hold_our_nodes_while_they_run() -> None:
    """A job of another partition has three of the four processors of each of ten nodes, and two elsewhere."""
    other = make_queued(
        9, "RUNNING", queue="scavenger", processors=36, start_time=NOW, requested_time=HOUR,
        nodes="b[1-2],c[1-8],x[1-2]",
    )  # fmt: skip
    other = replace(other, job=structs.replace(other.job, nodes=12))
    queue = queue_of(other, waits(20, "cpu"), ours=("cpu", "big"))
    assert queue.lost == {9: 2}
    assert forecast_waits(queue) == {20: 0.0}  # each node has one left: that nodes are full is not known
    assert forecast_waits(queue_of(other, waits(20, "cpu", processors=11), ours=("cpu", "big"))) == {20: HOUR}
    assert wait_of_new_job(queue_of(other, ours=("cpu", "big")), "big") == HOUR
    apart = queue_of(other, waits(20, "big"), waits(21, "gpu"), ours=("cpu", "big", "gpu"))
    assert (len(apart.machines), apart.place_of(other)) == (2, 0)
    settings = make_settings(cluster={"on_premise_partitions": ["cpu", "big"]})
    seen = cluster_state(make_look(NOW, (*SMALL, *BIG), (other,)), settings)
    assert (seen.total_processors, seen.free_processors) == (40, 10)


def test_of_such_a_job_its_nodes_that_take_no_other_job_count_once() -> None:
    """Of twelve nodes one of ours is drained, and both of the others."""
    other = make_queued(
        9, "RUNNING", queue="scavenger", processors=48, start_time=NOW, requested_time=HOUR,
        nodes="b[1-2],c[1-8],x[1-2]",
    )  # fmt: skip
    other = replace(other, job=structs.replace(other.job, nodes=12))
    drained = frozenset({"ALLOCATED", "DRAIN"})
    beside = (make_node(f"x{n}", partitions=("scavenger",)) for n in (1, 2))
    nodes = (*SMALL, BIG[0], *(replace(node, states=drained) for node in (BIG[1], *beside)))
    settings = make_settings(cluster={"on_premise_partitions": ["cpu", "big"]})
    look = make_look(NOW, nodes, (other, waits(20, "cpu")))
    assert on_premise_queue(look, settings).lost == {9: 3}
    assert forecast_waits(on_premise_queue(look, settings)) == {20: HOUR}
    seen = cluster_state(look, settings)
    assert (seen.total_processors, seen.free_processors) == (36, 0)


FAST = tuple(replace(node, features=("x86", "fast")) for node in SMALL[:2])
SLOW = tuple(replace(node, features=("x86",)) for node in SMALL[2:])


def queue_of_nodes(nodes: tuple[Node, ...], *jobs: QueuedJob) -> OnPremiseQueue:
    return on_premise_queue(
        make_look(NOW, nodes, jobs), make_settings(cluster={"on_premise_partitions": ["cpu"]})
    )


def test_jobs_that_ask_for_a_feature_keep_no_job_from_nodes_without_it() -> None:
    """And wait themselves, although others would start at once."""
    behind = [waits(n, "cpu", requested_time=20 * HOUR, features=("x86", "fast")) for n in range(10, 20)]
    queue = queue_of_nodes((*FAST, *SLOW), busy(1, "c1"), busy(2, "c2"), *behind)
    assert [part.words for part in queue.machines[0].subsets] == [("fast",)]
    assert wait_of_new_job(queue, "cpu") == 0.0
    assert wait_of_new_job(queue, "cpu", features=("fast",)) == 101 * HOUR
    assert wait_of_new_job(queue, "cpu", features=("fast", "x86"), plain_constraint=False) == 0.0
    assert forecast_waits(queue)[10] == HOUR


def test_jobs_that_name_nodes_keep_no_job_from_others() -> None:
    behind = [waits(n, "cpu", requested_time=20 * HOUR, node_list="c1") for n in range(10, 20)]
    queue = queue_of_nodes(SMALL, busy(1, "c1"), *behind, waits(20, "cpu", node_list="c[1"))
    assert wait_of_new_job(queue, "cpu") == 0.0
    assert forecast_waits(queue)[19] == 181 * HOUR


def test_of_jobs_that_name_many_nodes_those_that_most_jobs_name_count() -> None:
    """All are of a partition that has one node less than the machine."""
    nodes = tuple(make_node(f"n{n}", partitions=("cpu", "all") if n else ("all",)) for n in range(200))
    jobs = [waits(n + 10, "cpu", node_list=f"n{n}") for n in range(200)]
    jobs.append(waits(900, "cpu", node_list="n150"))
    settings = make_settings(cluster={"on_premise_partitions": ["cpu", "all"]})
    (machine,) = on_premise_queue(make_look(NOW, nodes, jobs), settings).machines
    first, second, *others = machine.subsets
    assert (first.partitions, len(first.words)) == (("cpu",), 63)  # that of n0 is not among them
    assert (second.words, len(others)) == (("nodes:n150",), 6)


def test_a_job_that_has_other_nodes_beside_those_that_it_names_waits_for_all_of_these() -> None:
    asks = {"processors": 8, "node_list": "c1"}
    queue = queue_of_nodes(SMALL, busy(1, "c1"), waits(10, "cpu", **asks), waits(11, "cpu", **asks))
    assert forecast_waits(queue) == {10: HOUR, 11: 2 * HOUR}


def test_a_job_that_needs_nodes_of_its_partition_that_are_down_does_not_wait_for_ever() -> None:
    """Nothing tells when they come back; it waits for the others at least."""
    nodes = (*SMALL, BIG[0], replace(BIG[1], states=frozenset({"IDLE", "DRAIN"})))
    settings = make_settings(cluster={"on_premise_partitions": list(PARTITIONS)})
    both = waits(10, "big", processors=8)
    assert forecast_waits(on_premise_queue(make_look(NOW, nodes, (busy(1, "b1"), both)), settings)) == {
        10: HOUR
    }


def test_types_of_gpus_are_told_apart() -> None:
    cards = {"a100": ("g1", 4), "v100": ("g2", 2)}
    nodes = tuple(
        replace(make_node(name, partitions=("cpu",)), gpus=number, gpu_types=(kind,))
        for kind, (name, number) in cards.items()
    )
    full = replace(busy(1, "g2", processors=1), gpus=2)
    asks = {"processors": 1, "gpus": 1, "gres": "gpu:v100:1"}
    queue = queue_of_nodes(nodes, full, waits(2, "cpu", **asks))
    assert forecast_waits(queue) == {2: HOUR}
    assert [part.words for part in queue.machines[0].subsets] == [("gpu:v100",)]
    assert wait_of_new_job(queue, "cpu", gres="gpu:a100:4", processors=1) == 0.0
    assert wait_of_new_job(queue, "cpu", gres="gpu:4", processors=1) == 0.0
    assert wait_of_new_job(queue, "cpu", gres="gpu:v100:2", processors=1) == 2 * HOUR


def test_a_node_with_several_types_of_gpus_may_run_jobs_of_each() -> None:
    nodes = tuple(
        replace(make_node(name, partitions=("cpu",)), gpus=4, gpu_types=kinds)
        for name, kinds in (("g1", ("a100",)), ("g2", ("a100", "v100")), ("g3", ()))
    )
    full = replace(busy(1, "g1", processors=1), gpus=4)
    queue = queue_of_nodes(nodes, full, waits(2, "cpu", processors=1, gpus=1, gres="gpu:a100:1"))
    assert forecast_waits(queue) == {2: 0.0}
    assert [(part.words, part.size) for part in queue.machines[0].subsets] == [(("gpu:a100",), 8)]


def test_what_ifs_bind_jobs_to_the_nodes_of_their_partition() -> None:
    """The job that waits for the two full nodes of a partition keeps the next one from no other node."""
    (machine,) = queue_of().machines
    rows = np.array([0, 1, 1, 0])
    table = load_table("synthetic:4:1")
    table = replace(
        table, submit=np.arange(4.0), wait=np.zeros(4), run=np.full(4, 100.0),
        requested_time=np.full(4, 100.0), processors=np.full(4, 8), held=np.zeros((0, 3)), queue=rows,
        names={**table.names, "queue": ("cpu", "big")}, total_processors=machine.processors,
    )  # fmt: skip
    jobs = loop_jobs(table).on_machines([machine])
    assert World(jobs, WorldOptions(), Policy()).run().end.tolist() == [100.0, 101.0, 201.0, 103.0]
    assert jobs.on_one_machine().pool().forecast(np.zeros(4)).shape == (4,)
