"""The forecasts that the policy "price" needs: the wait from the queue, and the run time as a distribution.

The wait is the one that Slurm plans: the queue is simulated with time limits, because forecast run times lead
to no better decisions (`advisor.replay.closed_loop.price_policy`). Jobs end before their limits, so actual
waits are shorter; `advisor.predict.intervals` learns by how much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from advisor.decide.submission.priced import warm as warm_decision
from advisor.model.estimate import NO_ESTIMATE, Estimates, SizeEstimate
from advisor.model.job import NO_LIMIT_SECONDS, Job, limit_seconds
from advisor.predict.intervals import Intervals
from advisor.predict.run_times.run_times import RunTimesOfJobs
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.submit.recent import Submission
from advisor.simulate.pool.start_profile import StartProfile, start_of, start_profile, with_job

_MAX_TASKS: Final = 8
"""The number of tasks of an array that are simulated one by one; the others are simulated as one wide job."""


class QueueForecast:
    """Forecasts when a job submitted now would start on-premise. Callers hold the hot path's lock.

    Args:
        profile: The profile of the snapshot's queue; see :func:`profile_of`.
    """

    def __init__(self, profile: StartProfile, processors: int, since: Iterable[Submission]) -> None:
        self._profile = profile
        self._processors = processors
        for submission in since:
            self.join(submission, submission.time)

    def wait(self, job: Job, now: float) -> float:
        """Seconds from now until the job, or the first task of an array, starts; infinite: never."""
        return start_of(self._profile, job.processors, limit_seconds(job), now) - now

    def join(self, submission: Submission, now: float) -> None:
        """Add a submission that stays on-premise to the queue."""
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
    promised_jobs: int | None = None,
) -> Estimates:
    """The forecasts for a job under the policy "price"; without known run times the job stays on-premise.

    Args:
        planned_wait: The wait by the simulated queue, seconds; None if it is unknown.
        promised_jobs: Of the job's user in the queue; None: no time is named by which it is to be done.
    """
    intervals = Intervals() if run_times is None else run_times.intervals
    wait = NO_ESTIMATE if planned_wait is None else intervals.wait(planned_wait)
    if run_times is None:
        return Estimates(wait=wait, size=size)
    chances = run_times.chances(job)
    run = run_times.estimate(chances, job)
    promise = None
    if promised_jobs is not None and planned_wait is not None and math.isfinite(planned_wait):
        requested, expected = job.processors * limit_seconds(job), job.processors * run.seconds
        promise = run_times.promises.chances(planned_wait, requested, expected, promised_jobs)
    return Estimates(wait=wait, run=run, size=size, run_chances=tuple(chances.tolist()), promise=promise)


def warm() -> None:
    """Compile the functions that a first forecast needs, or load them from the cache."""
    profile = start_profile(4, 0.0, np.array([[4.0, 0.0, 60.0]]), np.array([[2.0, 60.0]]))
    with_job(profile, 1, 60.0, 0.0)
    warm_decision()
    priced_estimates(
        Job(job_id=0, submit_time=0.0, processors=1, requested_time=60.0),
        start_of(profile, 1, 60.0, 0.0),
        RunTimesOfJobs(),
        SizeEstimate(is_small=False, probability_small=0.0, divider_seconds=math.nan),
    )
