"""One compiled scheduling pass of the simulated cluster (EASY backfilling); the rules are in ``_kernel``."""

from __future__ import annotations

import numpy as np

from advisor.arrays import Ints
from advisor.compiled import compiled
from advisor.papers.cluster._state import (
    RUNNING,
    WAITING,
    Rules,
    is_before,
    queue_insert,
    running_insert,
)
from advisor.papers.cluster.demand import STARVED
from advisor.papers.cluster.policies import ANY_MOMENT_SECONDS, Backfill, Order
from advisor.simulate.heap import Records, heap_push

_WFP, _SPF, _SAF = int(Order.WFP), int(Order.SPF), int(Order.SAF)
_SHORTEST_FIRST = int(Backfill.SHORTEST_FIRST)


@compiled
def enqueue(jobs: Records, queue: Ints, scalars: Records, rules: Rules, row: int) -> None:
    """Add a job to the queue; a whole pass is due when it becomes the head."""
    cluster, job = scalars[0], jobs[row]
    job.key = 0.0  # first come, first served; WFP's changes with time: see `_sort_by_wfp`
    if row < cluster.promoted:  # a killed job whose threshold has passed
        job.rank = STARVED
    elif rules.order == _SPF:
        job.key = job.requested
    elif rules.order == _SAF:
        job.key = job.requested * job.processors
    job.where = WAITING
    cluster.waiting_work += job.planned * job.processors
    if queue_insert(queue, jobs, scalars, row) == cluster.head:
        cluster.dirty = 1


@compiled
def start(jobs: Records, running: Ints, ending: Records, scalars: Records, row: int) -> None:
    """Start a job now; the caller removes it from the queue."""
    cluster, job = scalars[0], jobs[row]
    job.where = RUNNING
    job.start = cluster.now
    job.attempts += 1
    job.planned_end = cluster.now + job.planned
    cluster.waiting_work -= job.planned * job.processors
    running_insert(running, jobs, cluster.running, row)
    heap_push(ending, cluster.endings, cluster.now + min(job.run, job.limit), row)
    cluster.running += 1
    cluster.endings += 1
    cluster.free -= job.processors


@compiled
def may_backfill(jobs: Records, scalars: Records, row: int) -> bool:
    """Whether a job fits now and does not delay the head by plan."""
    cluster, job = scalars[0], jobs[row]
    return bool(
        job.processors <= cluster.free
        and (cluster.now + job.planned <= cluster.shadow or job.processors <= cluster.extra)
    )


@compiled
def backfill(jobs: Records, running: Ints, ending: Records, scalars: Records, row: int) -> None:
    """Start a job behind the head; the caller removes it from the queue."""
    cluster = scalars[0]
    if cluster.now + jobs[row].planned > cluster.shadow:
        cluster.extra -= jobs[row].processors
    start(jobs, running, ending, scalars, row)


@compiled
def _sort_by_wfp(jobs: Records, queue: Ints, scalars: Records) -> None:
    """Sort the queue by WFP's present keys; insertion sort, because it is nearly sorted."""
    cluster = scalars[0]
    for i in range(cluster.head, cluster.tail):
        job = jobs[queue[i]]
        if job.rank != STARVED:
            ratio = (cluster.now - job.submit) / job.requested
            job.key = -(ratio * ratio * ratio) * job.processors
    for i in range(cluster.head + 1, cluster.tail):
        row = queue[i]
        position = i
        while position > cluster.head and is_before(jobs, row, queue[position - 1]):
            queue[position] = queue[position - 1]
            position -= 1
        queue[position] = row


@compiled
def _reserve(jobs: Records, running: Ints, scalars: Records, row: int) -> None:
    """Compute the head's shadow time and the processors that stay free then."""
    cluster = scalars[0]
    needed = jobs[row].processors
    available = cluster.free
    shadow = cluster.now
    for i in range(cluster.running):
        other = jobs[running[i]]
        end = max(other.planned_end, cluster.now + ANY_MOMENT_SECONDS)
        if available >= needed and end > shadow:
            break
        available += other.processors
        shadow = end
    cluster.shadow = shadow
    cluster.extra = available - needed


@compiled
def _backfill_in_order(jobs: Records, queue: Ints, running: Ints, ending: Records, scalars: Records) -> None:
    """Try the jobs behind the head in the queue's order."""
    cluster = scalars[0]
    first = cluster.head + 1
    kept = first
    for i in range(first, cluster.tail):
        row = queue[i]
        if cluster.free > 0 and may_backfill(jobs, scalars, row):
            backfill(jobs, running, ending, scalars, row)
            continue
        if cluster.free == 0 and kept == i:
            return  # no job has started and none can: the queue is unchanged
        queue[kept] = row
        kept += 1
    cluster.tail = kept


@compiled
def _backfill_shortest_first(
    jobs: Records, queue: Ints, running: Ints, ending: Records, scratch: Ints, scalars: Records
) -> None:
    """Try the jobs behind the head by planned time; ties in the queue's order."""
    cluster = scalars[0]
    count = 0
    for i in range(cluster.head + 1, cluster.tail):
        row = queue[i]
        if may_backfill(jobs, scalars, row):  # others cannot later either: resources only shrink in a pass
            position = count
            while position > 0 and jobs[scratch[position - 1]].planned > jobs[row].planned:
                scratch[position] = scratch[position - 1]
                position -= 1
            scratch[position] = row
            count += 1
    for i in range(count):
        if may_backfill(jobs, scalars, scratch[i]):
            backfill(jobs, running, ending, scalars, scratch[i])
    if count == 0:
        return
    kept = cluster.head + 1
    for i in range(cluster.head + 1, cluster.tail):
        if jobs[queue[i]].where == WAITING:
            queue[kept] = queue[i]
            kept += 1
    cluster.tail = kept


@compiled
def schedule(
    jobs: Records,
    queue: Ints,
    running: Ints,
    ending: Records,
    scratch: Ints,
    scalars: Records,
    rules: Rules,
) -> None:
    """Start jobs from the head while they fit, reserve for the first that does not, backfill behind it."""
    cluster = scalars[0]
    cluster.dirty = 0
    if rules.order == _WFP:
        _sort_by_wfp(jobs, queue, scalars)
    while cluster.head < cluster.tail and jobs[queue[cluster.head]].processors <= cluster.free:
        cluster.head += 1
        start(jobs, running, ending, scalars, queue[cluster.head - 1])
    if cluster.head == cluster.tail:
        cluster.head = 0
        cluster.tail = 0
        cluster.shadow = np.inf
        return
    _reserve(jobs, running, scalars, queue[cluster.head])
    if cluster.free == 0:
        return
    if rules.backfill == _SHORTEST_FIRST:
        _backfill_shortest_first(jobs, queue, running, ending, scratch, scalars)
    else:
        _backfill_in_order(jobs, queue, running, ending, scalars)
