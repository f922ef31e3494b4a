"""The compiled simulation of a log on rented nodes, to its end or until a policy is to be chosen.

At one tick: ends, arrivals, (choice), then the policy's decision (``_tick``). Ticks at which nothing can
happen are skipped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.simulate.heap import Records, heap_pop, heap_push
from advisor.simulate.portfolio._next import next_moment, tick_of
from advisor.simulate.portfolio._tick import charge, decide, expected_end, weight_of
from advisor.simulate.portfolio.state import (
    ACTUAL,
    BY_CATEGORY,
    CHARGED,
    JOBS,
    REQUESTED,
    SLOWDOWN,
    SLOWDOWN_BOUND,
    WORK,
    Rules,
)

DONE, CHOOSE = 0, 1
FIXED_POLICY, CHOOSING, RESUMED = 0, 1, 2
_UNKNOWN_SECONDS = 3600.0


class KernelArrays(NamedTuple):
    """The kernel's arrays.

    ``recent``, ``recent_of_category``: last two run times of each user and of each category, NaN for none;
    ``queued``: first and last row of each user's jobs whose estimates may change, -1 for none; ``ending``:
    heap of running jobs' ends; ``checkpoints``: shape (c, 4); ``start``: start of each job, NaN before.
    """

    job: Records
    node: Records
    waiting: Records
    scalars: Records
    ending: Records
    recent: Floats
    recent_of_category: Floats
    queued: Ints
    checkpoints: Floats
    scratch: Floats
    start: Floats


@compiled
def _mean_of(recent: Floats, code: int) -> float:
    """Mean of the last two run times, or the last one, or NaN."""
    last, before = recent[code, 0], recent[code, 1]
    return float(last if np.isnan(before) else (last + before) / 2.0)


@compiled
def estimate_of(state: KernelArrays, rules: Rules, row: int) -> float:
    """Expected run time in seconds of a job not yet started, from what is known now."""
    job = state.job[row]
    if rules.runtimes == ACTUAL:
        return float(job.run)
    requested = job.requested
    if rules.runtimes == REQUESTED and not np.isnan(requested):
        return float(requested)
    mean = np.nan
    if rules.runtimes == BY_CATEGORY:
        mean = _mean_of(state.recent_of_category, job.category)
    if np.isnan(mean):
        mean = _mean_of(state.recent, job.user)
    if not np.isnan(mean):
        return mean if np.isnan(requested) else min(mean, float(requested))
    if not np.isnan(requested):
        return float(requested)
    cluster = state.scalars[0]
    return float(cluster.finished_run / cluster.finished) if cluster.finished else _UNKNOWN_SECONDS


@compiled
def _remember(recent: Floats, code: int, run: float) -> None:
    recent[code, 1] = recent[code, 0]
    recent[code, 0] = run


@compiled
def _finish(state: KernelArrays, rules: Rules, policies: Records) -> None:
    """Process the jobs that have ended, and update the estimates of their users' waiting jobs."""
    cluster = state.scalars[0]
    while cluster.ending > 0 and state.ending[0].time <= cluster.now:
        row = state.ending[0].job
        heap_pop(state.ending, cluster.ending)
        cluster.ending -= 1
        job = state.job[row]
        job.end = job.start + job.run
        cluster.finished += 1
        cluster.finished_run += job.run
        cluster.changes += 1
        cluster.slowdown += bounded_slowdown(job.start - job.submit, job.run)
        cluster.work += job.run * job.processors
        if rules.runtimes == ACTUAL:
            continue
        _remember(state.recent, job.user, job.run)
        _remember(state.recent_of_category, job.category, job.run)
        _update_user(state, rules, policies, job.user)


@compiled
def _update_user(state: KernelArrays, rules: Rules, policies: Records, user: int) -> None:
    """Update the estimates of a user's waiting jobs, and unlink those that have started."""
    queued = state.queued
    previous, row, position = -1, queued[user, 0], 0
    while row >= 0:
        job = state.job[row]
        if np.isnan(state.start[row]):
            position = _find_waiting(state, row, position)
            _update_estimate(state, rules, policies, position)
            previous = row
        elif previous < 0:
            queued[user, 0] = job.next_of_user
        else:
            state.job[previous].next_of_user = job.next_of_user
        row = job.next_of_user
    queued[user, 1] = previous


@compiled
def _find_waiting(state: KernelArrays, row: int, low: int) -> int:
    """Position of a job in the queue (in submission order), at least ``low`` and probably near it."""
    cluster = state.scalars[0]
    step = 1
    while low + step < cluster.waiting and state.waiting[cluster.first + low + step].row <= row:
        low += step
        step *= 2
    high = min(low + step, cluster.waiting) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if state.waiting[cluster.first + middle].row <= row:
            low = middle
        else:
            high = middle - 1
    return low


@compiled
def _enqueue(state: KernelArrays, rules: Rules, row: int) -> None:
    """Link a job to its user's others, if its estimate depends on them."""
    job = state.job[row]
    if rules.runtimes == ACTUAL or (rules.runtimes == REQUESTED and not np.isnan(job.requested)):
        return
    last = state.queued[job.user, 1]
    if last < 0:
        state.queued[job.user, 0] = row
    else:
        state.job[last].next_of_user = row
    state.queued[job.user, 1] = row


@compiled
def _update_estimate(state: KernelArrays, rules: Rules, policies: Records, position: int) -> None:
    """Estimate and weigh the waiting job at a position anew."""
    entry = state.waiting[state.scalars[0].first + position]
    entry.estimate = estimate_of(state, rules, entry.row)
    entry.weight = weight_of(policies[state.scalars[0].policy].order, entry.estimate, entry.processors)
    state.job[entry.row].estimate = entry.estimate


@compiled
def weigh(state: KernelArrays, policies: Records) -> None:
    """Recompute the weights of all waiting jobs after the policy changed."""
    cluster = state.scalars[0]
    for i in range(cluster.waiting):
        entry = state.waiting[cluster.first + i]
        entry.weight = weight_of(policies[cluster.policy].order, entry.estimate, entry.processors)


@compiled
def _arrive(state: KernelArrays, rules: Rules, policies: Records) -> None:
    cluster = state.scalars[0]
    while cluster.arrived < len(state.job) and state.job[cluster.arrived].submit <= cluster.now:
        job, entry = state.job[cluster.arrived], state.waiting[cluster.first + cluster.waiting]
        entry.submit = job.submit
        entry.run = job.run
        entry.processors = job.processors
        entry.row = cluster.arrived
        _update_estimate(state, rules, policies, cluster.waiting)
        _enqueue(state, rules, cluster.arrived)
        cluster.arrived += 1
        cluster.waiting += 1
        cluster.changes += 1
    cluster.most_waiting = max(cluster.most_waiting, cluster.waiting)


@compiled
def _note_starts(state: KernelArrays, waited: int) -> None:
    """Note start and end of each job that starts at this tick; ``waited`` jobs were queued before it."""
    cluster = state.scalars[0]
    if cluster.waiting == waited:
        return
    last = -1
    for i in range(cluster.nodes):
        node = state.node[i]
        if node.row >= 0 and node.begun == cluster.now and node.row != last:
            last = node.row
            job = state.job[last]
            if np.isnan(job.start):
                job.start = cluster.now
                cluster.changes += 1
                heap_push(state.ending, cluster.ending, cluster.now + job.run, last)
                cluster.ending += 1


@compiled
def bounded_slowdown(wait: float, run: float) -> float:
    """Bounded slowdown (Deng et al. 2013, section 2)."""
    return float(max((wait + run) / max(run, SLOWDOWN_BOUND), 1.0))


@compiled
def _checkpoint(state: KernelArrays, rules: Rules) -> None:
    """Record charges, work and slowdowns at the checkpoints before this tick.

    Running and waiting jobs count with their estimates: otherwise a policy would look good as long as it lets
    a burst wait. It is called before the jobs of this tick end; between two ticks nothing happens.
    """
    cluster = state.scalars[0]
    while cluster.checkpoints < len(state.checkpoints) and cluster.next_checkpoint <= cluster.now:
        time = cluster.next_checkpoint
        row = state.checkpoints[cluster.checkpoints]
        row[CHARGED] = cluster.charged
        row[WORK] = cluster.work
        row[SLOWDOWN] = cluster.slowdown
        row[JOBS] = cluster.finished
        for i in range(cluster.nodes):
            node = state.node[i]
            if time > node.since:
                row[CHARGED] += charge(time - node.since, rules.release)
            if node.row >= 0 and np.isnan(state.job[node.row].end):
                job = state.job[node.row]
                row[WORK] += time - node.begun
                row[SLOWDOWN] += bounded_slowdown(node.begun - job.submit, job.estimate) / job.processors
                row[JOBS] += 1.0 / job.processors
        for i in range(cluster.waiting):
            entry = state.waiting[cluster.first + i]
            row[SLOWDOWN] += bounded_slowdown(time - entry.submit, entry.estimate)
            row[JOBS] += 1.0
        cluster.checkpoints += 1
        cluster.next_checkpoint += rules.checkpoint


@compiled
def _is_due(state: KernelArrays) -> bool:
    """Whether to choose anew: the longest hold is over, or the shortest and a tenth of the queue changed."""
    cluster = state.scalars[0]
    has_changed = cluster.changes > 0 and cluster.changes * 10 >= cluster.waiting
    may_choose = cluster.now >= cluster.last_choice + cluster.min_hold
    return bool((has_changed and may_choose) or cluster.now >= cluster.last_choice + cluster.max_hold)


@compiled
def advance(state: KernelArrays, rules: Rules, policies: Records, mode: int) -> int:
    """Run to the end, or until a policy is to be chosen (modes ``CHOOSING`` and ``RESUMED``).

    The caller sets the policy and the hold times, and calls again with ``RESUMED``.
    """
    cluster = state.scalars[0]
    chooses = mode != FIXED_POLICY
    resumes = mode == RESUMED
    while True:
        if not resumes:
            _checkpoint(state, rules)
            _finish(state, rules, policies)
            _arrive(state, rules, policies)
            if chooses and cluster.waiting > 0 and _is_due(state):
                return CHOOSE
        resumes = False
        policy = policies[cluster.policy]
        waited = cluster.waiting
        decide(state.node, state.waiting, state.scalars, state.start, state.scratch, rules, policy)
        _note_starts(state, waited)
        cluster.ticks += 1
        if cluster.waiting == 0 and cluster.arrived == len(state.job):
            _close(state, rules)
            return DONE
        moment = next_moment(state.node, state.waiting, state.scalars, rules, policy, state.scratch, chooses)
        if chooses and cluster.waiting > 0:
            moment = min(moment, max(cluster.last_choice + cluster.max_hold, cluster.now))
        if cluster.arrived < len(state.job):
            moment = min(moment, state.job[cluster.arrived].submit)
        cluster.now = tick_of(moment, cluster.now, rules.tick)


@compiled
def _close(state: KernelArrays, rules: Rules) -> None:
    """After the last start: each node is given back when its last job ends."""
    cluster = state.scalars[0]
    latest = cluster.now
    for i in range(cluster.nodes):
        held = max(state.node[i].ready, cluster.now) - state.node[i].since
        cluster.charged += charge(held, rules.release)
        latest = max(latest, state.node[i].ready)
    cluster.nodes = 0
    while cluster.ending > 0:
        job = state.job[state.ending[0].job]
        heap_pop(state.ending, cluster.ending)
        cluster.ending -= 1
        job.end = job.start + job.run
        cluster.finished += 1
        cluster.slowdown += bounded_slowdown(job.start - job.submit, job.run)
        cluster.work += job.run * job.processors
    cluster.now = latest
    while cluster.checkpoints < len(state.checkpoints):
        row = state.checkpoints[cluster.checkpoints]
        row[CHARGED] = cluster.charged
        row[WORK] = cluster.work
        row[SLOWDOWN] = cluster.slowdown
        row[JOBS] = cluster.finished
        cluster.checkpoints += 1


@compiled
def profile(state: KernelArrays, room: Records) -> int:
    """Write the rented nodes into ``room`` for the online simulator; returns their number.

    There, a running job ends at its expected end, which is known.
    """
    cluster = state.scalars[0]
    for i in range(cluster.nodes):
        room[i] = state.node[i]
        room[i].ready = expected_end(state.node, i, cluster.now)
        if room[i].row >= 0 and room[i].ready > cluster.now:
            room[i].estimate = room[i].ready - room[i].begun
    return int(cluster.nodes)


@compiled
def waiting_jobs(state: KernelArrays, room: Records) -> None:
    """Write the waiting jobs into ``room`` for the online simulator, where each runs for its estimate."""
    cluster = state.scalars[0]
    for i in range(cluster.waiting):
        entry, waiting = room[i], state.waiting[cluster.first + i]
        entry.submit = waiting.submit
        entry.estimate = waiting.estimate
        entry.run = waiting.estimate
        entry.processors = waiting.processors
