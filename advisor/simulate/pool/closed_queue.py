"""A machine's queue as a snapshot shows it, and the starts of its jobs, were no job to come.

The price loop forecasts the waits of waiting jobs by it, `advisor serve` those of new ones.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from advisor.arrays import Floats
from advisor.simulate.heap import ENDING
from advisor.simulate.pool._kernel import advance
from advisor.simulate.pool._state import EVENT, JOB, RUNNING, SCALARS, WAITING, Arrays, blocks_of, is_whole

NONE_RESERVED: Final[Floats] = np.zeros((0, 4))
NONE_LIMITED: Final[Floats] = np.zeros((0, 2))
NO_GROUPS: Final[Floats] = np.zeros(1)
_OVERDUE_SECONDS: Final = 1.0
"""A running job that has run for longer than expected is assumed to end within this time, seconds."""


class ClosedQueue(NamedTuple):
    """The jobs that run and wait on a machine. Times are seconds on one clock.

    Attributes:
        sizes: What the usable nodes have of each resource that jobs share, processors first, shape ``(k,)``;
            running jobs may have more.
        running: Processors, start, limit and expected run time from the start of each job that has
            processors, what it has of each further resource, and what it takes of each row of ``reserved`` if
            it runs then, shape ``(r, 3 + k + m)``.
        waiting: Processors, limit and expected run time of each waiting job, and what it takes of each
            further resource, in the order of the queue, shape ``(w, 2 + k)``.
        reserved: What reservations take from these jobs, a row for each resource of each, shape ``(m, 4)``:
            begin, end, the resource (its place in ``sizes``), and what is left of it.
        limited: The group of each running and each waiting job (0: none) and what it takes of the group's,
            shape ``(r + w, 2)``; empty where no job is in a group.
        groups: What is left to the jobs of each group, shape ``(1 + g,)``; the first is no group.
    """

    sizes: Floats
    running: Floats
    waiting: Floats
    reserved: Floats = NONE_RESERVED
    limited: Floats = NONE_LIMITED
    groups: Floats = NO_GROUPS

    def run_to_limits(self) -> ClosedQueue:
        """The same queue where every job runs to its limit."""
        running, waiting = self.running.copy(), self.waiting.copy()
        running[:, 3], waiting[:, 2] = running[:, 2], waiting[:, 1]
        return self._replace(running=running, waiting=waiting)


def closed_queue_starts(queue: ClosedQueue, now: float) -> Floats:
    """When each waiting job would start under EASY backfilling, were no job to come.

    Returns:
        Seconds, shape ``(w,)``; infinite for a job larger than the machine.
    """
    arrays = simulation_of(queue, now)
    advance(arrays, np.inf, arrays.events.shape[0])
    jobs = arrays.jobs[len(arrays.jobs) - len(queue.waiting) :]
    return np.where(jobs["where"] >= RUNNING, jobs["start"], np.inf)


def simulation_of(queue: ClosedQueue, now: float) -> Arrays:
    """The state of EASY backfilling at a moment, the running jobs first. Jobs are planned by their limits."""
    running, waiting, reserved = _with_ends(queue, now), queue.waiting, queue.reserved
    ahead = len(running)
    count = ahead + len(waiting)
    jobs = np.zeros(count, JOB)
    jobs["where"][:ahead], jobs["where"][ahead:] = RUNNING, WAITING
    jobs["processors"][:ahead], jobs["processors"][ahead:] = running[:, 0], waiting[:, 0]
    jobs["limit"][:ahead], jobs["limit"][ahead:] = running[:, 2], waiting[:, 1]
    jobs["run"][:ahead], jobs["run"][ahead:] = running[:, 3], waiting[:, 2]
    jobs["start"][:ahead] = running[:, 1]
    if len(queue.limited):
        here = len(queue.running)
        for name, column in zip(("group", "units"), queue.limited.T, strict=True):
            jobs[name][:here], jobs[name][ahead:] = column[:here], column[here:]
    planned, ends = np.maximum(running[:, 1, None] + running[:, 2:4], now + _OVERDUE_SECONDS).T
    jobs["planned_end"][:ahead], jobs["end"][:ahead] = planned, ends
    by_end = np.argsort(ends, kind="stable")
    ending = np.zeros(count, ENDING)
    ending["time"][:ahead], ending["job"][:ahead] = ends[by_end], by_end  # sorted, so a heap
    scalars = np.zeros(1, SCALARS)
    scalars["now"], scalars["is_due"], scalars["head"] = now, 1, -1
    scalars["running"], scalars["waiting"], scalars["endings"] = ahead, count - ahead, ahead
    scalars["last"] = count - ahead
    scalars["free"] = max(0, int(queue.sizes[0] - running[:, 0].sum()))
    rows_waiting, rows_running = np.zeros(count, np.int64), np.zeros(count, np.int64)
    rows_waiting[: count - ahead], rows_running[:ahead] = (
        np.arange(ahead, count),
        np.argsort(planned, kind="stable"),
    )
    of_reserved = waiting[:, np.r_[0, 3 : waiting.shape[1]]][:, reserved[:, 2].astype(int)]
    ordinary = len(queue.sizes) - 1
    windows = np.full((2, ordinary + len(reserved)), np.inf)
    windows[0], windows[:, ordinary:] = -np.inf, reserved[:, :2].T
    held = np.where(running[:, [1]] + running[:, [2]] > windows[0], running[:, 4:], 0.0).sum(axis=0)
    stock = np.zeros((3, ordinary + len(reserved)))
    stock[0] = np.concatenate((queue.sizes[1:], reserved[:, 3])) - held
    stock[0, :ordinary] = np.maximum(0.0, stock[0, :ordinary])
    needs = np.vstack((running[:, 4:], np.hstack((waiting[:, 3:], of_reserved))))
    scalars["is_whole"] = is_whole(needs, stock)
    return Arrays(
        jobs=jobs,
        queue=rows_waiting,
        least=blocks_of(count),
        running=rows_running,
        ending=ending,
        events=np.zeros(2 * count + 8, EVENT),
        scalars=scalars,
        other_ends=np.zeros(0),
        owner=np.zeros(0, np.int64),
        needs=needs,
        stock=stock,
        windows=windows,
        groups=queue.groups.copy(),
    )


def _with_ends(queue: ClosedQueue, now: float) -> Floats:
    """The running jobs, and for the end of each reservation one that has nothing: jobs may start then."""
    ends = np.unique(queue.reserved[:, 1])
    if not len(ends):
        return queue.running
    found = np.zeros((len(ends), queue.running.shape[1]))
    found[:, 1], found[:, 2:4] = now, np.maximum(ends - now, 0.0)[:, None]
    return np.vstack((queue.running, found))
