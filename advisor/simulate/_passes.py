"""One scheduling pass of the simulated cluster (EASY backfilling), compiled; ``_kernel`` says the rules."""

from __future__ import annotations

import numpy as np

from advisor.compiled import compiled
from advisor.simulate.demand import STARVED
from advisor.simulate.policies import ANY_MOMENT_SECONDS, Backfill, Order
from advisor.simulate.state import (
    CLOUD,
    RUNNING,
    WAITING,
    Ints,
    Records,
    Rules,
    heap_push,
    is_before,
    queue_insert,
    running_insert,
)

_WFP, _SPF, _SAF = int(Order.WFP), int(Order.SPF), int(Order.SAF)
_SHORTEST_FIRST = int(Backfill.SHORTEST_FIRST)


@compiled
def enqueue(job: Records, queue: Ints, cluster: Records, rules: Rules, row: int) -> None:
    """Let a job wait; a whole pass is due when it stands at the head."""
    it, this = cluster[0], job[row]
    this.key = 0.0  # first come, first served; WFP's changes with time: see `_sort_by_wfp`
    if row < it.promoted:  # a killed job whose threshold has passed
        this.rank = STARVED
    elif rules.order == _SPF:
        this.key = this.requested
    elif rules.order == _SAF:
        this.key = this.requested * this.processors
    this.where = WAITING
    it.waiting_work += this.planned * this.processors
    if queue_insert(queue, job, cluster, row) == it.head:
        it.dirty = 1


@compiled
def start(job: Records, running: Ints, ending: Records, cluster: Records, row: int) -> None:
    """Give a job its processors now. The caller takes it out of the queue."""
    it, this = cluster[0], job[row]
    this.where = RUNNING
    this.start = it.now
    this.attempts += 1
    this.planned_end = it.now + this.planned
    it.waiting_work -= this.planned * this.processors
    running_insert(running, job, it.running, row)
    heap_push(ending, it.endings, it.now + min(this.run, this.limit), row)
    it.running += 1
    it.endings += 1
    it.free -= this.processors


@compiled
def send_to_cloud(job: Records, cluster: Records, rules: Rules, row: int) -> None:
    """Start a job on a cloud node of its own, which boots first."""
    this = job[row]
    this.where = CLOUD
    this.attempts += 1
    this.start = cluster[0].now + rules.boot
    this.end = this.start + this.run * rules.slowdown


@compiled
def may_backfill(job: Records, cluster: Records, row: int) -> bool:
    """Whether a job fits now and does not delay the head by plan."""
    it, this = cluster[0], job[row]
    return bool(
        this.processors <= it.free and (it.now + this.planned <= it.shadow or this.processors <= it.extra)
    )


@compiled
def backfill(job: Records, running: Ints, ending: Records, cluster: Records, row: int) -> None:
    """Start a job behind the head; the caller takes it out of the queue."""
    it = cluster[0]
    if it.now + job[row].planned > it.shadow:
        it.extra -= job[row].processors
    start(job, running, ending, cluster, row)


@compiled
def _sort_by_wfp(job: Records, queue: Ints, cluster: Records) -> None:
    """Bring the queue into WFP's order of this moment; it is nearly sorted already."""
    it = cluster[0]
    for at in range(it.head, it.tail):
        this = job[queue[at]]
        if this.rank != STARVED:
            ratio = (it.now - this.submit) / this.requested
            this.key = -(ratio * ratio * ratio) * this.processors
    for at in range(it.head + 1, it.tail):
        row = queue[at]
        place = at
        while place > it.head and is_before(job, row, queue[place - 1]):
            queue[place] = queue[place - 1]
            place -= 1
        queue[place] = row


@compiled
def _reserve(job: Records, running: Ints, cluster: Records, row: int) -> None:
    """Find the head's shadow time, and how many processors will be left over then."""
    it = cluster[0]
    needed = job[row].processors
    available = it.free
    shadow = it.now
    for at in range(it.running):
        other = job[running[at]]
        end = max(other.planned_end, it.now + ANY_MOMENT_SECONDS)
        if available >= needed and end > shadow:
            break
        available += other.processors
        shadow = end
    it.shadow = shadow
    it.extra = available - needed


@compiled
def _backfill_in_order(job: Records, queue: Ints, running: Ints, ending: Records, cluster: Records) -> None:
    """Try every job behind the head, in the queue's order."""
    it = cluster[0]
    first = it.head + 1
    kept = first
    for at in range(first, it.tail):
        row = queue[at]
        if it.free > 0 and may_backfill(job, cluster, row):
            backfill(job, running, ending, cluster, row)
            continue
        if it.free == 0 and kept == at:
            return  # nothing started, nothing can: the queue is as it was
        queue[kept] = row
        kept += 1
    it.tail = kept


@compiled
def _backfill_shortest_first(
    job: Records, queue: Ints, running: Ints, ending: Records, scratch: Ints, cluster: Records
) -> None:
    """Try the jobs behind the head by planned time; equal ones in the queue's order."""
    it = cluster[0]
    count = 0
    for at in range(it.head + 1, it.tail):
        row = queue[at]
        if may_backfill(job, cluster, row):  # what may not now will not: resources only shrink in a pass
            place = count
            while place > 0 and job[scratch[place - 1]].planned > job[row].planned:
                scratch[place] = scratch[place - 1]
                place -= 1
            scratch[place] = row
            count += 1
    for at in range(count):
        if may_backfill(job, cluster, scratch[at]):
            backfill(job, running, ending, cluster, scratch[at])
    if count == 0:
        return
    kept = it.head + 1
    for at in range(it.head + 1, it.tail):
        if job[queue[at]].where == WAITING:
            queue[kept] = queue[at]
            kept += 1
    it.tail = kept


@compiled
def schedule(
    job: Records,
    queue: Ints,
    running: Ints,
    ending: Records,
    scratch: Ints,
    cluster: Records,
    rules: Rules,
) -> None:
    """Start from the head what fits, reserve for the first that does not, backfill behind it."""
    it = cluster[0]
    it.dirty = 0
    if rules.order == _WFP:
        _sort_by_wfp(job, queue, cluster)
    while it.head < it.tail and job[queue[it.head]].processors <= it.free:
        it.head += 1
        start(job, running, ending, cluster, queue[it.head - 1])
    if it.head == it.tail:
        it.head = 0
        it.tail = 0
        it.shadow = np.inf
        return
    _reserve(job, running, cluster, queue[it.head])
    if it.free == 0:
        return
    if rules.backfill == _SHORTEST_FIRST:
        _backfill_shortest_first(job, queue, running, ending, scratch, cluster)
    else:
        _backfill_in_order(job, queue, running, ending, cluster)
