"""The start of a job that joins the end of a queue, from one simulation of the queue without it.

Under EASY backfilling the last job of a queue delays no other job before it starts itself. So it starts at
the first scheduling pass that leaves it room: the free processors suffice, and it either ends before the
head's reservation or takes only processors that stay free then.

The submission path needs this wait for every job, and a simulation for each would take too long. So one
simulation, by the run times that are expected, is made for each snapshot of the queue, and serves every job
that might join it: finding a start in it takes a microsecond.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.simulate.heap import ENDING
from advisor.simulate.pool._kernel import EVENT, JOB, RUNNING, SCALARS, WAITING, Arrays, advance

_OVERDUE_SECONDS: Final = 1.0
"""A running job that has run for longer than expected is assumed to end within this time, seconds."""
_FOUND: Final = 32
"""Number of the last starts found that are remembered."""


class StartProfile:
    """The processors that each scheduling pass leaves free, with the jobs that have joined the queue.

    Args:
        passes: Shape ``(4, n)``: the times of the passes, seconds, ascending; free processors; when the head
            of the queue is reserved to start, seconds, infinite where no job waits; processors that stay free
            at the head's start.
    """

    def __init__(self, passes: Floats) -> None:
        self._passes = passes
        self._count = passes.shape[1]
        self._found = np.full((3, _FOUND), np.inf)
        self._oldest = np.zeros(1, np.int64)

    @property
    def passes(self) -> Floats:
        """As given, with two passes for each job that has joined."""
        return self._passes[:, : self._count]

    def copy(self) -> StartProfile:
        """Return a profile that other jobs may join."""
        return StartProfile(self.passes.copy())

    def start_of(self, processors: int, limit: float, now: float) -> float:
        """When a job that joins now would start, seconds; infinite where the machine is too small.

        Args:
            limit: The job's time limit, seconds.
            now: The present time, seconds, not before the first pass.
        """
        found = self._found, self._oldest
        return _start_of(self._passes, self._count, *found, float(processors), limit, now)

    def join(self, processors: int, limit: float, now: float, run: float) -> None:
        """Let a job join the queue, without a new simulation.

        The job keeps the start that it has now. In a whole simulation it might delay jobs that wait before it
        and are not the head, and jobs that join later might delay it: the next simulation shows that.

        Args:
            run: Its expected run time, seconds.
        """
        if self._count + 2 > self._passes.shape[1]:
            more = np.empty((4, 2 * self._count + 2))
            more[:, : self._count] = self.passes
            self._passes = more
        start = self.start_of(processors, limit, now)
        if start < np.inf:
            _join(self._passes, self._count, float(processors), start, start + min(run, limit), start + limit)
            self._count += 2


class QueueProfiles(NamedTuple):
    """The profiles of one queue.

    Attributes:
        expected: Jobs run as long as expected.
        planned: Jobs run to their limits.
    """

    expected: StartProfile
    planned: StartProfile


def queue_profiles(processors: int, now: float, running: Floats, waiting: Floats) -> QueueProfiles:
    """Both profiles; see :func:`start_profile`."""
    to_limits = running[:, [0, 1, 2, 2]], waiting[:, [0, 1, 1]]
    return QueueProfiles(
        start_profile(processors, now, running, waiting), start_profile(processors, now, *to_limits)
    )


def start_profile(processors: int, now: float, running: Floats, waiting: Floats) -> StartProfile:
    """Simulate a queue until it is empty. Jobs are planned by their limits, as Slurm does.

    Args:
        now: The present time, seconds, on the clock of the starts.
        running: Processors, start, limit and expected run time (seconds) of each job that has processors,
            shape ``(r, 4)``.
        waiting: Processors, limit and expected run time (seconds) of each waiting job, in the order of the
            queue, shape ``(w, 3)``.
    """
    ahead = len(running)
    count = ahead + len(waiting)
    jobs = np.zeros(count, JOB)
    jobs["where"][:ahead], jobs["where"][ahead:] = RUNNING, WAITING
    jobs["processors"][:ahead], jobs["processors"][ahead:] = running[:, 0], waiting[:, 0]
    jobs["limit"][:ahead], jobs["limit"][ahead:] = running[:, 2], waiting[:, 1]
    jobs["run"][:ahead], jobs["run"][ahead:] = running[:, 3], waiting[:, 2]
    jobs["start"][:ahead] = running[:, 1]
    planned, ends = np.maximum(running[:, 1, None] + running[:, 2:], now + _OVERDUE_SECONDS).T
    jobs["planned_end"][:ahead], jobs["end"][:ahead] = planned, ends
    by_end = np.argsort(ends, kind="stable")
    ending = np.zeros(count, ENDING)
    ending["time"][:ahead], ending["job"][:ahead] = ends[by_end], by_end  # sorted, so a heap
    scalars = np.zeros(1, SCALARS)
    scalars["now"], scalars["is_due"] = now, 1
    scalars["running"], scalars["waiting"], scalars["endings"] = ahead, count - ahead, ahead
    scalars["free"] = max(0, processors - int(running[:, 0].sum()))
    queue, rows = np.zeros(count, np.int64), np.zeros(count, np.int64)
    queue[: count - ahead], rows[:ahead] = np.arange(ahead, count), np.argsort(planned, kind="stable")
    events, no_nodes = np.zeros(2 * count + 8, EVENT), np.zeros(0, np.int64)
    arrays = Arrays(jobs, queue, rows, ending, events, scalars, np.zeros(0), no_nodes)
    found = np.empty((4, 2 * count + 2))
    return StartProfile(found[:, : _follow(arrays, found)].copy())


@compiled
def _follow(arrays: Arrays, found: Floats) -> int:
    """Write the passes to ``found``, shape ``(4, n)``; return their number."""
    scalars, ending = arrays.scalars[0], arrays.ending
    until, count = scalars.now, 0
    while count < found.shape[1]:
        advance(arrays, until, arrays.events.shape[0])
        is_empty = scalars.waiting == 0
        found[0, count] = scalars.now
        found[1, count] = scalars.free
        found[2, count] = np.inf if is_empty else scalars.shadow
        found[3, count] = scalars.free if is_empty else scalars.extra
        count += 1
        if scalars.endings == 0:
            break
        until = ending[0].time
    return count


@compiled
def _start_of(
    passes: Floats,
    count: int,
    found: Floats,
    oldest: Ints,
    processors: float,
    limit: float,
    now: float,
) -> float:
    """Find a start; a row of ``found`` keeps the processors, another the limits, the third their starts.

    Jobs that join only take room, so a job starts no sooner than a smaller one did.
    """
    times, free, shadows, extras = passes
    no_sooner, place = now, -1
    for k in range(found.shape[1]):
        if found[0, k] <= processors and found[1, k] <= limit:
            no_sooner = max(no_sooner, found[2, k])
            if found[0, k] == processors and found[1, k] == limit:
                place = k
    first = max(0, int(np.searchsorted(times[:count], no_sooner, side="right")) - 1)
    while first > 0 and times[first - 1] == times[first] > now:
        first -= 1
    start = np.inf
    for i in range(first, count):
        time = max(float(times[i]), now)
        if processors <= free[i] and (time + limit <= shadows[i] or processors <= extras[i]):
            start = time
            break
    if place < 0:
        place = oldest[0]
        oldest[0] = (place + 1) % found.shape[1]
    found[0, place], found[1, place], found[2, place] = processors, limit, start
    return start


@compiled
def _join(
    passes: Floats, count: int, processors: float, start: float, end: float, planned_end: float
) -> None:
    """Add passes at a job's start and end, and take its processors between them."""
    times, free, shadows, extras = passes
    first = int(np.searchsorted(times[:count], start, side="left"))
    at_start = int(np.searchsorted(times[:count], start, side="right"))
    at_end = int(np.searchsorted(times[:count], end, side="right"))
    for column in passes:
        before, last = column[max(0, at_start - 1)], column[max(0, at_end - 1)]
        for i in range(count - 1, at_end - 1, -1):
            column[i + 2] = column[i]
        for i in range(at_end - 1, at_start - 1, -1):
            column[i + 1] = column[i]
        column[at_start], column[at_end + 1] = before, last
    times[at_start], times[at_end + 1] = start, end
    for i in range(first, at_end + 1):
        if times[i] >= end:
            break
        free[i] -= processors
        if planned_end > shadows[i] or shadows[i] == np.inf:
            extras[i] = max(0.0, extras[i] - processors)
    for i in range(first - 1, -1, -1):
        if shadows[i] != np.inf:
            break
        shadows[i], extras[i] = start, free[at_start]  # no job waits before it: it is the head
