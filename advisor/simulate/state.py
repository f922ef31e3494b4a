"""Arrays of the simulation kernel, and the small structures kept in them: heap, queue, running jobs.

Everything about one job is one record, and everything that changes about the cluster is one record, so that
compiled functions pass few arrays around: numba counts references to each array of each call, which made a
version with one array a column twenty times slower.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled

Ints = NDArray[np.int64]
Records: TypeAlias = Any
"""A record array; numba reads its fields as attributes, which no type checker knows."""

AHEAD, WAITING, RUNNING, DONE, CLOUD = 0, 1, 2, 3, 4
"""Where a job is."""

JOB = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "requested", "planned", "planned_again", "limit")]
    + [(name, np.float64) for name in ("patience", "start", "end", "lost", "planned_end", "key")]
    + [(name, np.int64) for name in ("processors", "user", "where", "rank", "attempts", "corrections")],
    align=True,
)
"""A job of the demand, and what became of it so far. ``rank``: class, or 0 for the starved."""

ENDING = np.dtype([("time", np.float64), ("job", np.int64)], align=True)
"""When a running attempt truly ends."""

CLUSTER = np.dtype(
    [(name, np.float64) for name in ("now", "shadow", "waiting_work")]
    + [(name, np.int64) for name in ("arrived", "head", "tail", "running", "endings", "free", "extra")]
    + [(name, np.int64) for name in ("left", "promoted", "dirty", "events")],
    align=True,
)
"""Scalars that change.

``shadow``, ``extra``: moment reserved for the head and processors to spare then; ``head``, ``tail``: waiting
jobs in the queue's array; ``arrived``, ``left``, ``promoted``: how far submissions, leavers and starvation
have been gone through; ``dirty``: a whole pass is due.
"""


class Rules(NamedTuple):
    """A :class:`~advisor.simulate.policies.Policy`, the machine and the cloud, as numbers."""

    total: int
    order: int
    backfill: int
    theta: float
    load_factor: float
    theta_at_most: float
    predict: bool
    correct: bool
    boot: float
    slowdown: float


class State(NamedTuple):
    """The kernel's arrays.

    ``queue``: waiting jobs in order; ``running``: running jobs by planned end; ``ending``: heap of true ends;
    ``recent``: (users, 2) run times of each user's last finished jobs, newest first, NaN for none;
    ``leaving``: jobs with a patience by the moment it ends; ``scratch``: room for candidates.
    """

    job: Records
    queue: Ints
    running: Ints
    ending: Records
    recent: NDArray[np.float64]
    leaving: Ints
    scratch: Ints
    cluster: Records


@compiled
def heap_push(ending: Records, size: int, time: float, job: int) -> None:
    """Add to a heap of ``size`` entries, smallest (time, job) on top."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        above = ending[parent]
        if above.time < time or (above.time == time and above.job < job):
            break
        ending[at].time = above.time
        ending[at].job = above.job
        at = parent
    ending[at].time = time
    ending[at].job = job


@compiled
def heap_pop(ending: Records, size: int) -> None:
    """Remove the top of a heap of ``size`` entries."""
    size -= 1
    time, job = ending[size].time, ending[size].job
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        left, right = ending[child], ending[child + 1]
        if child + 1 < size:
            is_right = right.time < left.time or (right.time == left.time and right.job < left.job)
            child += int(is_right)
        below = ending[child]
        if time < below.time or (time == below.time and job < below.job):
            break
        ending[at].time = below.time
        ending[at].job = below.job
        at = child
    ending[at].time = time
    ending[at].job = job


@compiled
def is_before(job: Records, left: int, right: int) -> bool:
    """Whether row ``left`` is served before ``right``: class, then the policy's key, then submission."""
    one, other = job[left], job[right]
    if one.rank != other.rank:
        return bool(one.rank < other.rank)
    if one.key != other.key:
        return bool(one.key < other.key)
    return left < right


@compiled
def queue_place(queue: Ints, job: Records, cluster: Records, row: int) -> int:
    """Position at which a job stands, or would stand, in the ordered queue."""
    low, high = cluster[0].head, cluster[0].tail
    while low < high:
        middle = (low + high) >> 1
        if is_before(job, queue[middle], row):
            low = middle + 1
        else:
            high = middle
    return int(low)


@compiled
def queue_insert(queue: Ints, job: Records, cluster: Records, row: int) -> int:
    """Put a job at its place; returns the position. Slides the queue down when the array's end is reached."""
    it = cluster[0]
    if it.tail == len(queue):
        for at in range(it.head, it.tail):
            queue[at - it.head] = queue[at]
        it.tail -= it.head
        it.head = 0
    place = queue_place(queue, job, cluster, row)
    at = it.tail
    while at > place:
        queue[at] = queue[at - 1]
        at -= 1
    queue[place] = row
    it.tail += 1
    return place


@compiled
def queue_remove(queue: Ints, job: Records, cluster: Records, row: int) -> None:
    """Take a job out of the queue; its rank and key must be those it was put in with."""
    for at in range(queue_place(queue, job, cluster, row), cluster[0].tail - 1):
        queue[at] = queue[at + 1]
    cluster[0].tail -= 1


@compiled
def running_insert(running: Ints, job: Records, count: int, row: int) -> None:
    """Put a job among ``count`` running ones, by planned end; equal ends in the order of starts."""
    end = job[row].planned_end
    at = count
    while at > 0 and job[running[at - 1]].planned_end > end:
        running[at] = running[at - 1]
        at -= 1
    running[at] = row


@compiled
def running_remove(running: Ints, job: Records, count: int, row: int) -> None:
    """Take a job from among ``count`` running ones."""
    low, high = 0, count
    end = job[row].planned_end
    while low < high:
        middle = (low + high) >> 1
        if job[running[middle]].planned_end < end:
            low = middle + 1
        else:
            high = middle
    while running[low] != row:
        low += 1
    for at in range(low, count - 1):
        running[at] = running[at + 1]
