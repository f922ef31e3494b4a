"""Compiled EASY backfilling of one pool of processors, in steps that a caller can interrupt.

Jobs start from the head of the queue while they fit; the
first that does not gets a reservation at the time by which enough running jobs end *by their limits*; a job
behind it may start now if it ends by its limit before that time, or takes only processors that stay free then
(Lifka 1995; Mu'alem and Feitelson 2001). Where more jobs get reservations, or backfilling has its own cycle,
the rules are those of Slurm (``advisor.simulate.pool.rules``). The same functions run the pool and, on a
copy, forecast its queue.
"""

from __future__ import annotations

import numpy as np

from advisor.compiled import compiled, compiled_in_place
from advisor.simulate.heap import heap_pop
from advisor.simulate.pool._nodes import Running, pick_nodes, planned_start, reserve
from advisor.simulate.pool._state import (
    AWAITED,
    BLOCK,
    ENDED,
    ENDS,
    EXTRA,
    FREE,
    GONE,
    RUNNING,
    Arrays,
    Lasting,
    close_up,
    count_awaited,
    fits,
    give,
    has_room,
    is_held,
    leave,
    note,
    release,
    start_job,
)

_DEPTH = 500
"""The number of jobs behind the head that backfilling tests beside a reservation. Slurm tests as many by
default (``bf_max_job_test``). Before a reservation many processors stay free that no waiting job can use, and
each job's end would lead to a test of the whole queue."""
_POLL_SECONDS = 1.0  # an idle backfill thread of Slurm looks so often whether there is work


@compiled_in_place
def _reserve(arrays: Arrays, row: int) -> None:
    """Compute the head's reservation: it awaits the first running jobs by planned end, as few as suffice.

    These are kept from pass to pass, and become fewer or more. Where a reservation's time matters, or a sum
    of their needs may not be exact, they are counted anew.
    """
    stock, scalars = arrays.stock, arrays.scalars[0]
    if not scalars.is_whole or _has_windows(arrays):
        scalars.awaited = scalars.awaited_processors = 0
        stock[AWAITED] = 0.0
    for k in range(stock.shape[1]):
        stock[EXTRA, k] = stock[FREE, k] + stock[AWAITED, k]
    _await_fewer(arrays, row)
    shadow = _await_more(arrays, row)
    scalars.shadow = shadow if _suffices(arrays, row, shadow) else np.inf
    scalars.extra = max(0, scalars.free + scalars.awaited_processors - arrays.jobs[row].processors)
    give(arrays, row, EXTRA, shadow, -1.0)
    for k in range(stock.shape[1]):
        stock[EXTRA, k] = max(0.0, stock[EXTRA, k])


@compiled_in_place
def _has_windows(arrays: Arrays) -> bool:
    """Whether what is left to jobs depends on when they run."""
    is_limited = False
    for k in range(arrays.windows.shape[1]):
        is_limited = is_limited or arrays.windows[1, k] < np.inf
    return is_limited


@compiled_in_place
def _last_awaited_end(arrays: Arrays) -> float:
    """The planned end of the last job that the head awaits; now, where it awaits none."""
    scalars = arrays.scalars[0]
    if scalars.awaited == 0:
        return float(scalars.now)
    last = arrays.running[scalars.ahead + scalars.awaited - 1]
    return max(float(scalars.now), float(arrays.jobs[last].planned_end))


@compiled_in_place
def _suffices(arrays: Arrays, row: int, shadow: float) -> bool:
    """Whether the head fits once the jobs that it awaits have ended."""
    scalars = arrays.scalars[0]
    is_enough = scalars.free + scalars.awaited_processors >= arrays.jobs[row].processors
    return bool(is_enough and fits(arrays, row, EXTRA, shadow))


@compiled_in_place
def _await(arrays: Arrays, row: int, times: int) -> None:
    count_awaited(arrays, row, times)
    give(arrays, row, EXTRA, arrays.jobs[row].start, float(times))


@compiled_in_place
def _await_fewer(arrays: Arrays, row: int) -> None:
    """Await no jobs without whose ends the head fits; those that end at one time go together.

    There may be thousands of them, so it is not tried before enough processors were given back.
    """
    running, scalars = arrays.running, arrays.scalars[0]
    if scalars.head == row and scalars.lacking > 0:
        return
    scalars.head, scalars.lacking = row, 0
    while scalars.awaited > 0:
        before, end = scalars.awaited, _last_awaited_end(arrays)
        if end <= scalars.now:
            return
        while scalars.awaited > 0 and _last_awaited_end(arrays) == end:
            _await(arrays, running[scalars.ahead + scalars.awaited - 1], -1)
        if not _suffices(arrays, row, _last_awaited_end(arrays)):
            left = scalars.free + scalars.awaited_processors
            scalars.lacking = max(1, arrays.jobs[row].processors - left)
            while scalars.awaited < before:
                _await(arrays, running[scalars.ahead + scalars.awaited], 1)
            return


@compiled_in_place
def _await_more(arrays: Arrays, row: int) -> float:
    """Await further jobs until the head fits; return when that is."""
    jobs, running, scalars = arrays.jobs, arrays.running, arrays.scalars[0]
    shadow = _last_awaited_end(arrays)
    while scalars.awaited < scalars.running:
        other = running[scalars.ahead + scalars.awaited]
        end = float(jobs[other].planned_end)
        if end > shadow and _suffices(arrays, row, shadow):
            break
        _await(arrays, other, 1)
        scalars.lacking = 0
        shadow = max(shadow, end)
    return shadow


@compiled_in_place
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
def _take_nodes(arrays: Arrays, row: int) -> None:
    """Give a job that starts now the nodes that Slurm would pick."""
    chosen = np.empty(len(arrays.owner), np.bool_)
    pick_nodes(arrays.owner < 0, arrays.jobs[row].processors, chosen)
    arrays.owner[chosen] = row


@compiled_in_place
def _start_heads(arrays: Arrays) -> None:
    """Start jobs from the head of the queue while they fit, or until a watched one has started."""
    jobs, queue, scalars = arrays.jobs, arrays.queue, arrays.scalars[0]
    for i in range(scalars.first, scalars.last):
        row = queue[i]
        if row == GONE or is_held(arrays, row):
            continue
        if scalars.stops or jobs[row].processors > scalars.free or not fits(arrays, row, FREE, scalars.now):
            return
        if scalars.by_node:
            _take_nodes(arrays, row)
        start_job(arrays, row)
        leave(arrays, i)


@compiled_in_place
def _backfill_easy(arrays: Arrays) -> None:
    """Start what does not delay the head; one reservation, in one pass over the queue.

    A block of the queue is left out where not even a job of its least width and shortest limit could start.
    """
    queue, scalars, least = arrays.queue, arrays.scalars[0], arrays.least
    head = scalars.first
    while head < scalars.last and (queue[head] == GONE or is_held(arrays, queue[head])):
        head += 1
    if head == scalars.last:
        scalars.shadow, scalars.extra = np.inf, scalars.free
        for k in range(arrays.stock.shape[1]):
            arrays.stock[EXTRA, k] = arrays.stock[FREE, k]
        return
    _reserve(arrays, queue[head])
    left = _DEPTH if _has_windows(arrays) else -1
    start = head + 1
    while start < scalars.last and scalars.free > 0 and left != 0 and not scalars.stops:
        block = start // BLOCK
        end = min((block + 1) * BLOCK, scalars.last)
        ends_before = scalars.now + least[block, 1] <= scalars.shadow
        may_start = least[block, 0] <= scalars.free and (ends_before or least[block, 0] <= scalars.extra)
        if may_start or left > 0:
            left = _backfill_block(arrays, start, end, left)
        start = end


@compiled_in_place
def _backfill_block(arrays: Arrays, start: int, end: int, left: int) -> int:
    """Start what may start of one block of the queue; of how many more jobs may be asked: -1: of all."""
    jobs, queue, scalars = arrays.jobs, arrays.queue, arrays.scalars[0]
    needs, stock, windows = arrays.needs, arrays.stock[FREE], arrays.windows
    processors, limit = np.inf, np.inf
    for i in range(start, end):
        row = queue[i]
        if row == GONE:
            continue
        if scalars.free == 0 or left == 0 or scalars.stops:
            return left
        left -= left > 0
        job = jobs[row]
        when = Lasting(scalars.now, scalars.now + job.limit)
        ends_before = when.end <= scalars.shadow
        is_open = job.processors <= scalars.free and (ends_before or job.processors <= scalars.extra)
        is_open = is_open and has_room(needs, stock, windows, row, when) and not is_held(arrays, row)
        if is_open and (ends_before or fits(arrays, row, EXTRA, scalars.now)):
            if not ends_before:
                scalars.extra -= job.processors
                give(arrays, row, EXTRA, scalars.now, -1.0)
            start_job(arrays, row)
            leave(arrays, i)
            continue
        processors, limit = min(processors, float(job.processors)), min(limit, job.limit)
    if start % BLOCK == 0:
        arrays.least[start // BLOCK] = processors, limit
    return left


@compiled
def _backfill_by_node(arrays: Arrays) -> None:
    """Plan the queue in its order; start what can start now, reserve nodes for the first of the others."""
    close_up(arrays)
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
                start_job(arrays, row)
                running = _running(arrays)
                continue
            if start <= scalars.now + scalars.horizon:
                steps = reserve(times, open_nodes, steps, start, start + job.limit, chosen)
                reserved += 1
        queue[kept] = row
        kept += 1
    scalars.waiting = scalars.last = kept


@compiled
def _running(arrays: Arrays) -> Running:
    jobs, scalars = arrays.jobs, arrays.scalars[0]
    ends = np.empty(scalars.running)
    holder = np.full(len(arrays.owner), -1)
    for i in range(scalars.running):
        row = arrays.running[scalars.ahead + i]
        ends[i] = jobs[row].planned_end
        holder[arrays.owner == row] = i
    return Running(ends, arrays.other_ends[: scalars.others], holder)


@compiled_in_place
def _cycle(arrays: Arrays) -> None:
    """Backfill in its own cycle; once more at once behind a watched job's start."""
    scalars = arrays.scalars[0]
    scalars.last_cycle, scalars.is_cycle_due = scalars.now, 0
    if scalars.waiting:
        _backfill_by_node(arrays)
    if scalars.stops:
        scalars.next_cycle, scalars.is_cycle_due = scalars.now, 1


@compiled_in_place
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


@compiled_in_place
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
            note(arrays, row, ENDS)
