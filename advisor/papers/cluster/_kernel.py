"""The compiled event loop of the simulated cluster.

At one moment, in this order: jobs end (lower row first); jobs submitted now join the queue; starved jobs move
to the front and outlived plans are corrected; one scheduling pass. A pass starts jobs from the head while
they fit, reserves the earliest planned moment for the first that does not, and starts those behind it that do
not delay it by plan. The tests compare with these rules in plain Python, ``tests/papers/cluster/oracle.py``.

Most events are submissions that change nothing for the queue. While no job has ended and the head is the
same, the reservation stands and no other job can have become startable, so only the new job is tried. This
makes the loop fast and gives the same schedule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Ints
from advisor.compiled import compiled
from advisor.papers.cluster._passes import backfill, enqueue, may_backfill, schedule
from advisor.papers.cluster._state import (
    DONE,
    RUNNING,
    WAITING,
    Rules,
    State,
    queue_insert,
    queue_remove,
    running_insert,
    running_remove,
)
from advisor.papers.cluster.demand import LARGE, STARVED
from advisor.papers.cluster.policies import ANY_MOMENT_SECONDS, STEPS_SECONDS, Order
from advisor.simulate.heap import Records, heap_pop

_WFP = int(Order.WFP)
_STEPS = np.array(STEPS_SECONDS)
_NONE, _SEVERAL = -1, -2


@compiled
def _end_due(
    jobs: Records,
    queue: Ints,
    running: Ints,
    ending: Records,
    recent: NDArray[np.float64],
    scalars: Records,
    rules: Rules,
) -> None:
    """End the attempts whose time has come: done, or killed at the limit and queued again as large."""
    cluster = scalars[0]
    while cluster.endings > 0 and ending[0].time == cluster.now:
        row = ending[0].job
        job = jobs[row]
        heap_pop(ending, cluster.endings)
        running_remove(running, jobs, cluster.running, row)
        cluster.endings -= 1
        cluster.running -= 1
        cluster.free += job.processors
        cluster.dirty = 1
        if job.limit < job.run:
            job.lost = job.limit
            job.limit = np.inf
            job.rank = LARGE
            job.planned = job.requested
            enqueue(jobs, queue, scalars, rules, row)
            continue
        job.where = DONE
        job.end = cluster.now
        if rules.predict:
            recent[job.user, 1] = recent[job.user, 0]
            recent[job.user, 0] = job.run


@compiled
def _predict(jobs: Records, recent: NDArray[np.float64], row: int) -> None:
    """Plan a job by the mean run time of its user's last two finished jobs, at most the request."""
    job = jobs[row]
    last, before = recent[job.user, 0], recent[job.user, 1]
    if not np.isnan(before):
        job.planned = min((last + before) / 2.0, job.requested)


@compiled
def _arrive_due(
    jobs: Records, queue: Ints, recent: NDArray[np.float64], scalars: Records, rules: Rules
) -> int:
    """Queue the jobs submitted now; returns the row of the only one, else _NONE or _SEVERAL."""
    cluster = scalars[0]
    only = _NONE
    while cluster.arrived < len(jobs) and jobs[cluster.arrived].submit == cluster.now:
        row = cluster.arrived
        cluster.arrived += 1
        if rules.predict:
            _predict(jobs, recent, row)
        enqueue(jobs, queue, scalars, rules, row)
        only = row if only == _NONE else _SEVERAL
    return only


@compiled
def _promote_starved(jobs: Records, queue: Ints, scalars: Records, rules: Rules) -> None:
    """Move jobs that have waited too long to the front of the queue."""
    cluster = scalars[0]
    by_load = min(rules.load_factor * cluster.waiting_work / rules.total, rules.max_theta)
    theta = max(rules.theta, by_load)
    while cluster.promoted < cluster.arrived:
        row = cluster.promoted
        job = jobs[row]
        if (job.where in (WAITING, RUNNING)) and not job.submit + theta < cluster.now:
            return
        cluster.promoted += 1
        if job.where == WAITING and job.rank != STARVED:
            queue_remove(queue, jobs, scalars, row)
            job.rank = STARVED
            job.key = 0.0
            queue_insert(queue, jobs, scalars, row)
            cluster.dirty = 1


@compiled
def _correct_outlived_plans(jobs: Records, running: Ints, scalars: Records) -> None:
    """Extend the plan of running jobs that outlived it, by growing steps up to the request."""
    cluster = scalars[0]
    position = 0
    while position < cluster.running and jobs[running[position]].planned_end <= cluster.now:
        row = running[position]
        job = jobs[row]
        latest = job.start + job.requested
        target = job.planned_end
        while target <= cluster.now and target < latest and job.corrections < len(_STEPS):
            target = min(target + _STEPS[job.corrections], latest)
            job.corrections += 1
        if target == job.planned_end:
            position += 1  # beyond its request as well: there is no longer plan
            continue
        running_remove(running, jobs, cluster.running, row)
        job.planned_end = target
        running_insert(running, jobs, cluster.running - 1, row)  # `position` now holds the next job
        cluster.dirty = 1


@compiled
def _next_time(jobs: Records, ending: Records, scalars: Records) -> float:
    """Time of the next event; infinite when all is done."""
    cluster = scalars[0]
    time = np.inf
    if cluster.arrived < len(jobs):
        time = jobs[cluster.arrived].submit
    if cluster.endings > 0:
        time = min(time, ending[0].time)
    return time


@compiled
def advance(state: State, rules: Rules, most_events: int) -> bool:
    """Process at most ``most_events`` moments; True when every job has ended."""
    jobs, queue, running, ending, recent, scratch, scalars = state
    cluster = scalars[0]
    for _ in range(most_events):
        cluster.now = _next_time(jobs, ending, scalars)
        if cluster.now == np.inf:
            return True
        _end_due(jobs, queue, running, ending, recent, scalars, rules)
        newcomer = _arrive_due(jobs, queue, recent, scalars, rules)
        _promote_starved(jobs, queue, scalars, rules)
        if rules.correct:
            _correct_outlived_plans(jobs, running, scalars)
        if (
            cluster.dirty
            or newcomer == _SEVERAL
            or cluster.now + ANY_MOMENT_SECONDS > cluster.shadow
            or rules.order == _WFP
        ):
            schedule(jobs, queue, running, ending, scratch, scalars, rules)
        elif newcomer != _NONE and may_backfill(jobs, scalars, newcomer):
            queue_remove(queue, jobs, scalars, newcomer)
            backfill(jobs, running, ending, scalars, newcomer)
    return False
