"""The state of a pool of processors, and the changes of it: jobs that queue, start, end and leave."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled, compiled_in_place
from advisor.simulate.heap import Records, heap_push

ABSENT, WAITING, RUNNING, ENDED = 0, 1, 2, 3
"""Where a job is, as far as the pool knows."""
STARTS, ENDS = 0, 1
"""The fields of an event."""
FREE, EXTRA, AWAITED = range(3)
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
    "first",
    "last",
    "ahead",
    "is_whole",
    "awaited",
    "awaited_processors",
    "head",
    "lacking",
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
            "horizon",
            "window",
            "widening",
        )
    ]
    + [(name, np.int64) for name in _COUNTS],
    align=True,
)
"""``shadow``: when the head is reserved to start, at which ``extra`` processors stay free; ``is_due``: a
scheduling pass is due; ``stops``: the caller has to act before the pass goes on; ``cycle``, ``reservations``,
``depth``, ``horizon``, ``window``, ``widening``: see ``advisor.simulate.pool.rules.Rules``, all 0: EASY;
``others``: of ``other_ends``; ``next_cycle``: when backfilling is due; ``first``, ``last``: the places in
``queue`` of its head, and behind its end; ``ahead``: the place in ``running`` of its first job; ``is_whole``:
sums of ``needs`` are exact. The job ``head`` waits until the first ``awaited`` jobs of ``running`` end by
their limits, which have ``awaited_processors``; ``lacking``: as many are to be given back before it may await
fewer jobs."""
BLOCK = 64
"""So many places of the queue have one row of ``least``."""
GONE = -1
"""Stands in the queue where a job has left it."""


class Arrays(NamedTuple):
    """``queue`` and ``running`` hold rows of ``jobs``: by (rank, order), and by planned end, without holes.

    ``other_ends``: planned ends of running jobs of other partitions, ascending; ``owner``: the row that has
    each node, or -1, where the plan is made node by node. ``needs``: what each row takes beside processors,
    shape ``(rows, k)``; ``stock``: how much of it is free, stays free at the head's start, and is what the
    awaited jobs have, shape ``(3, k)``; ``windows``: from when until when it counts, seconds, shape
    ``(2, k)``: what a reservation leaves to jobs is a resource of those that may run then by their limits.
    ``groups``: what is left to the jobs of each group, such as a user's; 0 is no group. A job whose group has
    too little does not hold others up. A plan made node by node knows processors alone. ``least``: the
    processors and the limit of which no waiting job of a block of ``queue`` has less, shape ``(blocks, 2)``;
    0: not known.
    """

    jobs: Records
    queue: Ints
    least: Floats
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


def is_whole(needs: Floats, sizes: Floats) -> bool:
    """Whether sums of what jobs need beside processors are exact: whole numbers below 2**40."""
    return all(bool(np.all((values == np.floor(values)) & (values < 2.0**40))) for values in (needs, sizes))


@compiled
def blocks_of(capacity: int) -> Floats:
    """The array ``least`` of a queue with so many places; nothing is known."""
    return np.zeros((capacity // BLOCK + 1, 2))


@compiled_in_place
def close_up(arrays: Arrays) -> None:
    """Move the waiting jobs to the first places of the queue."""
    queue, scalars = arrays.queue, arrays.scalars[0]
    if scalars.first == 0 and scalars.last == scalars.waiting:
        return
    kept = 0
    for i in range(scalars.first, scalars.last):
        if queue[i] != GONE:
            queue[kept] = queue[i]
            kept += 1
    scalars.first, scalars.last = 0, kept
    arrays.least[:] = 0.0


@compiled_in_place
def enqueue(arrays: Arrays, row: int) -> None:
    """Put a job at its place in the queue."""
    jobs, queue, scalars = arrays.jobs, arrays.queue, arrays.scalars[0]
    if scalars.last == len(queue) or scalars.last - scalars.first > 2 * scalars.waiting + BLOCK:
        close_up(arrays)
    if scalars.head == row:  # it may ask for fewer processors than before
        scalars.head = -1
    job = jobs[row]
    job.where = WAITING
    position = scalars.last
    while position > scalars.first:
        if queue[position - 1] != GONE:
            other = jobs[queue[position - 1]]
            if other.rank < job.rank or (other.rank == job.rank and other.order <= job.order):
                break
        queue[position] = queue[position - 1]
        position -= 1
    queue[position] = row
    arrays.least[position // BLOCK : scalars.last // BLOCK + 1] = 0.0
    scalars.last += 1
    scalars.waiting += 1
    scalars.is_due = 1


@compiled_in_place
def leave(arrays: Arrays, position: int) -> None:
    """Let the job at a place of the queue leave it."""
    queue, scalars = arrays.queue, arrays.scalars[0]
    queue[position] = GONE
    scalars.waiting -= 1
    while scalars.first < scalars.last and queue[scalars.first] == GONE:
        scalars.first += 1


@compiled_in_place
def dequeue(arrays: Arrays, row: int) -> None:
    """Take a waiting job out of the queue."""
    scalars = arrays.scalars[0]
    position = scalars.first
    while arrays.queue[position] != row:
        position += 1
    leave(arrays, position)
    scalars.is_due = 1
    arrays.jobs[row].where = ABSENT


@compiled_in_place
def _ending_from(arrays: Arrays, time: float) -> int:
    """The place in ``running`` of the first job that is planned to end then or later."""
    jobs, running, scalars = arrays.jobs, arrays.running, arrays.scalars[0]
    low, high = scalars.ahead, scalars.ahead + scalars.running
    while low < high:
        middle = (low + high) // 2
        if jobs[running[middle]].planned_end < time:
            low = middle + 1
        else:
            high = middle
    return int(low)


@compiled_in_place
def release(arrays: Arrays, row: int) -> None:
    """Give back a running job's processors now; its true end stays in the heap and is skipped there."""
    jobs, running, scalars = arrays.jobs, arrays.running, arrays.scalars[0]
    position = _ending_from(arrays, jobs[row].planned_end)
    while running[position] != row:
        position += 1
    if position - scalars.ahead < scalars.awaited:
        count_awaited(arrays, row, -1)
    scalars.running -= 1
    last = scalars.ahead + scalars.running
    if position - scalars.ahead < last - position:
        for i in range(position, scalars.ahead, -1):
            running[i] = running[i - 1]
        scalars.ahead += 1
    else:
        for i in range(position, last):
            running[i] = running[i + 1]
    scalars.free += jobs[row].processors
    scalars.lacking -= jobs[row].processors
    give(arrays, row, FREE, jobs[row].start, 1.0)
    arrays.groups[jobs[row].group] += jobs[row].units
    scalars.is_due = 1
    jobs[row].end = scalars.now
    for node in range(len(arrays.owner)):
        if arrays.owner[node] == row:
            arrays.owner[node] = -1


@compiled_in_place
def stop(arrays: Arrays, row: int) -> None:
    """End a running job now; rebuild the heap of true ends when it has many of stopped jobs."""
    jobs, ending, scalars = arrays.jobs, arrays.ending, arrays.scalars[0]
    release(arrays, row)
    jobs[row].where = ABSENT
    if scalars.endings > 2 * scalars.running + 64:
        scalars.endings = 0
        for i in range(scalars.running):
            other = arrays.running[scalars.ahead + i]
            heap_push(ending, scalars.endings, jobs[other].end, other)
            scalars.endings += 1


@compiled_in_place
def start_job(arrays: Arrays, row: int) -> None:
    """Let a job run from now on; the caller takes it out of the queue."""
    jobs, running, scalars = arrays.jobs, arrays.running, arrays.scalars[0]
    job = jobs[row]
    job.where = RUNNING
    job.start = scalars.now
    job.planned_end = scalars.now + job.limit
    job.end = scalars.now + min(job.run, job.limit)
    position = _ending_from(arrays, np.nextafter(job.planned_end, np.inf))
    if position - scalars.ahead < scalars.awaited:
        count_awaited(arrays, row, 1)
    last = scalars.ahead + scalars.running
    if scalars.ahead > 0 and (position - scalars.ahead < last - position or last == len(running)):
        position -= 1
        scalars.ahead -= 1
        for i in range(scalars.ahead, position):
            running[i] = running[i + 1]
    else:
        for i in range(last, position, -1):
            running[i] = running[i - 1]
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


@compiled_in_place
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


@compiled_in_place
def has_room(needs: Floats, left: Floats, windows: Floats, row: int, when: Lasting) -> bool:
    """Whether enough of each further resource is left for a job.

    It takes few arrays: a call with all of them costs more than the question, which is asked of thousands of
    jobs at each end of one.
    """
    for k in range(len(left)):
        if needs[row, k] > max(0.0, left[k]) and when.start < windows[1, k] and when.end > windows[0, k]:
            return False
    return True


@compiled_in_place
def add_to(left: Floats, needs: Floats, windows: Floats, row: int, when: Lasting, times: float) -> None:
    """Add, so many times, what a job takes of each further resource."""
    for k in range(len(left)):
        if when.start < windows[1, k] and when.end > windows[0, k]:
            left[k] += times * needs[row, k]


@compiled_in_place
def fits(arrays: Arrays, row: int, which: int, start: float) -> bool:
    """Whether a row of ``stock`` has what a job that starts then takes beside processors."""
    when = Lasting(start, start + arrays.jobs[row].limit)
    return has_room(arrays.needs, arrays.stock[which], arrays.windows, row, when)


@compiled_in_place
def give(arrays: Arrays, row: int, which: int, start: float, times: float) -> None:
    """Add to a row of ``stock``, so many times, what a job that starts then takes beside processors."""
    when = Lasting(start, start + arrays.jobs[row].limit)
    add_to(arrays.stock[which], arrays.needs, arrays.windows, row, when, times)


@compiled_in_place
def count_awaited(arrays: Arrays, row: int, times: int) -> None:
    """Count a running job among those that the head awaits (``times`` 1), or no longer (-1)."""
    scalars, start = arrays.scalars[0], arrays.jobs[row].start
    scalars.awaited += times
    scalars.awaited_processors += times * arrays.jobs[row].processors
    give(arrays, row, AWAITED, start, float(times))


@compiled_in_place
def is_held(arrays: Arrays, row: int) -> bool:
    """Whether a job's group has too little left for it."""
    job = arrays.jobs[row]
    return bool(job.units > arrays.groups[job.group])
