"""Arrays of the simulation kernel, and the structures kept in them: queue, running jobs.

Each job is one record and the cluster's scalars are one record, so that compiled functions pass few arrays:
numba counts references to each array in each call, which made a version with one array per column twenty
times slower.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Ints
from advisor.compiled import compiled
from advisor.simulate.heap import Records

AHEAD, WAITING, RUNNING, DONE = 0, 1, 2, 3
"""Where a job is."""

JOB = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "requested", "planned", "limit")]
    + [(name, np.float64) for name in ("start", "end", "lost", "planned_end", "key")]
    + [(name, np.int64) for name in ("processors", "user", "where", "rank", "attempts", "corrections")],
    align=True,
)
"""A job: the columns of `Demand`, then the results so far. Times in seconds.

``where``: AHEAD to DONE; ``rank``: its class, or STARVED; ``key``: the policy's sort key, smallest first;
``planned_end``: when it is planned to end; ``lost``: run time of a killed attempt.
"""

CLUSTER = np.dtype(
    [(name, np.float64) for name in ("now", "shadow", "waiting_work")]
    + [(name, np.int64) for name in ("arrived", "head", "tail", "running", "endings", "free", "extra")]
    + [(name, np.int64) for name in ("promoted", "dirty")],
    align=True,
)
"""Scalars that change; times in seconds.

``shadow``: time reserved for the head, at which ``extra`` processors stay free; ``waiting_work``: planned
processor-seconds of the queue; ``head``, ``tail``: the queue's range in its array; ``arrived``,
``promoted``: how many submissions and starvation thresholds have been processed; ``endings``: size of the
heap; ``dirty``: a whole scheduling pass is due.
"""


class Rules(NamedTuple):
    """A :class:`~advisor.papers.cluster.policies.Policy` and the machine, as numbers."""

    total: int
    order: int
    backfill: int
    theta: float
    load_factor: float
    max_theta: float
    predict: bool
    correct: bool


class State(NamedTuple):
    """The kernel's arrays.

    ``queue``: waiting jobs in order; ``running``: running jobs by planned end; ``ending``: heap of true ends;
    ``recent``: (users, 2) run times of each user's last two finished jobs, newest first, NaN for none;
    ``scratch``: working array for backfill candidates.
    """

    jobs: Records
    queue: Ints
    running: Ints
    ending: Records
    recent: NDArray[np.float64]
    scratch: Ints
    scalars: Records


@compiled
def is_before(jobs: Records, left: int, right: int) -> bool:
    """Whether job ``left`` is served before ``right``: by class, then the policy's key, then submission."""
    one, other = jobs[left], jobs[right]
    if one.rank != other.rank:
        return bool(one.rank < other.rank)
    if one.key != other.key:
        return bool(one.key < other.key)
    return left < right


@compiled
def queue_place(queue: Ints, jobs: Records, scalars: Records, row: int) -> int:
    """Position of a job in the ordered queue, or where it would be inserted."""
    low, high = scalars[0].head, scalars[0].tail
    while low < high:
        middle = (low + high) >> 1
        if is_before(jobs, queue[middle], row):
            low = middle + 1
        else:
            high = middle
    return int(low)


@compiled
def queue_insert(queue: Ints, jobs: Records, scalars: Records, row: int) -> int:
    """Insert a job into the ordered queue and return its position.

    The queue first moves to the array's front where the array's end is reached.
    """
    cluster = scalars[0]
    if cluster.tail == len(queue):
        for position in range(cluster.head, cluster.tail):
            queue[position - cluster.head] = queue[position]
        cluster.tail -= cluster.head
        cluster.head = 0
    place = queue_place(queue, jobs, scalars, row)
    position = cluster.tail
    while position > place:
        queue[position] = queue[position - 1]
        position -= 1
    queue[place] = row
    cluster.tail += 1
    return place


@compiled
def queue_remove(queue: Ints, jobs: Records, scalars: Records, row: int) -> None:
    """Remove a job from the queue; its rank and key must be unchanged since it was inserted."""
    for position in range(queue_place(queue, jobs, scalars, row), scalars[0].tail - 1):
        queue[position] = queue[position + 1]
    scalars[0].tail -= 1


@compiled
def running_insert(running: Ints, jobs: Records, count: int, row: int) -> None:
    """Insert a job among ``count`` running ones, ordered by planned end, then by start."""
    end = jobs[row].planned_end
    position = count
    while position > 0 and jobs[running[position - 1]].planned_end > end:
        running[position] = running[position - 1]
        position -= 1
    running[position] = row


@compiled
def running_remove(running: Ints, jobs: Records, count: int, row: int) -> None:
    """Remove a job from ``count`` running ones."""
    low, high = 0, count
    end = jobs[row].planned_end
    while low < high:
        middle = (low + high) >> 1
        if jobs[running[middle]].planned_end < end:
            low = middle + 1
        else:
            high = middle
    while running[low] != row:
        low += 1
    for position in range(low, count - 1):
        running[position] = running[position + 1]
