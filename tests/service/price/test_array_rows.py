"""Many large arrays wait: few of their tasks are told apart, so that the queue can still be simulated."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.control.small_first import rows_before_small
from advisor.service.price.queue_view import OnPremiseQueue, on_premise_queue, seen_queues
from tests.service.doubles import make_look, make_node, make_queued

NOW = 1_800_000_000.0
SETTINGS = Settings()
SMALL = json.dumps({"burst_advisor": 1, "id": "a", "to": "on-premise", "mode": "act", "size": "small"})


def waits(job_id: int, tasks: int = 1, priority: int = 10, advice: str = "") -> QueuedJob:
    job = make_queued(job_id, processors=2, array_tasks=tasks, requested_time=3600.0, reason="Priority")
    return replace(job, priority=priority, admin_comment=advice)


def queue_of(*jobs: QueuedJob) -> OnPremiseQueue:
    return on_premise_queue(make_look(NOW, (make_node("n1", processors=64),), jobs), SETTINGS)


def test_tasks_of_many_arrays_are_bounded_together() -> None:
    arrays, single = [waits(number, 1000) for number in range(1, 101)], waits(500)
    queue = queue_of(*arrays, single)
    (seen,) = seen_queues(queue)
    rows = seen.closed().waiting
    assert 5_000 < len(rows) <= 10_101
    work = rows[:, 0] * rows[:, 1]  # none of it is lost
    assert np.isclose(work.sum(), (100 * 1000 + 1) * 2 * 3600.0, rtol=0.05)


def test_a_few_arrays_keep_two_hundred_tasks_each() -> None:
    (seen,) = seen_queues(queue_of(*(waits(number, 1000) for number in range(1, 11))))
    assert len(seen.closed().waiting) == 10 * 201


def test_each_of_very_many_jobs_has_a_row() -> None:
    jobs = [waits(number, 5000 if number % 10 == 0 else 1) for number in range(1, 12_001)]
    (seen,) = seen_queues(queue_of(*jobs))
    assert len(seen.closed().waiting) == 12_000 + 1_200


def test_rows_before_a_small_job_are_those_of_the_queue() -> None:
    first = [waits(number, 1000, priority=5000, advice=SMALL) for number in range(1, 101)]
    queue = queue_of(*first, waits(500))
    (seen,) = seen_queues(queue)
    assert rows_before_small(queue, SETTINGS) == [len(seen.closed().waiting) - 1]
