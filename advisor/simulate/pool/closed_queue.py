"""A machine's queue as a snapshot shows it, and the starts of its jobs, were no job to come."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from advisor.arrays import Floats
from advisor.simulate.heap import ENDING
from advisor.simulate.pool._kernel import EVENT, JOB, RUNNING, SCALARS, WAITING, Arrays, advance

_OVERDUE_SECONDS: Final = 1.0
"""A running job that has run for longer than expected is assumed to end within this time, seconds."""


class ClosedQueue(NamedTuple):
    """The jobs that run and wait on a machine. Times are seconds on one clock.

    Attributes:
        sizes: What the usable nodes have of each resource that jobs share, processors first, shape ``(k,)``;
            running jobs may have more.
        running: Processors, start, limit and expected run time from the start of each job that has
            processors, and what it has of each further resource, shape ``(r, 3 + k)``.
        waiting: Processors, limit and expected run time of each waiting job, and what it takes of each
            further resource, in the order of the queue, shape ``(w, 2 + k)``.
    """

    sizes: Floats
    running: Floats
    waiting: Floats

    def run_to_limits(self) -> ClosedQueue:
        """The same queue where every job runs to its limit."""
        running, waiting = self.running.copy(), self.waiting.copy()
        running[:, 3], waiting[:, 2] = running[:, 2], waiting[:, 1]
        return ClosedQueue(self.sizes, running, waiting)


def closed_queue_starts(queue: ClosedQueue, now: float) -> Floats:
    """When each waiting job would start under EASY backfilling, were no job to come.

    Returns:
        Seconds, shape ``(w,)``; infinite for a job larger than the machine.
    """
    arrays, ahead = simulation_of(queue, now), len(queue.running)
    advance(arrays, np.inf, arrays.events.shape[0])
    jobs = arrays.jobs[ahead:]
    return np.where(jobs["where"] >= RUNNING, jobs["start"], np.inf)


def simulation_of(queue: ClosedQueue, now: float) -> Arrays:
    """The state of EASY backfilling at a moment, the running jobs first. Jobs are planned by their limits."""
    running, waiting, ahead = queue.running, queue.waiting, len(queue.running)
    count = ahead + len(waiting)
    jobs = np.zeros(count, JOB)
    jobs["where"][:ahead], jobs["where"][ahead:] = RUNNING, WAITING
    jobs["processors"][:ahead], jobs["processors"][ahead:] = running[:, 0], waiting[:, 0]
    jobs["limit"][:ahead], jobs["limit"][ahead:] = running[:, 2], waiting[:, 1]
    jobs["run"][:ahead], jobs["run"][ahead:] = running[:, 3], waiting[:, 2]
    jobs["start"][:ahead] = running[:, 1]
    planned, ends = np.maximum(running[:, 1, None] + running[:, 2:4], now + _OVERDUE_SECONDS).T
    jobs["planned_end"][:ahead], jobs["end"][:ahead] = planned, ends
    by_end = np.argsort(ends, kind="stable")
    ending = np.zeros(count, ENDING)
    ending["time"][:ahead], ending["job"][:ahead] = ends[by_end], by_end  # sorted, so a heap
    scalars = np.zeros(1, SCALARS)
    scalars["now"], scalars["is_due"] = now, 1
    scalars["running"], scalars["waiting"], scalars["endings"] = ahead, count - ahead, ahead
    scalars["free"] = max(0, int(queue.sizes[0] - running[:, 0].sum()))
    rows_waiting, rows_running = np.zeros(count, np.int64), np.zeros(count, np.int64)
    rows_waiting[: count - ahead], rows_running[:ahead] = (
        np.arange(ahead, count),
        np.argsort(planned, kind="stable"),
    )
    stock = np.zeros((2, len(queue.sizes) - 1))
    stock[0] = np.maximum(0.0, queue.sizes[1:] - running[:, 4:].sum(axis=0))
    return Arrays(
        jobs=jobs,
        queue=rows_waiting,
        running=rows_running,
        ending=ending,
        events=np.zeros(2 * count + 8, EVENT),
        scalars=scalars,
        other_ends=np.zeros(0),
        owner=np.zeros(0, np.int64),
        needs=np.vstack((running[:, 4:], waiting[:, 3:])),
        stock=stock,
    )
