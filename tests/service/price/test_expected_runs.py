"""The queue as control forecasts it: jobs run as long as expected, and are planned by their limits."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.arrays import Floats
from advisor.model.job import PLACEHOLDER_COMMENT, PLACEHOLDER_PREFIX, Job
from advisor.model.machine import Machine
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.predict.run_times.grid import BINS, bin_of
from advisor.service.price.expected_runs import ExpectedRuns
from advisor.service.price.queue_view import (
    OnPremiseQueue,
    forecast_waits,
    on_premise_queue,
    seen_queues,
)
from advisor.simulate.pool.start_profile import start_profile
from tests.service.doubles import make_look, make_queued

NOW = 1_800_000_000.0
HOUR = 3600.0
DAY = 24 * HOUR


class Knowledge:
    """Every job runs for an hour."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.is_ready = True

    def chances(self, job: Job) -> Floats:
        self.asked.append(job.job_id)
        found = np.zeros(BINS)
        found[bin_of(HOUR)] = 1.0
        return found


def queue_of(*waiting: QueuedJob, ran: float = 0.0) -> OnPremiseQueue:
    """One job has the whole machine of 8 processors; its limit is a day."""
    first = make_queued(1, "RUNNING", processors=8, start_time=NOW - ran, requested_time=DAY)
    return OnPremiseQueue(time=NOW, machines=(Machine(("onprem",), 8),), running=(first,), waiting=waiting)


def waiting(job_id: int, **changes: object) -> QueuedJob:
    return make_queued(job_id, processors=8, requested_time=DAY, **changes)


def test_jobs_are_expected_to_end_before_their_limits() -> None:
    known = Knowledge()
    runs = ExpectedRuns(known.chances, lambda: known.is_ready)
    waits = forecast_waits(queue_of(waiting(2), waiting(3)), runs)
    assert waits[2] == pytest.approx(HOUR, rel=0.13)
    assert waits[3] == pytest.approx(2 * HOUR, rel=0.13)
    assert forecast_waits(queue_of(waiting(2))) == {2: DAY}


def test_a_running_job_has_less_left_to_run() -> None:
    known = Knowledge()
    runs = ExpectedRuns(known.chances, lambda: known.is_ready)
    whole, rest = (forecast_waits(queue_of(waiting(2), ran=ran), runs)[2] for ran in (0.0, 0.5 * HOUR))
    assert rest == pytest.approx(whole - 0.5 * HOUR)


def test_before_run_times_are_known_jobs_run_to_their_limits() -> None:
    known = Knowledge()
    known.is_ready = False
    runs = ExpectedRuns(known.chances, lambda: known.is_ready)
    assert forecast_waits(queue_of(waiting(2)), runs) == {2: DAY}
    assert not known.asked


def test_each_job_is_forecast_once_while_it_is_there() -> None:
    known = Knowledge()
    runs = ExpectedRuns(known.chances, lambda: known.is_ready)
    for _ in range(3):
        forecast_waits(queue_of(waiting(2)), runs)
    forecast_waits(queue_of(waiting(3)), runs)
    forecast_waits(queue_of(waiting(2)), runs)
    assert known.asked == [1, 2, 3, 2]


def test_a_placeholder_is_forecast_as_the_job_that_it_stands_for() -> None:
    own = make_queued(5, "RUNNING", queue="burst", name="long", user="ann", array_job_id=5)
    place = make_queued(
        6, name=f"{PLACEHOLDER_PREFIX}5", user="ann", reason="Resources", comment=PLACEHOLDER_COMMENT
    )
    assert place.job.placeholder_for == 5
    queue = on_premise_queue(make_look(NOW, (), (own, place)), Settings())
    asked: list[str | None] = []

    def chances(job: Job) -> Floats:
        asked.append(job.name)
        return Knowledge().chances(job)

    ExpectedRuns(chances, lambda: True)(queue)
    assert asked == ["long"]
    assert [queued.job.name for queued in queue.waiting] == [f"{PLACEHOLDER_PREFIX}5"]


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_submit_server_forecasts_by_the_same_queue(tasks: int) -> None:
    known = Knowledge()
    runs = ExpectedRuns(known.chances, lambda: known.is_ready)
    array, last = waiting(2, array_tasks=tasks), waiting(3)
    (seen,) = seen_queues(queue_of(array), runs)
    profile = start_profile(seen.closed(), NOW)
    behind = forecast_waits(queue_of(array, last), runs)[3]
    assert profile.start_of(np.array([8.0]), DAY, NOW) - NOW == pytest.approx(behind)
    assert behind == pytest.approx((1 + tasks) * HOUR, rel=0.13)
