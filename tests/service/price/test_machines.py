"""Partitions on-premise that share nodes are one machine, and no job waits for the processors of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.price.queue_view import (
    OnPremiseQueue,
    forecast_waits,
    on_premise_queue,
    seen_queues,
)
from advisor.service.submit.recent import QueueForecast, Submission
from advisor.service.submit.state_holder import profiles_of
from tests.decide.cases import make_settings
from tests.service.doubles import make_look, make_node, make_queued
from tests.service.site import make_snapshot

NOW = 1_800_000_000.0
HOUR = 3600.0
NODES = (
    make_node("c1", processors=8, partitions=("cpu", "short")),
    make_node("c2", processors=8, partitions=("cpu",)),
    make_node("g1", processors=8, partitions=("gpu",)),
)


def site(*partitions: str) -> Settings:
    return make_settings(cluster={"on_premise_partitions": list(partitions)})


def busy(job_id: int, partition: str, processors: int, hours: float = 1.0) -> QueuedJob:
    return make_queued(
        job_id, "RUNNING", queue=partition, processors=processors, start_time=NOW, requested_time=hours * HOUR
    )


def waits(job_id: int, *partitions: str, processors: int = 8) -> QueuedJob:
    return make_queued(
        job_id,
        queue=partitions[0],
        partitions=partitions,
        processors=processors,
        requested_time=HOUR,
        reason="Resources",
    )


def queue_of(*jobs: QueuedJob, ours: tuple[str, ...] = ("cpu", "gpu", "short")) -> OnPremiseQueue:
    return on_premise_queue(make_look(NOW, NODES, jobs), site(*ours))


def submit_server(queues: Sequence[SeenQueue]) -> QueueForecast:
    """What it forecasts by the queues that control has published."""
    snapshot = replace(make_snapshot(NOW), queues=tuple(queues))
    return QueueForecast(snapshot.queues, profiles_of(snapshot))


def sizes(queue: OnPremiseQueue) -> list[tuple[tuple[str, ...], int, int]]:
    return [(one.partitions, one.processors, one.nodes) for one in queue.machines]


def test_partitions_that_share_nodes_are_one_machine() -> None:
    assert sizes(queue_of()) == [(("cpu", "short"), 16, 2), (("gpu",), 8, 1)]
    assert sizes(queue_of(ours=("short",))) == [(("short",), 8, 1)]


def test_partitions_are_joined_by_one_between_them() -> None:
    nodes = (
        make_node("a1", partitions=("a", "b")),
        make_node("c1", partitions=("c", "d")),
        make_node("b1", partitions=("c", "b")),
        make_node("e1", partitions=("e", "other")),
        make_node("o1", partitions=("other", "a")),
    )
    queue = on_premise_queue(make_look(NOW, nodes, ()), site("a", "b", "c", "d", "e"))
    assert sizes(queue) == [(("a", "b", "c", "d"), 16, 4), (("e",), 4, 1)]


def test_nodes_that_are_down_join_partitions_and_have_no_processors() -> None:
    nodes = (
        make_node("a1", "DOWN", partitions=("a", "b")),
        make_node("b1", partitions=("b",)),
        make_node("burst1", partitions=("a", "c")),
        make_node("c1", "IDLE", "DRAIN", partitions=("c",)),
    )
    queue = on_premise_queue(make_look(NOW, nodes, ()), site("a", "b", "c", "never"))
    assert sizes(queue) == [(("a", "b"), 4, 1), (("c",), 0, 0), (("never",), 0, 0)]


def test_a_job_waits_for_its_own_machine_alone() -> None:
    """Free GPU nodes start no job of the full partition, and its queue delays none of theirs."""
    queue = queue_of(busy(1, "cpu", 16), waits(2, "cpu"), waits(3, "short"), waits(4, "cpu"), waits(5, "gpu"))
    assert forecast_waits(queue) == {2: HOUR, 3: HOUR, 4: 2 * HOUR, 5: 0.0}


def test_the_jobs_that_wait_are_counted_for_each_machine() -> None:
    array = make_queued(6, queue="gpu", array_tasks=30, processors=2, reason="Resources")
    queue = queue_of(busy(1, "cpu", 16), waits(2, "cpu"), waits(3, "short"), array)
    assert queue.waiting_jobs() == [2, 30]
    assert queue_of(waits(2, "cpu"), ours=("cpu",)).waiting_jobs() == [1]


def test_a_job_of_several_partitions_waits_where_least_is_ahead_of_it() -> None:
    queue = queue_of(
        busy(1, "cpu", 16), busy(2, "gpu", 8, 0.5), waits(3, "cpu", "gpu"), waits(4, "cpu", "gpu")
    )
    assert queue.places[3] != queue.places[1]
    assert forecast_waits(queue) == {3: 0.5 * HOUR, 4: HOUR}


@pytest.mark.parametrize("partitions", ["cpu", "gpu", "short", "cpu,gpu", "gpu,short"])
def test_the_submit_server_forecasts_by_the_queue_of_the_jobs_machine(partitions: str) -> None:
    jobs = (busy(1, "cpu", 16), waits(2, "cpu"), waits(3, "cpu"), busy(4, "gpu", 8, 0.5))
    queues = seen_queues(queue_of(*jobs))
    forecast = submit_server(queues)
    job = Job(job_id=0, submit_time=NOW, processors=8, queue=partitions, requested_time=HOUR)
    each = [forecast_waits(queue_of(*jobs, waits(9, name)))[9] for name in partitions.split(",")]
    assert forecast.waits(job, NOW)[0] == forecast.waits(job, NOW)[1] == min(each)


def test_a_submission_joins_the_queue_of_its_machine() -> None:
    queues = seen_queues(queue_of(busy(1, "cpu", 16), busy(2, "gpu", 8, 0.5)))
    forecast = submit_server(queues)
    jobs = {
        name: Job(job_id=0, submit_time=NOW, processors=8, queue=name, requested_time=HOUR)
        for name in ("cpu", "gpu", "elsewhere")
    }

    def all_waits() -> dict[str, float]:
        return {name: forecast.waits(job, NOW)[0] / HOUR for name, job in jobs.items()}

    assert all_waits() == {"cpu": 1.0, "gpu": 0.5, "elsewhere": 1.0}
    forecast.join(Submission(time=NOW, processors=8, requested_seconds=HOUR, queue="gpu"))
    assert all_waits() == {"cpu": 1.0, "gpu": 1.5, "elsewhere": 1.0}
    forecast.join(Submission(time=NOW, processors=16, requested_seconds=HOUR, queue="cpu,gpu"))
    assert all_waits() == {"cpu": 2.0, "gpu": 1.5, "elsewhere": 2.0}
    forecast.join(Submission(time=NOW, processors=8, requested_seconds=HOUR, queue="cpu,gpu"))
    assert all_waits() == {"cpu": 2.0, "gpu": 2.5, "elsewhere": 2.0}
