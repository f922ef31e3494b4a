"""Compiled EASY backfilling of one pool of processors, in steps that a caller can interrupt.

Jobs start from the head of the queue while they fit; the
first that does not gets a reservation at the time by which enough running jobs end *by their limits*; a job
behind it may start now if it ends by its limit before that time, or takes only processors that stay free then
(Lifka 1995; Mu'alem and Feitelson 2001). Where more jobs get reservations, or backfilling has its own cycle,
the rules are those of Slurm (``advisor.simulate.pool.rules``). The same functions run the pool and, on a
copy, forecast its queue.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.simulate.heap import Records, heap_pop, heap_push
from advisor.simulate.pool._nodes import Running, pick_nodes, planned_start, reserve

ABSENT, WAITING, RUNNING, ENDED = 0, 1, 2, 3
"""Where a job is, as far as the pool knows."""
STARTS, ENDS = 0, 1
"""The fields of an event."""
FREE, EXTRA = 0, 1
"""The rows of ``stock``."""

JOB = np.dtype(
    [(name, np.float64) for name in ("rank", "order", "limit", "run", "start", "planned_end", "end")]
    + [(name, np.int64) for name in ("processors", "where", "is_watched")],
    align=True,
)
"""A job: queued by (``rank``, ``order``), smallest first; ``limit`` and ``run`` in seconds (it is killed at
its limit); ``is_watched``: the caller wants to act at its start."""
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
)
SCALARS = np.dtype(
    [
        (name, np.float64)
        for name in ("now", "shadow", "cycle", "next_cycle", "last_cycle", "window", "widening")
    ]
    + [(name, np.int64) for name in _COUNTS],
    align=True,
)
"""``shadow``: when the head is reserved to start, at which ``extra`` processors stay free; ``is_due``: a
scheduling pass is due; ``stops``: the caller has to act before the pass goes on; ``cycle``, ``reservations``,
``depth``, ``window``, ``widening``: see ``advisor.simulate.pool.rules.Rules``, all 0: EASY; ``others``: of
``other_ends``; ``next_cycle``: when backfilling is due."""
_POLL_SECONDS = 1.0  # an idle backfill thread of Slurm looks so often whether there is work


class Arrays(NamedTuple):
    """``queue`` and ``running`` hold rows of ``jobs``: by (rank, order), and by planned end.

    ``other_ends``: planned ends of running jobs of other partitions, ascending; ``owner``: the row that has
    each node, or -1, where the plan is made node by node. ``needs``: what each row takes beside processors,
    shape ``(rows, k)``; ``stock``: how much of it is free, and stays free at the head's start, shape ``(2,
    k)``; ``windows``: from when until when it counts, seconds, shape ``(2, k)``: what a reservation leaves to
    jobs is a resource of those that may run then by their limits. A plan by node knows processors alone.
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
    _give(arrays, row, FREE, jobs[row].start, 1.0)
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
    _give(arrays, row, FREE, scalars.now, -1.0)
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
def _counts(arrays: Arrays, row: int, k: int, start: float) -> bool:
    """Whether a job that starts then takes of a further resource within its window."""
    begins, ends = arrays.windows[0, k], arrays.windows[1, k]
    return bool(start < ends and start + arrays.jobs[row].limit > begins)


@compiled
def _fits(arrays: Arrays, row: int, which: int, start: float) -> bool:
    """Whether a row of ``stock`` has what a job that starts then takes beside processors."""
    fits = True
    for k in range(arrays.stock.shape[1]):
        fits = fits and (arrays.needs[row, k] <= arrays.stock[which, k] or not _counts(arrays, row, k, start))
    return fits


@compiled
def _give(arrays: Arrays, row: int, which: int, start: float, times: float) -> None:
    """Add to a row of ``stock``, so many times, what a job that starts then takes beside processors."""
    for k in range(arrays.stock.shape[1]):
        if _counts(arrays, row, k, start):
            arrays.stock[which, k] += times * arrays.needs[row, k]


@compiled
def _reserve(arrays: Arrays, row: int) -> None:
    """Compute the head's reservation."""
    jobs, running, scalars = arrays.jobs, arrays.running, arrays.scalars[0]
    needed, available, shadow = jobs[row].processors, scalars.free, scalars.now
    arrays.stock[EXTRA] = arrays.stock[FREE]
    for i in range(scalars.running):
        other = jobs[running[i]]
        if available >= needed and other.planned_end > shadow and _fits(arrays, row, EXTRA, shadow):
            break
        available += other.processors
        _give(arrays, running[i], EXTRA, other.start, 1.0)
        shadow = max(shadow, other.planned_end)
    is_enough = available >= needed and _fits(arrays, row, EXTRA, shadow)
    scalars.shadow = shadow if is_enough else np.inf
    scalars.extra = max(0, available - needed)
    _give(arrays, row, EXTRA, shadow, -1.0)
    arrays.stock[EXTRA] = np.maximum(0.0, arrays.stock[EXTRA])


@compiled
def _pass(arrays: Arrays) -> None:
    """One scheduling pass; stops behind a watched job's start and is due again then."""
    scalars = arrays.scalars[0]
    scalars.is_due = 0
    _start_heads(arrays)
    if scalars.stops:
        scalars.is_due = 1
        return
    if scalars.waiting == 0:
        return
    if scalars.cycle > 0.0:
        if not scalars.is_cycle_due:
            scalars.is_cycle_due = 1
            ready = scalars.last_cycle + scalars.cycle
            late = max(0.0, scalars.now - ready)
            scalars.next_cycle = ready + _POLL_SECONDS * np.ceil(late / _POLL_SECONDS)
    elif scalars.by_node:
        _backfill_by_node(arrays)
    else:
        _backfill_easy(arrays)
    scalars.is_due = scalars.stops


@compiled
def _start_heads(arrays: Arrays) -> None:
    """Start jobs from the head of the queue while they fit, or until a watched one has started."""
    jobs, queue, scalars = arrays.jobs, arrays.queue, arrays.scalars[0]
    started = 0
    while started < scalars.waiting and jobs[queue[started]].processors <= scalars.free:
        if not _fits(arrays, queue[started], FREE, scalars.now):
            break
        started += 1
        if scalars.by_node:
            chosen = np.empty(len(arrays.owner), np.bool_)
            pick_nodes(arrays.owner < 0, jobs[queue[started - 1]].processors, chosen)
            arrays.owner[chosen] = queue[started - 1]
        _start(arrays, queue[started - 1])
        if scalars.stops:
            break
    if started:
        for i in range(started, scalars.waiting):
            queue[i - started] = queue[i]
        scalars.waiting -= started


@compiled
def _backfill_easy(arrays: Arrays) -> None:
    """Start what does not delay the head; one reservation, in one pass over the queue."""
    jobs, queue, scalars = arrays.jobs, arrays.queue, arrays.scalars[0]
    _reserve(arrays, queue[0])
    kept = 1
    for i in range(1, scalars.waiting):
        row = queue[i]
        job = jobs[row]
        if scalars.free > 0 and not scalars.stops and job.processors <= scalars.free:
            ends_before = scalars.now + job.limit <= scalars.shadow
            is_extra = job.processors <= scalars.extra and _fits(arrays, row, EXTRA, scalars.now)
            if (ends_before or is_extra) and _fits(arrays, row, FREE, scalars.now):
                if not ends_before:
                    scalars.extra -= job.processors
                    _give(arrays, row, EXTRA, scalars.now, -1.0)
                _start(arrays, row)
                continue
        if scalars.free == 0 and kept == i:
            kept = scalars.waiting
            break
        queue[kept] = row
        kept += 1
    scalars.waiting = kept


@compiled
def _backfill_by_node(arrays: Arrays) -> None:
    """Plan the queue in its order; start what can start now, reserve nodes for the first of the others."""
    jobs, queue, scalars = arrays.jobs, arrays.queue, arrays.scalars[0]
    nodes = len(arrays.owner)
    room = 2 * min(scalars.waiting, scalars.depth, scalars.reservations) + 3
    times, open_nodes, chosen = np.empty(room), np.ones((room, nodes), np.bool_), np.empty(nodes, np.bool_)
    times[0] = scalars.now
    steps, running = 1, _running(arrays)
    reserved = kept = 0
    for i in range(scalars.waiting):
        row = queue[i]
        job = jobs[row]
        if i < scalars.depth and not scalars.stops and scalars.free > 0:
            wanted = (job.processors, job.limit, reserved < scalars.reservations)
            start = planned_start(
                running, times, open_nodes, steps, wanted, (scalars.window, scalars.widening), chosen
            )
            if start <= scalars.now:
                arrays.owner[chosen] = row
                _start(arrays, row)
                running = _running(arrays)
                continue
            if start < np.inf:
                steps = reserve(times, open_nodes, steps, start, start + job.limit, chosen)
                reserved += 1
        queue[kept] = row
        kept += 1
    scalars.waiting = kept


@compiled
def _running(arrays: Arrays) -> Running:
    jobs, scalars = arrays.jobs, arrays.scalars[0]
    ends = np.empty(scalars.running)
    holder = np.full(len(arrays.owner), -1)
    for i in range(scalars.running):
        ends[i] = jobs[arrays.running[i]].planned_end
        holder[arrays.owner == arrays.running[i]] = i
    return Running(ends, arrays.other_ends[: scalars.others], holder)


@compiled
def _cycle(arrays: Arrays) -> None:
    """Backfill in its own cycle; once more at once behind a watched job's start."""
    scalars = arrays.scalars[0]
    scalars.last_cycle, scalars.is_cycle_due = scalars.now, 0
    if scalars.waiting:
        _backfill_by_node(arrays)
    if scalars.stops:
        scalars.next_cycle, scalars.is_cycle_due = scalars.now, 1


@compiled
def advance(arrays: Arrays, until: float, max_events: int) -> bool:
    """Go on to ``until`` (inclusive), or until a watched job starts; False: so many events are noted first.

    At most ``max_events`` are noted before the last pass; the buffer needs room for that pass as well.
    """
    ending, scalars = arrays.ending, arrays.scalars[0]
    scalars.stops = 0
    while True:
        if scalars.is_due:
            _pass(arrays)
        following = ending[0].time if scalars.endings > 0 else np.inf
        is_cycle = not scalars.is_due and scalars.is_cycle_due and scalars.next_cycle <= min(following, until)
        if is_cycle:
            scalars.now = max(scalars.now, scalars.next_cycle)
            _cycle(arrays)
        if scalars.stops:
            return True
        if scalars.events >= max_events:
            return False
        if is_cycle:
            continue
        if scalars.endings == 0 or following > until:
            break
        scalars.now = max(scalars.now, following)
        _end_jobs(arrays)
    if until > scalars.now and until < np.inf:
        scalars.now = until
    return True


@compiled
def _end_jobs(arrays: Arrays) -> None:
    """End the jobs whose time has come."""
    jobs, ending, scalars = arrays.jobs, arrays.ending, arrays.scalars[0]
    while scalars.endings > 0 and ending[0].time <= scalars.now:
        row = ending[0].job
        job = jobs[row]
        is_true = job.where == RUNNING and job.end == ending[0].time
        heap_pop(ending, scalars.endings)
        scalars.endings -= 1
        if is_true:
            release(arrays, row)
            job.where = ENDED
            _note(arrays, row, ENDS)
