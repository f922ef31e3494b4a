"""Compiled EASY backfilling of one pool of processors, in steps that a caller can interrupt.

The rules are those of ``advisor.simulate._kernel``: jobs start from the head of the queue while they fit; the
first that does not gets a reservation at the time by which enough running jobs end *by their limits*; a job
behind it may start now if it ends by its limit before that time, or takes only processors that stay free then
(Lifka 1995; Mu'alem and Feitelson 2001). The same functions run the pool and, on a copy, forecast its queue.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Records: TypeAlias = Any
"""A record array; numba reads its fields as attributes, which the type checker does not know."""

ABSENT, WAITING, RUNNING, ENDED = 0, 1, 2, 3
"""Where a job is, as far as the pool knows."""
STARTS, ENDS = 0, 1
"""What an event says."""

JOB = np.dtype(
    [(name, np.float64) for name in ("rank", "order", "limit", "run", "start", "planned_end", "end")]
    + [(name, np.int64) for name in ("processors", "where", "is_watched")],
    align=True,
)
"""A job: queued by (``rank``, ``order``), smallest first; ``limit`` and ``run`` in seconds (it is killed at
its limit); ``is_watched``: the caller wants to act at its start."""
ENDING = np.dtype([("time", np.float64), ("row", np.int64)], align=True)
EVENT = np.dtype([("time", np.float64), ("row", np.int64), ("kind", np.int64)], align=True)
SCALARS = np.dtype(
    [(name, np.float64) for name in ("now", "shadow")]
    + [
        (name, np.int64)
        for name in ("waiting", "running", "endings", "free", "extra", "is_due", "events", "stops")
    ],
    align=True,
)
"""``shadow``: when the head is reserved to start, at which ``extra`` processors stay free; ``is_due``: a
scheduling pass is due; ``stops``: the caller has to act before the pass goes on."""


class Arrays(NamedTuple):
    """``queue`` and ``running`` hold rows of ``jobs``: by (rank, order), and by planned end."""

    jobs: Records
    queue: Ints
    running: Ints
    ending: Records
    events: Records
    scalars: Records


@compiled
def heap_push(ending: Records, size: int, time: float, row: int) -> None:
    """Add to a heap of ``size`` true ends, smallest (time, row) on top."""
    position = size
    while position > 0:
        parent = (position - 1) >> 1
        above = ending[parent]
        if above.time < time or (above.time == time and above.row < row):
            break
        ending[position].time = above.time
        ending[position].row = above.row
        position = parent
    ending[position].time = time
    ending[position].row = row


@compiled
def heap_pop(ending: Records, size: int) -> None:
    """Remove the top of a heap of ``size`` true ends."""
    size -= 1
    time, row = ending[size].time, ending[size].row
    position = 0
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        if child + 1 < size:
            left, right = ending[child], ending[child + 1]
            child += int(right.time < left.time or (right.time == left.time and right.row < left.row))
        below = ending[child]
        if time < below.time or (time == below.time and row < below.row):
            break
        ending[position].time = below.time
        ending[position].row = below.row
        position = child
    ending[position].time = time
    ending[position].row = row


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
    scalars.waiting += 1
    scalars.is_due = 1


@compiled
def dequeue(arrays: Arrays, row: int) -> None:
    """Take a waiting job out of the queue."""
    queue, scalars = arrays.queue, arrays.scalars[0]
    position = 0
    while queue[position] != row:
        position += 1
    for i in range(position, scalars.waiting - 1):
        queue[i] = queue[i + 1]
    scalars.waiting -= 1
    scalars.is_due = 1
    arrays.jobs[row].where = ABSENT


@compiled
def release(arrays: Arrays, row: int) -> None:
    """Give back a running job's processors now; its true end stays in the heap and is skipped there."""
    jobs, running, scalars = arrays.jobs, arrays.running, arrays.scalars[0]
    position = 0
    while running[position] != row:
        position += 1
    for i in range(position, scalars.running - 1):
        running[i] = running[i + 1]
    scalars.running -= 1
    scalars.free += jobs[row].processors
    scalars.is_due = 1
    jobs[row].end = scalars.now


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
def _start(arrays: Arrays, row: int) -> None:
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
    _note(arrays, row, STARTS)
    if job.is_watched:
        scalars.stops = 1


@compiled
def _note(arrays: Arrays, row: int, kind: int) -> None:
    scalars = arrays.scalars[0]
    event = arrays.events[scalars.events]
    event.time, event.row, event.kind = scalars.now, row, kind
    scalars.events += 1


@compiled
def _reserve(arrays: Arrays, row: int) -> None:
    """Compute the head's reservation."""
    jobs, running, scalars = arrays.jobs, arrays.running, arrays.scalars[0]
    needed, available, shadow = jobs[row].processors, scalars.free, scalars.now
    for i in range(scalars.running):
        other = jobs[running[i]]
        if available >= needed and other.planned_end > shadow:
            break
        available += other.processors
        shadow = max(shadow, other.planned_end)
    scalars.shadow = shadow if available >= needed else np.inf
    scalars.extra = max(0, available - needed)


@compiled
def _pass(arrays: Arrays) -> None:  # noqa: C901  (one pass over one queue)
    """One scheduling pass; stops behind a watched job's start and is due again then."""
    jobs, queue, scalars = arrays.jobs, arrays.queue, arrays.scalars[0]
    scalars.is_due = 0
    started = 0
    while started < scalars.waiting and jobs[queue[started]].processors <= scalars.free:
        started += 1
        _start(arrays, queue[started - 1])
        if scalars.stops:
            break
    if started:
        for i in range(started, scalars.waiting):
            queue[i - started] = queue[i]
        scalars.waiting -= started
    if scalars.stops:
        scalars.is_due = 1
        return
    if scalars.waiting == 0:
        return
    _reserve(arrays, queue[0])
    kept = 1
    for i in range(1, scalars.waiting):
        row = queue[i]
        job = jobs[row]
        if scalars.free > 0 and not scalars.stops and job.processors <= scalars.free:
            ends_before = scalars.now + job.limit <= scalars.shadow
            if ends_before or job.processors <= scalars.extra:
                if not ends_before:
                    scalars.extra -= job.processors
                _start(arrays, row)
                continue
        if scalars.free == 0 and kept == i:
            kept = scalars.waiting
            break
        queue[kept] = row
        kept += 1
    scalars.waiting = kept
    scalars.is_due = scalars.stops


@compiled
def advance(arrays: Arrays, until: float, max_events: int) -> bool:
    """Go on to ``until`` (inclusive), or until a watched job starts; False: so many events are noted first.

    At most ``max_events`` are noted before the last pass; the buffer needs room for that pass as well.
    """
    jobs, ending, scalars = arrays.jobs, arrays.ending, arrays.scalars[0]
    scalars.stops = 0
    while True:
        if scalars.is_due:
            _pass(arrays)
            if scalars.stops:
                return True
            if scalars.events >= max_events:
                return False
        if scalars.endings == 0 or ending[0].time > until:
            break
        scalars.now = max(scalars.now, ending[0].time)
        while scalars.endings > 0 and ending[0].time <= scalars.now:
            row = ending[0].row
            job = jobs[row]
            is_true = job.where == RUNNING and job.end == ending[0].time
            heap_pop(ending, scalars.endings)
            scalars.endings -= 1
            if is_true:
                release(arrays, row)
                job.where = ENDED
                _note(arrays, row, ENDS)
    if until > scalars.now and until < np.inf:
        scalars.now = until
    return True


@compiled
def forecast_starts(arrays: Arrays, runs: Floats, starts: Floats) -> None:
    """When each waiting job would start if no other job came.

    ``runs``: forecast run times by row of ``jobs``, of running jobs in full (an overrun counts as ending in
    a minute, and is doubled by the caller where it can do better); ``starts``: written at the waiting rows,
    seconds on the pool's clock.
    """
    scalars = arrays.scalars[0]
    waiting, running = scalars.waiting, scalars.running
    count = waiting + running
    copy = Arrays(
        np.empty(count, JOB),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, ENDING),
        np.empty(count * 2 + 1, EVENT),
        np.empty(1, SCALARS),
    )
    now = copy.scalars[0]
    now.now, now.free, now.running, now.waiting = scalars.now, scalars.free, running, waiting
    now.endings = now.events = now.stops = 0
    now.is_due = 1
    now.shadow, now.extra = 0.0, 0
    for i in range(count):
        is_running = i < running
        source = arrays.jobs[arrays.running[i] if is_running else arrays.queue[i - running]]
        run = runs[arrays.running[i] if is_running else arrays.queue[i - running]]
        job = copy.jobs[i]
        job.rank, job.order, job.limit = source.rank, source.order, source.limit
        job.processors, job.is_watched, job.run = source.processors, 0, run
        job.where, job.start, job.planned_end, job.end = source.where, source.start, source.planned_end, 0.0
        if is_running:
            job.end = max(job.start + min(run, job.limit), scalars.now + 1.0)
            copy.running[i] = i
            heap_push(copy.ending, now.endings, job.end, i)
            now.endings += 1
        else:
            copy.queue[i - running] = i
    advance(copy, np.inf, 2 * count + 1)
    for i in range(running, count):
        job = copy.jobs[i]
        starts[arrays.queue[i - running]] = job.start if job.where >= RUNNING else np.inf
