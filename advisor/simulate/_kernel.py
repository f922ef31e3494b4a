"""The event loop of the simulated cluster, compiled.

The rules, which the plain ``oracle`` states again in its own words. At one moment: first every job whose time
has come ends (lower row first); then every job submitted at that moment joins the queue; then starved jobs
are moved up and outlived plans corrected; then one scheduling pass; then whoever's patience is over leaves
for the cloud, with another pass if anybody did. A pass starts jobs from the head while they fit, reserves the
earliest planned moment for the one that does not, and starts those behind it that will not delay it by plan.

Most events are submissions that change nothing for those who wait. While no job ended and the head is the
same, the reservation stands and nobody else can have become startable, so only the newcomer is tried: that is
why the loop is fast, and it gives the same schedule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.simulate._passes import backfill, enqueue, may_backfill, schedule, send_to_cloud
from advisor.simulate.demand import LARGE, STARVED
from advisor.simulate.policies import ANY_MOMENT_SECONDS, STEPS_SECONDS, Order
from advisor.simulate.state import (
    CLOUD,
    DONE,
    RUNNING,
    WAITING,
    Ints,
    Records,
    Rules,
    State,
    heap_pop,
    queue_insert,
    queue_remove,
    running_insert,
    running_remove,
)

_WFP = int(Order.WFP)
_STEPS = np.array(STEPS_SECONDS)
_NOBODY, _SEVERAL = -1, -2


@compiled
def _end_due(
    job: Records,
    queue: Ints,
    running: Ints,
    ending: Records,
    recent: NDArray[np.float64],
    cluster: Records,
    rules: Rules,
) -> None:
    """End every attempt whose time has come: done, or killed at its limit and queued again as large."""
    it = cluster[0]
    while it.endings > 0 and ending[0].time == it.now:
        row = ending[0].job
        this = job[row]
        heap_pop(ending, it.endings)
        running_remove(running, job, it.running, row)
        it.endings -= 1
        it.running -= 1
        it.free += this.processors
        it.dirty = 1
        if this.limit < this.run:
            this.lost = this.limit
            this.limit = np.inf
            this.rank = LARGE
            this.planned = this.planned_again
            enqueue(job, queue, cluster, rules, row)
            continue
        this.where = DONE
        this.end = it.now
        if rules.predict:
            recent[this.user, 1] = recent[this.user, 0]
            recent[this.user, 0] = this.run


@compiled
def _predict(job: Records, recent: NDArray[np.float64], row: int) -> None:
    """Plan a job by the mean run time of its user's two last finished jobs, never above the request."""
    this = job[row]
    last, before = recent[this.user, 0], recent[this.user, 1]
    if not np.isnan(before):
        this.planned = min((last + before) / 2.0, this.requested)


@compiled
def _arrive_due(
    job: Records, queue: Ints, recent: NDArray[np.float64], cluster: Records, rules: Rules
) -> int:
    """Queue every job submitted now; returns the row of the only one, else _NOBODY or _SEVERAL."""
    it = cluster[0]
    only = _NOBODY
    while it.arrived < len(job) and job[it.arrived].submit == it.now:
        row = it.arrived
        it.arrived += 1
        if job[row].patience < 0:
            send_to_cloud(job, cluster, rules, row)
            continue
        if rules.predict:
            _predict(job, recent, row)
        enqueue(job, queue, cluster, rules, row)
        only = row if only == _NOBODY else _SEVERAL
    return only


@compiled
def _promote_starved(job: Records, queue: Ints, cluster: Records, rules: Rules) -> None:
    """Move jobs that have waited too long before all others."""
    it = cluster[0]
    by_load = min(rules.load_factor * it.waiting_work / rules.total, rules.theta_at_most)
    theta = max(rules.theta, by_load)
    while it.promoted < it.arrived:
        row = it.promoted
        this = job[row]
        if (this.where in (WAITING, RUNNING)) and not this.submit + theta < it.now:
            return
        it.promoted += 1
        if this.where == WAITING and this.rank != STARVED:
            queue_remove(queue, job, cluster, row)
            this.rank = STARVED
            this.key = 0.0
            queue_insert(queue, job, cluster, row)
            it.dirty = 1


@compiled
def _correct_outlived_plans(job: Records, running: Ints, cluster: Records) -> None:
    """Give running jobs that outlived their plan a longer one, by growing steps up to the request."""
    it = cluster[0]
    at = 0
    while at < it.running and job[running[at]].planned_end <= it.now:
        row = running[at]
        this = job[row]
        latest = this.start + this.requested
        target = this.planned_end
        while target <= it.now and target < latest and this.corrections < len(_STEPS):
            target = min(target + _STEPS[this.corrections], latest)
            this.corrections += 1
        if target == this.planned_end:
            at += 1  # beyond its request too: nothing more can be said
            continue
        running_remove(running, job, it.running, row)
        this.planned_end = target
        running_insert(running, job, it.running - 1, row)  # another may stand at this position now
        it.dirty = 1


@compiled
def _leave_due(job: Records, queue: Ints, leaving: Ints, cluster: Records, rules: Rules) -> None:
    """Send to the cloud whoever's patience is over."""
    it = cluster[0]
    while it.left < len(leaving):
        row = leaving[it.left]
        this = job[row]
        if this.submit + this.patience > it.now:
            return
        it.left += 1
        if this.where == WAITING:
            queue_remove(queue, job, cluster, row)
            it.waiting_work -= this.planned * this.processors
            send_to_cloud(job, cluster, rules, row)
            it.dirty = 1


@compiled
def _next_time(job: Records, ending: Records, leaving: Ints, cluster: Records) -> float:
    """When something happens next; infinite when all is done."""
    it = cluster[0]
    time = np.inf
    if it.arrived < len(job):
        time = job[it.arrived].submit
    if it.endings > 0:
        time = min(time, ending[0].time)
    while it.left < len(leaving):
        this = job[leaving[it.left]]
        if this.where not in (DONE, CLOUD):
            time = min(time, this.submit + this.patience)
            break
        it.left += 1
    return time


@compiled
def advance(state: State, rules: Rules, most_events: int) -> bool:
    """Go on for at most so many moments; True when every job has ended or left for the cloud."""
    job, queue, running, ending, recent, leaving, scratch, cluster = state
    it = cluster[0]
    for _ in range(most_events):
        it.now = _next_time(job, ending, leaving, cluster)
        if it.now == np.inf:
            return True
        it.events += 1
        _end_due(job, queue, running, ending, recent, cluster, rules)
        newcomer = _arrive_due(job, queue, recent, cluster, rules)
        _promote_starved(job, queue, cluster, rules)
        if rules.correct:
            _correct_outlived_plans(job, running, cluster)
        if it.dirty or newcomer == _SEVERAL or it.now + ANY_MOMENT_SECONDS > it.shadow or rules.order == _WFP:
            schedule(job, queue, running, ending, scratch, cluster, rules)
        elif newcomer != _NOBODY and may_backfill(job, cluster, newcomer):
            queue_remove(queue, job, cluster, newcomer)
            backfill(job, running, ending, cluster, newcomer)
        if it.left < len(leaving):
            _leave_due(job, queue, leaving, cluster, rules)
            if it.dirty:
                schedule(job, queue, running, ending, scratch, cluster, rules)
    return False
