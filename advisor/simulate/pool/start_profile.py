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

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.simulate.heap import ENDING
from advisor.simulate.pool._kernel import EVENT, JOB, RUNNING, SCALARS, WAITING, Arrays, advance

_OVERDUE_SECONDS: Final = 1.0
"""A running job that has run for longer than expected is assumed to end within this time, seconds."""


class StartProfile(NamedTuple):
    """The processors that each scheduling pass leaves free; arrays of shape ``(passes,)``.

    Attributes:
        times: Times of the passes, seconds, ascending.
        free: Free processors.
        shadows: When the head of the queue is reserved to start, seconds; infinite where no job waits.
        extras: Processors that stay free at the head's start.
    """

    times: Floats
    free: Floats
    shadows: Floats
    extras: Floats


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
    return StartProfile(*found[:, : _follow(arrays, found)])


def start_of(profile: StartProfile, processors: int, limit: float, now: float) -> float:
    """When a job that joins the queue now would start, seconds; infinite where the machine is too small.

    Args:
        limit: The job's time limit, seconds.
        now: The present time, seconds, not before the profile's first pass.
    """
    return _start_of(*profile, float(processors), limit, now)


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
    times: Floats,
    free: Floats,
    shadows: Floats,
    extras: Floats,
    processors: float,
    limit: float,
    now: float,
) -> float:
    first = max(0, int(np.searchsorted(times, now, side="right")) - 1)
    for i in range(first, times.shape[0]):
        time = max(float(times[i]), now)
        if processors <= free[i] and (time + limit <= shadows[i] or processors <= extras[i]):
            return time
    return np.inf


def with_job(profile: StartProfile, processors: int, limit: float, now: float, run: float) -> StartProfile:
    """Return the profile once a job has joined the queue, without a new simulation.

    Args:
        run: Its expected run time, seconds.

    The job keeps the start that it has now. In a whole simulation it might delay jobs that wait before it and
    are not the head, and jobs that join later might delay it: the next simulation shows that.
    """
    start = start_of(profile, processors, limit, now)
    if start == np.inf:
        return profile
    found = np.empty((4, len(profile.times) + 2))
    _take(profile, float(processors), start, start + min(run, limit), start + limit, found)
    return StartProfile(*found)


@compiled
def _take(
    profile: StartProfile, processors: float, start: float, end: float, planned_end: float, found: Floats
) -> None:
    """Write the passes with two more at the job's start and end, and without its processors between them."""
    times, free, shadows, extras = profile
    # merge: passes in order, the start and the end of the job at their places
    row, added = 0, 0
    for i in range(found.shape[1]):
        following = times[row] if row < times.shape[0] else np.inf
        moment = start if added == 0 else end if added == 1 else np.inf
        if following <= moment:
            time, source = following, row
            row += 1
        else:
            time, source = moment, max(0, row - 1)
            added += 1
        found[0, i], found[1, i] = time, free[source]
        found[2, i], found[3, i] = shadows[source], extras[source]
    at_start = 0.0
    for i in range(found.shape[1]):
        time = found[0, i]
        if start <= time < end:
            found[1, i] -= processors
            if planned_end > found[2, i] or found[2, i] == np.inf:
                found[3, i] = max(0.0, found[3, i] - processors)
            if time == start:
                at_start = found[1, i]
    for i in range(found.shape[1]):
        if found[0, i] < start and found[2, i] == np.inf:  # no job waits before it: it is the head
            found[2, i], found[3, i] = start, at_start
