"""The state of a pool of processors, and the changes of it: jobs that queue, start, end and leave."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.simulate.heap import Records, heap_push

ABSENT, WAITING, RUNNING, ENDED = 0, 1, 2, 3
"""Where a job is, as far as the pool knows."""
STARTS, ENDS = 0, 1
"""The fields of an event."""
FREE, EXTRA = 0, 1
"""The rows of ``stock``."""

JOB = np.dtype(
    [(name, np.float64) for name in ("rank", "order", "limit", "run", "start", "planned_end", "end", "units")]
    + [(name, np.int64) for name in ("processors", "where", "is_watched", "group")],
    align=True,
)
"""A job: queued by (``rank``, ``order``), smallest first; ``limit`` and ``run`` in seconds (it is killed at
its limit); ``is_watched``: the caller wants to act at its start; ``units``: what it takes of its group's."""
EVENT = np.dtype([("time", np.float64), ("row", np.int64), ("kind", np.int64)], align=True)
_COUNTS = (
    "waiting",
    "running",
    "endings",
    "free",
    "extra",
    "is_due",
    "events",
    "stops",
    "is_cycle_due",
    "reservations",
    "depth",
    "others",
    "by_node",
    "least_processors",
)
SCALARS = np.dtype(
    [
        (name, np.float64)
        for name in (
            "now",
            "shadow",
            "cycle",
            "next_cycle",
            "last_cycle",
            "window",
            "widening",
            "least_limit",
        )
    ]
    + [(name, np.int64) for name in _COUNTS],
    align=True,
)
"""``shadow``: when the head is reserved to start, at which ``extra`` processors stay free; ``is_due``: a
scheduling pass is due; ``stops``: the caller has to act before the pass goes on; ``cycle``, ``reservations``,
``depth``, ``window``, ``widening``: see ``advisor.simulate.pool.rules.Rules``, all 0: EASY; ``others``: of
``other_ends``; ``next_cycle``: when backfilling is due; ``least_processors``, ``least_limit``: no waiting job
needs less, or has a shorter limit; 0: not known."""


class Arrays(NamedTuple):
    """``queue`` and ``running`` hold rows of ``jobs``: by (rank, order), and by planned end.

    ``other_ends``: planned ends of running jobs of other partitions, ascending; ``owner``: the row that has
    each node, or -1, where the plan is made node by node. ``needs``: what each row takes beside processors,
    shape ``(rows, k)``; ``stock``: how much of it is free, and stays free at the head's start, shape ``(2,
    k)``; ``windows``: from when until when it counts, seconds, shape ``(2, k)``: what a reservation leaves to
    jobs is a resource of those that may run then by their limits. ``groups``: what is left to the jobs of
    each group, such as a user's; 0 is no group. A job whose group has too little does not hold others up. A
    plan made node by node knows processors alone.
    """

    jobs: Records
    queue: Ints
    running: Ints
    ending: Records
    events: Records
    scalars: Records
    other_ends: Floats
    owner: Ints
    needs: Floats
    stock: Floats
    windows: Floats
    groups: Floats


@compiled
def enqueue(arrays: Arrays, row: int) -> None:
    """Put a job at its place in the queue."""
    jobs, queue, scalars = arrays.jobs, arrays.queue, arrays.scalars[0]
    job = jobs[row]
    job.where = WAITING
    position = scalars.waiting
    while position > 0:
        other = jobs[queue[position - 1]]
        if other.rank < job.rank or (other.rank == job.rank and other.order <= job.order):
            break
        queue[position] = queue[position - 1]
        position -= 1
    queue[position] = row
    scalars.least_processors = min(scalars.least_processors, job.processors)
    scalars.least_limit = min(scalars.least_limit, job.limit)
    scalars.waiting += 1
    scalars.is_due = 1


@compiled
def _take_out(rows: Ints, count: int, row: int) -> None:
    """Take a row out of the first ``count`` of a list; those behind it move up."""
    position = 0
    while rows[position] != row:
        position += 1
    for i in range(position, count - 1):
        rows[i] = rows[i + 1]


@compiled
def dequeue(arrays: Arrays, row: int) -> None:
    """Take a waiting job out of the queue."""
    scalars = arrays.scalars[0]
    _take_out(arrays.queue, scalars.waiting, row)
    scalars.waiting -= 1
    scalars.is_due = 1
    arrays.jobs[row].where = ABSENT


@compiled
def release(arrays: Arrays, row: int) -> None:
    """Give back a running job's processors now; its true end stays in the heap and is skipped there."""
    jobs, scalars = arrays.jobs, arrays.scalars[0]
    _take_out(arrays.running, scalars.running, row)
    scalars.running -= 1
    scalars.free += jobs[row].processors
    give(arrays, row, FREE, jobs[row].start, 1.0)
    arrays.groups[jobs[row].group] += jobs[row].units
    scalars.is_due = 1
    jobs[row].end = scalars.now
    for node in range(len(arrays.owner)):
        if arrays.owner[node] == row:
            arrays.owner[node] = -1


@compiled
def stop(arrays: Arrays, row: int) -> None:
    """End a running job now; rebuild the heap of true ends when it has many of stopped jobs."""
    jobs, ending, scalars = arrays.jobs, arrays.ending, arrays.scalars[0]
    release(arrays, row)
    jobs[row].where = ABSENT
    if scalars.endings > 2 * scalars.running + 64:
        scalars.endings = 0
        for i in range(scalars.running):
            other = arrays.running[i]
            heap_push(ending, scalars.endings, jobs[other].end, other)
            scalars.endings += 1


@compiled
def start_job(arrays: Arrays, row: int) -> None:
    """Let a job run from now on; the caller takes it out of the queue."""
    jobs, running, scalars = arrays.jobs, arrays.running, arrays.scalars[0]
    job = jobs[row]
    job.where = RUNNING
    job.start = scalars.now
    job.planned_end = scalars.now + job.limit
    job.end = scalars.now + min(job.run, job.limit)
    position = scalars.running
    while position > 0 and jobs[running[position - 1]].planned_end > job.planned_end:
        running[position] = running[position - 1]
        position -= 1
    running[position] = row
    scalars.running += 1
    heap_push(arrays.ending, scalars.endings, job.end, row)
    scalars.endings += 1
    scalars.free -= job.processors
    give(arrays, row, FREE, scalars.now, -1.0)
    arrays.groups[job.group] -= job.units
    note(arrays, row, STARTS)
    if job.is_watched:
        scalars.stops = 1


@compiled
def note(arrays: Arrays, row: int, kind: int) -> None:
    """Note that a job starts or ends now."""
    scalars = arrays.scalars[0]
    event = arrays.events[scalars.events]
    event.time, event.row, event.kind = scalars.now, row, kind
    scalars.events += 1


class Lasting(NamedTuple):
    """From when on, and until when, a job takes of further resources: its start and its planned end."""

    start: float
    end: float


@compiled
def has_room(needs: Floats, left: Floats, windows: Floats, row: int, when: Lasting) -> bool:
    """Whether enough of each further resource is left for a job.

    It takes few arrays: a call with all of them costs more than the question, which is asked of thousands of
    jobs at each end of one.
    """
    for k in range(len(left)):
        if needs[row, k] > max(0.0, left[k]) and when.start < windows[1, k] and when.end > windows[0, k]:
            return False
    return True


@compiled
def add_to(left: Floats, needs: Floats, windows: Floats, row: int, when: Lasting, times: float) -> None:
    """Add, so many times, what a job takes of each further resource."""
    for k in range(len(left)):
        if when.start < windows[1, k] and when.end > windows[0, k]:
            left[k] += times * needs[row, k]


@compiled
def fits(arrays: Arrays, row: int, which: int, start: float) -> bool:
    """Whether a row of ``stock`` has what a job that starts then takes beside processors."""
    when = Lasting(start, start + arrays.jobs[row].limit)
    return has_room(arrays.needs, arrays.stock[which], arrays.windows, row, when)


@compiled
def give(arrays: Arrays, row: int, which: int, start: float, times: float) -> None:
    """Add to a row of ``stock``, so many times, what a job that starts then takes beside processors."""
    when = Lasting(start, start + arrays.jobs[row].limit)
    add_to(arrays.stock[which], arrays.needs, arrays.windows, row, when, times)


@compiled
def is_held(arrays: Arrays, row: int) -> bool:
    """Whether a job's group has too little left for it."""
    job = arrays.jobs[row]
    return bool(job.units > arrays.groups[job.group])
