"""Jobs of a partition with a higher PriorityTier start before all of a lower one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.model.job import ANYBODY, Job
from advisor.model.machine import PartitionTerms, Sharing
from advisor.model.snapshot import QueuedJob
from advisor.service.price.partition_tiers import of_new_jobs
from advisor.service.price.queue_view import OnPremiseQueue, forecast_waits, on_premise_queue, seen_queues
from advisor.service.submit.recent import QueueForecast
from advisor.service.submit.state_holder import profiles_of
from tests.decide.cases import make_settings
from tests.service.doubles import make_look, make_node, make_queued
from tests.service.site import make_snapshot

NOW = 1_800_000_000.0
HOUR = 3600.0
NODES = (make_node("c1", processors=8, partitions=("cpu", "urgent")),)
SETTINGS = make_settings(cluster={"on_premise_partitions": ["cpu", "urgent"]})
TIER = 2.0**32


def waits(job_id: int, *partitions: str, priority: int = 100) -> QueuedJob:
    job = make_queued(
        job_id,
        queue=partitions[0],
        partitions=partitions,
        processors=8,
        requested_time=HOUR,
        reason="Priority",
        submit_time=NOW - 100.0 + job_id,
    )
    return replace(job, priority=priority)


def queue_of(*jobs: QueuedJob, cpu: int = 1, urgent: int = 10) -> OnPremiseQueue:
    runs = make_queued(1, "RUNNING", queue="cpu", processors=8, start_time=NOW, requested_time=HOUR)
    tiers = {"cpu": PartitionTerms(tier=cpu), "urgent": PartitionTerms(tier=urgent)}
    look = replace(make_look(NOW, NODES, (runs, *jobs)), sharing=Sharing(partitions=tiers))
    return on_premise_queue(look, SETTINGS)


def hours(queue: OnPremiseQueue) -> dict[int, float]:
    return {job: wait / HOUR for job, wait in forecast_waits(queue).items()}


def test_a_higher_tier_comes_first_whatever_the_priorities_are() -> None:
    jobs = (waits(2, "cpu", priority=900), waits(3, "cpu"), waits(4, "urgent", priority=1))
    assert hours(queue_of(*jobs)) == {4: 1.0, 2: 2.0, 3: 3.0}
    assert hours(queue_of(*jobs, cpu=10)) == {2: 1.0, 3: 2.0, 4: 3.0}


def test_a_job_of_several_partitions_has_the_place_of_the_highest() -> None:
    jobs = (waits(2, "cpu", priority=900), waits(3, "cpu", "urgent"), waits(4, "urgent"))
    assert hours(queue_of(*jobs)) == {3: 1.0, 4: 2.0, 2: 3.0}


@pytest.mark.parametrize(("partition", "wait"), [("cpu", 9.0), ("urgent", 2.0)])
def test_a_new_job_is_the_last_of_its_tier_where_priorities_are_not_known(
    partition: str, wait: float
) -> None:
    queue = queue_of(*(waits(number, "cpu", priority=900) for number in range(2, 9)), waits(9, "urgent"))
    shot = replace(
        make_snapshot(NOW),
        queues=seen_queues(queue),
        first_priorities=of_new_jobs({}, queue.first_priorities),
    )
    job = Job(job_id=0, submit_time=NOW, processors=8, queue=partition, requested_time=HOUR, user="ann")
    forecast = QueueForecast(shot.queues, profiles_of(shot), shot.first_priorities)
    assert forecast.waits(job, NOW)[0] == wait * HOUR


def test_known_priorities_are_kept_and_others_begin_in_the_middle_of_their_tier() -> None:
    known = {"ann\nurgent": 10 * TIER + 7.0, ANYBODY: TIER + 50.0}
    found = of_new_jobs(known, {"\ncpu": 0.0, "\nurgent": 9 * TIER})
    assert found == {**known, "\ncpu": 50.0, "\nurgent": 9 * TIER + 50.0}
    assert of_new_jobs(known, {}) == known
