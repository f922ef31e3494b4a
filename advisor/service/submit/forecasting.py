"""What the price asks of a submission: its wait by the queue, and its run time as a distribution.

The wait is the one that Slurm plans: the queue is simulated by time limits, since forecast run times decide
no better (`advisor.replay.closed_loop.price_policy`). Jobs end before their limits: how much shorter waits
are is learned (`advisor.predict.intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from advisor.decide.promise.promised import warm as warm_promise
from advisor.decide.submission.priced import warm as warm_decision
from advisor.model.estimate import NO_ESTIMATE, Estimates, SizeEstimate
from advisor.model.job import Job
from advisor.predict.intervals import Intervals
from advisor.predict.run_times.of_jobs import RunTimesOfJobs
from advisor.service.exchange.seen_queue import NO_LIMIT_SECONDS
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.submit.recent import Submission
from advisor.simulate.pool.start_profile import StartProfile, start_of, start_profile, with_job

_MAX_TASKS: Final = 8
"""Tasks of an array that join one by one; the others join as one wide job."""


class QueueForecast:
    """When a job that is submitted now would start on-premise; its owner holds the lock of the hot path.

    Args:
        profile: Of the queue in the snapshot; see :func:`profile_of`.
    """

    def __init__(self, profile: StartProfile, processors: int, since: Iterable[Submission]) -> None:
        self._profile = profile
        self._processors = processors
        for submission in since:
            self.join(submission, submission.time)

    def wait(self, job: Job, now: float) -> float:
        """Seconds from now until the job, or the first task of an array, starts; infinite: never."""
        limit = NO_LIMIT_SECONDS if job.requested_time is None else max(1.0, job.requested_time)
        return start_of(self._profile, job.processors, limit, now) - now

    def join(self, submission: Submission, now: float) -> None:
        """Take in a submission that stays on-premise."""
        if not submission.on_premise:
            return
        limit = submission.requested_seconds or NO_LIMIT_SECONDS
        for _ in range(min(submission.tasks, _MAX_TASKS)):
            self._profile = with_job(self._profile, submission.processors, limit, now)
        rest = (submission.tasks - _MAX_TASKS) * submission.processors
        if rest > 0:
            rounds = math.ceil(rest / max(1, self._processors))
            width = min(rest, self._processors)
            self._profile = with_job(self._profile, width, limit * rounds, now)


def profile_of(snapshot: Snapshot) -> StartProfile | None:
    """Simulate the snapshot's queue; None where it has none.

    Raises:
        ValueError: The queue is damaged.
    """
    queue = snapshot.queue
    if queue is None:
        return None
    return start_profile(queue.processors, snapshot.state.time, queue.running_jobs, queue.waiting_jobs)


def priced_estimates(
    job: Job,
    planned_wait: float | None,
    run_times: RunTimesOfJobs | None,
    size: SizeEstimate,
    *,
    is_promised: bool = False,
) -> Estimates:
    """What the price asks of a job; without known run times it stays on-premise.

    Args:
        planned_wait: Seconds; None where it is unknown.
        is_promised: Whether its user names a time by which it is to be done.
    """
    intervals = Intervals() if run_times is None else run_times.intervals
    wait = NO_ESTIMATE if planned_wait is None else intervals.wait(planned_wait)
    if run_times is None:
        return Estimates(wait=wait, size=size)
    chances = run_times.chances(job)
    run = run_times.estimate(chances, job)
    promise = None
    if is_promised and planned_wait is not None and math.isfinite(planned_wait):
        core_seconds = job.processors * (
            NO_LIMIT_SECONDS if job.requested_time is None else job.requested_time
        )
        promise = run_times.promises.chances(planned_wait, core_seconds)
    return Estimates(wait=wait, run=run, size=size, run_chances=tuple(chances.tolist()), promise=promise)


def warm() -> None:
    """Compile, or load from the cache, all that a first forecast needs."""
    profile = start_profile(4, 0.0, np.array([[4.0, 0.0, 60.0]]), np.array([[2.0, 60.0]]))
    with_job(profile, 1, 60.0, 0.0)
    warm_decision()
    warm_promise()
    priced_estimates(
        Job(job_id=0, submit_time=0.0, processors=1, requested_time=60.0),
        start_of(profile, 1, 60.0, 0.0),
        RunTimesOfJobs(),
        SizeEstimate(is_small=False, probability_small=0.0, divider_seconds=math.nan),
    )
