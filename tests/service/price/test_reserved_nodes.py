"""Forecast waits beside maintenance, other reservations, and nodes that are drained."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from advisor.model.cluster import Node
from advisor.model.job import Job
from advisor.model.machine import Sharing
from advisor.model.snapshot import QueuedJob, Reservation
from advisor.service.price.queue_view import OnPremiseQueue, forecast_waits, on_premise_queue, seen_queues
from advisor.service.submit import serve
from advisor.service.submit.recent import QueueForecast, Submission
from advisor.service.submit.state_holder import profiles_of
from advisor.simulate.pool import start_profile
from tests.decide.cases import make_settings
from tests.service.doubles import make_look, make_node, make_queued
from tests.service.site import make_snapshot

NOW = 1_800_000_000.0
HOUR = 3600.0


def node(name: str, *states: str, gpus: int = 0) -> Node:
    return make_node(name, *states, processors=8, memory_mb=1000, gpus=gpus, partitions=("cpu",))


FOUR = tuple(node(f"n{n}") for n in (1, 2, 3, 4))


def runs(job_id: int, nodes: str, count: int = 1, **changes: Any) -> QueuedJob:
    job = make_queued(job_id, "RUNNING", queue="cpu", start_time=NOW, requested_time=HOUR, **changes)
    return replace(job, nodes=nodes, job=structs.replace(job.job, nodes=count))


def waits(job_id: int, hours: float, **changes: Any) -> QueuedJob:
    return make_queued(job_id, queue="cpu", requested_time=hours * HOUR, reason="Resources", **changes)


def kept(names: str, begin: float, end: float, **changes: Any) -> Reservation:
    """Hours from now."""
    nodes = frozenset(names.split(","))
    return Reservation(name="kept", begin=NOW + begin * HOUR, end=NOW + end * HOUR, nodes=nodes, **changes)


def queue_of(
    *jobs: QueuedJob, nodes: tuple[Node, ...] = FOUR, reservations: tuple[Reservation, ...] = ()
) -> OnPremiseQueue:
    look = replace(make_look(NOW, nodes, jobs), reservations=reservations, sharing=Sharing(memory=True))
    return on_premise_queue(look, make_settings(cluster={"on_premise_partitions": ["cpu"]}))


def hours(queue: OnPremiseQueue) -> dict[int, float]:
    return {job: round(wait / HOUR, 3) for job, wait in forecast_waits(queue).items()}


def hours_of_new(queue: OnPremiseQueue, processors: int, limit: float) -> float:
    """The wait that the submit server forecasts."""
    snapshot = replace(make_snapshot(NOW), queues=seen_queues(queue))
    job = Job(job_id=9, submit_time=NOW, processors=processors, queue="cpu", requested_time=limit * HOUR)
    found = QueueForecast(snapshot.queues, profiles_of(snapshot)).waits(job, NOW)[0]
    return round(found / HOUR, 3)


ALL = "n1,n2,n3,n4"


def test_before_maintenance_only_jobs_start_that_end_by_then() -> None:
    queue = queue_of(
        waits(1, 4.0, processors=8),
        waits(2, 2.0, processors=8),
        waits(3, 1.0, processors=8),
        reservations=(kept(ALL, 2.5, 10.5),),
    )
    assert hours(queue) == {1: 10.5, 2: 0.0, 3: 0.0}
    assert hours_of_new(queue, 8, 3.0) == 10.5
    assert hours_of_new(queue, 16, 1.5) == 0.0
    assert hours_of_new(queue, 24, 1.5) == 1.0  # behind job 3
    assert hours_of_new(queue, 24, 1.6) == 10.5


def test_during_maintenance_of_some_nodes_the_others_take_jobs() -> None:
    active = (kept("n1,n2,n3", -1.0, 5.0),)
    queue = queue_of(runs(1, "n4", processors=6), waits(2, 1.0, processors=4), reservations=active)
    assert hours(queue) == {2: 1.0}
    assert hours_of_new(queue, 2, 99.0) == 0.0
    assert hours_of_new(queue, 9, 1.0) == 5.0


def test_a_job_that_runs_on_reserved_nodes_takes_nothing_from_the_others() -> None:
    """A reservation keeps the jobs that were there with ``ignore_jobs``, and has its own."""
    active = (kept("n1,n2,n3", -1.0, 5.0),)
    inside = runs(1, "n[2-3]", 2, processors=16), runs(2, "n[3-4]", 2, processors=8, reservation="kept")
    queue = queue_of(*inside, waits(3, 1.0, processors=5), waits(4, 1.0, processors=4), reservations=active)
    assert hours(queue) == {3: 1.0, 4: 0.0}


@pytest.mark.parametrize(("state", "waits_hours"), [("SUSPENDED", 0.0), ("STOPPED", 1.0)])
def test_a_suspended_job_leaves_its_processors_to_others(state: str, waits_hours: float) -> None:
    """As Slurm does at `scontrol suspend` and with ``PreemptMode=SUSPEND``; a stopped one keeps them."""
    there = replace(runs(1, ALL, 4, processors=32), state=state)
    assert hours(queue_of(there, waits(2, 2.0, processors=8))) == {2: waits_hours}


def test_jobs_that_have_a_reservation_do_not_wait_for_the_other_nodes() -> None:
    queue = queue_of(waits(1, 1.0, processors=32, reservation="kept"), reservations=(kept("n1", 1.0, 2.0),))
    assert hours(queue) == {}
    assert hours_of_new(queue, 32, 1.0) == 0.0


def test_a_reservation_of_cores_leaves_the_rest_of_its_nodes() -> None:
    cores = (kept("n1", 1.0, 3.0, processors=2),)
    queue = queue_of(reservations=cores)
    assert hours_of_new(queue, 30, 2.0) == 0.0
    assert hours_of_new(queue, 31, 2.0) == 3.0
    assert hours_of_new(queue, 31, 1.0) == 0.0
    drained = (node("n1"), node("n2", "DRAIN"), *FOUR[2:])
    both = (kept("n1,n2", 1.0, 3.0, processors=4),)
    assert hours_of_new(queue_of(nodes=drained, reservations=both), 22, 2.0) == 0.0


def test_a_reservation_of_the_nodes_with_gpus_keeps_jobs_that_need_one() -> None:
    nodes = (node("g1", gpus=4), node("n2"), node("n3"))
    queue = queue_of(waits(1, 2.0, gpus=1), waits(2, 2.0), nodes=nodes, reservations=(kept("g1", 1.0, 3.0),))
    assert hours(queue) == {1: 3.0, 2: 0.0}


def test_owners_who_keep_nodes_for_weeks_take_them_from_others() -> None:
    owners = (kept("n1", -100.0, 5000.0), kept("n2", -100.0, 4000.0), kept(ALL, 6000.0, 7000.0))
    queue = queue_of(runs(1, "n1", processors=8), waits(2, 1.0, processors=17), reservations=owners)
    assert queue.machines[0].processors == 32
    assert len(queue.reserved[0]) == 3
    assert hours(queue) == {2: 4000.0}
    assert hours_of_new(queue, 16, 1.0) == 0.0


def test_reservations_at_the_same_time_take_their_nodes_together_and_none_twice() -> None:
    both = (kept("n1,n2", -1.0, 3.0), kept("n3,n4", -2.0, 3.0))
    assert hours_of_new(queue_of(reservations=both), 1, 1.0) == 3.0
    same = (kept("n1,n2", 1.0, 3.0), kept("n1,n2,n3", 2.0, 4.0))
    assert hours_of_new(queue_of(reservations=same), 8, 9.0) == 0.0
    assert hours_of_new(queue_of(reservations=same), 9, 9.0) == 4.0
    assert hours_of_new(queue_of(reservations=same), 16, 2.0) == 0.0


@pytest.mark.parametrize("states", [("ALLOCATED", "DRAIN"), ("MIXED", "DRAIN"), ("DOWN",)])
def test_a_job_that_ends_on_a_drained_node_leaves_nothing_to_others(states: tuple[str, ...]) -> None:
    """Nodes 2 and 4 are idle, and job 2 has half of node 3: 8 + 8 + 4 processors are free."""
    nodes = (node("n1", *states), *FOUR[1:])
    jobs = runs(1, "n1", processors=8), runs(2, "n[1,3]", 2, processors=8)
    queue = queue_of(*jobs, nodes=nodes)
    assert hours_of_new(queue, 20, 1.0) == 0.0
    assert hours_of_new(queue, 21, 1.0) == 1.0
    assert hours_of_new(queue, 25, 1.0) == math.inf


def test_a_maintenance_behind_many_small_reservations_counts() -> None:
    many = tuple(kept("n1", begin, begin + 0.5) for begin in range(1, 20))
    queue = queue_of(reservations=(*many, kept(ALL, 15.0, 20.0)))
    assert len(queue.reserved[0]) == 5
    assert hours_of_new(queue, 8, 16.0) == 20.0
    assert hours_of_new(queue, 8, 14.0) == 0.0


def test_beside_a_reservation_as_many_jobs_are_looked_at_as_slurm_does() -> None:
    """The head waits for the end of a maintenance. 499 others are too long, too; the next one is not seen."""
    many = [waits(n, 9.0, processors=1) for n in range(1, 503)]
    jobs = (*many[:500], waits(501, 1.0), waits(502, 1.0))
    found = hours(queue_of(*jobs, reservations=(kept(ALL, 1.5, 2.5),)))
    assert (found[501], found[502] > 2.0) == (0.0, True)


def test_nothing_is_compiled_within_an_answer() -> None:
    """numba compiles for each type of its arguments, for seconds, and a read-only array is another type."""
    serve._load_compiled()
    functions: Any = (start_profile._start_of, start_profile._join)
    compiled = [set(function.signatures) for function in functions]
    for reservations in ((), (kept("n1", 1.0, 2.0),)):
        queue = queue_of(waits(1, 1.0, processors=32), reservations=reservations)
        snapshot = replace(make_snapshot(NOW), queues=seen_queues(queue))
        forecast = QueueForecast(snapshot.queues, profiles_of(snapshot))
        forecast.join(Submission(time=NOW, processors=2, requested_seconds=HOUR, queue="cpu"))
    assert [set(function.signatures) for function in functions] == compiled


def test_a_job_bound_to_nodes_that_are_reserved_waits_for_these() -> None:
    """Two of its partition's three nodes are reserved, and the machine has others that are idle."""
    nodes = tuple(make_node(f"c{n}", partitions=("cpu",)) for n in range(1, 6))
    nodes += tuple(make_node(f"b{n}", partitions=("cpu", "big")) for n in (1, 2, 3))
    run: dict[str, Any] = {"start_time": NOW, "requested_time": HOUR, "processors": 2}
    inside, beside = (
        make_queued(number, "RUNNING", queue="cpu", nodes=name, **run)
        for number, name in ((1, "b1"), (2, "b3"))
    )

    def queue(*waiting: QueuedJob, begin: float = -1.0) -> OnPremiseQueue:
        look = make_look(NOW, nodes, (inside, beside, *waiting))
        settings = make_settings(cluster={"on_premise_partitions": ["cpu", "big"]})
        return on_premise_queue(replace(look, reservations=(kept("b1,b2", begin, 5.0),)), settings)

    def big(job_id: int, processors: int, limit: float = 1.0) -> QueuedJob:
        asks: dict[str, Any] = {"queue": "big", "processors": processors, "requested_time": limit * HOUR}
        return make_queued(job_id, reason="Resources", **asks)

    assert hours(queue(big(3, 2))) == {3: 0.0}
    assert hours(queue(big(3, 4))) == {3: 1.0}
    assert hours(queue(big(3, 8))) == {3: 5.0}
    assert hours(queue(big(3, 6, 2.0), begin=1.0)) == {3: 5.0}
    assert hours(queue(big(3, 4, 2.0), begin=0.5)) == {3: 1.0}
    assert hours(queue(waits(3, 1.0, processors=20))) == {3: 0.0}


def test_a_job_on_several_nodes_has_those_of_a_subset_whichever_others_are_reserved() -> None:
    """It has c1 and b1; c1 and b2 are reserved, so that no node is left for jobs of their partition."""
    nodes = tuple(make_node(name, partitions=("cpu",)) for name in ("c1", "c2"))
    nodes += tuple(make_node(name, partitions=("cpu", "big")) for name in ("b1", "b2"))
    waiting = make_queued(3, reason="Resources", queue="big", processors=4, requested_time=HOUR)
    look = make_look(NOW, nodes, (runs(1, "c1,b1", 2, processors=8), waiting))
    settings = make_settings(cluster={"on_premise_partitions": ["cpu", "big"]})
    queue = on_premise_queue(replace(look, reservations=(kept("c1,b2", -1.0, 5.0),)), settings)
    assert hours(queue) == {3: 1.0}


def test_a_job_of_another_partition_has_of_what_is_not_reserved_only_its_nodes_there() -> None:
    shared = replace(FOUR[0], partitions=("cpu", "other"))
    elsewhere = replace(node("x1"), partitions=("other",))
    visitor = replace(runs(1, "n1,x1", 2, processors=16), partitions=("other",))
    queue = queue_of(
        visitor,
        waits(3, 1.0, processors=8),
        nodes=(shared, *FOUR[1:3], elsewhere),
        reservations=(kept("n3", -1.0, 5.0),),
    )
    assert hours(queue) == {3: 0.0}
