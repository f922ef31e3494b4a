"""The forecast of a pool's queue: the pool's own functions, run on a copy until every job has started."""

from __future__ import annotations

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.simulate.heap import ENDING, heap_push
from advisor.simulate.pool._kernel import advance
from advisor.simulate.pool._state import EVENT, JOB, RUNNING, SCALARS, Arrays, blocks_of, close_up


@compiled
def forecast_starts(arrays: Arrays, runs: Floats, starts: Floats) -> None:
    """When each waiting job would start if no other job came.

    ``runs``: forecast run times by row of ``jobs``, of running jobs in full (one that has run longer ends in
    a second); ``starts``: written at the waiting rows, seconds on the pool's clock.
    """
    close_up(arrays)
    scalars, queue = arrays.scalars[0], arrays.queue
    waiting, running = scalars.waiting, scalars.running
    count = waiting + running
    copy = Arrays(
        np.empty(count, JOB),
        np.empty(count, np.int64),
        blocks_of(count),
        np.empty(count, np.int64),
        np.empty(count, ENDING),
        np.empty(count * 2 + 1, EVENT),
        np.empty(1, SCALARS),
        arrays.other_ends,
        np.full(len(arrays.owner), -1),
        np.empty((count, arrays.stock.shape[1])),
        arrays.stock.copy(),
        arrays.windows,
        arrays.groups,
    )
    now = copy.scalars[0]
    now.by_node = scalars.by_node
    now.window, now.widening, now.others = scalars.window, scalars.widening, scalars.others
    now.horizon = scalars.horizon
    now.is_whole, now.awaited = scalars.is_whole, scalars.awaited
    now.awaited_processors, now.head, now.lacking = scalars.awaited_processors, -1, 0
    now.now, now.free, now.running, now.waiting = scalars.now, scalars.free, running, waiting
    now.endings = now.events = now.stops = now.first = now.ahead = 0
    now.last = waiting
    now.is_due = 1
    now.shadow, now.extra = 0.0, 0
    now.cycle, now.reservations, now.depth = scalars.cycle, scalars.reservations, scalars.depth
    now.last_cycle, now.is_cycle_due = scalars.last_cycle, 0
    for i in range(count):
        is_running = i < running
        row = arrays.running[scalars.ahead + i] if is_running else queue[i - running]
        source, run = arrays.jobs[row], runs[row]
        copy.needs[i] = arrays.needs[row]
        job = copy.jobs[i]
        job.rank, job.order, job.limit = source.rank, source.order, source.limit
        job.processors, job.is_watched, job.run = source.processors, 0, run
        job.group, job.units = 0, 0.0
        job.where, job.start, job.planned_end, job.end = source.where, source.start, source.planned_end, 0.0
        if is_running:
            job.end = max(job.start + min(run, job.limit), scalars.now + 1.0)
            copy.running[i] = i
            copy.owner[arrays.owner == row] = i
            heap_push(copy.ending, now.endings, job.end, i)
            now.endings += 1
        else:
            copy.queue[i - running] = i
    advance(copy, np.inf, 2 * count + 1)
    for i in range(running, count):
        job = copy.jobs[i]
        starts[queue[i - running]] = job.start if job.where >= RUNNING else np.inf
