"""The run times that are expected of the on-premise queue's jobs, for the poll, the price and slices."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from advisor.arrays import Floats
from advisor.model.job import Job
from advisor.predict.run_times.queue_runs import QueueRuns
from advisor.service.price.queue_view import OnPremiseQueue, run_to_limits
from advisor.service.price.valuing import AskChances


class ExpectedRuns:
    """What :data:`~advisor.service.price.queue_view.AskRuns` asks; thread-safe.

    Args:
        chances: Asked about each job when it is first seen; a placeholder has the name of its job.
        is_ready: Whether run times have been learned; before that every job runs to its limit.
    """

    def __init__(self, chances: AskChances, is_ready: Callable[[], bool]) -> None:
        self._ask = chances
        self._is_ready = is_ready
        self._seen = QueueRuns()
        self._lock = threading.Lock()

    def __call__(self, queue: OnPremiseQueue) -> tuple[Floats, Floats]:
        """The expected run times of the running and of the waiting jobs, from their starts, seconds."""
        if not self._is_ready():
            return run_to_limits(queue)
        jobs, running = (*queue.running, *queue.waiting), len(queue.running)
        ids = [queued.job.job_id for queued in jobs]
        ran = np.zeros(len(jobs))
        ran[:running] = [max(0.0, queue.time - (q.start_time or queue.time)) for q in queue.running]
        limits = np.concatenate(run_to_limits(queue))
        with self._lock:
            self._seen.forget_all_but(set(ids))
            for queued in jobs:
                if queued.job.job_id not in self._seen:
                    self._seen.see(queued.job.job_id, self._ask(_as_itself(queued.job, queue)))
            runs = self._seen.expected(ids, limits, ran)
        return runs[:running], runs[running:]


def _as_itself(job: Job, queue: OnPremiseQueue) -> Job:
    """The job, or under its own name the one that a placeholder stands for."""
    return replace(job, name=queue.names[job.job_id]) if job.job_id in queue.names else job
