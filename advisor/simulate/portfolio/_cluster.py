"""The cluster of the log on rented nodes, compiled: goes on until its policy is to be chosen, or the end.

At one tick: ends, arrivals, (choice), then the policy's decision (``_tick``). Between ticks at which nothing
can happen time is skipped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.compiled import compiled
from advisor.simulate.portfolio._next import next_moment, tick_of
from advisor.simulate.portfolio._tick import charge, decide, expected_end, weight_of
from advisor.simulate.portfolio.state import (
    ACTUAL,
    ALIKE,
    CHARGED,
    JOBS,
    REQUESTED,
    SLOWDOWN,
    SLOWDOWN_BOUND,
    WORK,
    Floats,
    Ints,
    Rules,
)
from advisor.simulate.state import Records, heap_pop, heap_push

DONE, CHOOSE = 0, 1
ALONE, CHOOSING, RESUMED = 0, 1, 2
_UNKNOWN_SECONDS = 3600.0


class ClusterState(NamedTuple):
    """The kernel's arrays.

    ``recent`` and ``recent_alike``: last two run times of each user and of each kind of job, NaN for none;
    ``queued``: first and last row of each user's jobs that are to be looked at again, -1 for none;
    ``ending``: heap of running jobs' ends; ``checkpoints``: shape (c, 4).
    """

    job: Records
    node: Records
    waiting: Records
    cluster: Records
    ending: Records
    recent: Floats
    recent_alike: Floats
    queued: Ints
    checkpoints: Floats
    scratch: Floats
    start: Floats


@compiled
def _mean_of(recent: Floats, code: int) -> float:
    """Mean of the last two run times, of the last one, or NaN."""
    last, before = recent[code, 0], recent[code, 1]
    return float(last if np.isnan(before) else (last + before) / 2.0)


@compiled
def estimate_of(state: ClusterState, rules: Rules, row: int) -> float:
    """Expected run time of a job not yet started, from what is known now."""
    this = state.job[row]
    if rules.runtimes == ACTUAL:
        return float(this.run)
    requested = this.requested
    if rules.runtimes == REQUESTED and not np.isnan(requested):
        return float(requested)
    mean = np.nan
    if rules.runtimes == ALIKE:
        mean = _mean_of(state.recent_alike, this.alike)
    if np.isnan(mean):
        mean = _mean_of(state.recent, this.user)
    if not np.isnan(mean):
        return mean if np.isnan(requested) else min(mean, float(requested))
    if not np.isnan(requested):
        return float(requested)
    it = state.cluster[0]
    return float(it.finished_run / it.finished) if it.finished else _UNKNOWN_SECONDS


@compiled
def _remember(recent: Floats, code: int, run: float) -> None:
    recent[code, 1] = recent[code, 0]
    recent[code, 0] = run


@compiled
def _finish(state: ClusterState, rules: Rules, policies: Records) -> None:
    """Take in the jobs that ended by now, and look again at what waits of their users."""
    it = state.cluster[0]
    while it.ending > 0 and state.ending[0].time <= it.now:
        row = state.ending[0].job
        heap_pop(state.ending, it.ending)
        it.ending -= 1
        this = state.job[row]
        this.end = this.start + this.run
        it.finished += 1
        it.finished_run += this.run
        it.changes += 1
        it.slowdown += slowdown_of(this.start - this.submit, this.run)
        it.work += this.run * this.processors
        if rules.runtimes == ACTUAL:
            continue
        _remember(state.recent, this.user, this.run)
        _remember(state.recent_alike, this.alike, this.run)
        _look_at_user(state, rules, policies, this.user)


@compiled
def _look_at_user(state: ClusterState, rules: Rules, policies: Records, user: int) -> None:
    """Look again at what waits of a user, and strike off what started since."""
    queued = state.queued
    before, row, at = -1, queued[user, 0], 0
    while row >= 0:
        this = state.job[row]
        if np.isnan(state.start[row]):
            at = _place_of(state, row, at)
            _look_again(state, rules, policies, at)
            before = row
        elif before < 0:
            queued[user, 0] = this.later
        else:
            state.job[before].later = this.later
        row = this.later
    queued[user, 1] = before


@compiled
def _place_of(state: ClusterState, row: int, low: int) -> int:
    """Where a job waits, which is not before ``low``, and probably near: the queue is in submission order."""
    it = state.cluster[0]
    step = 1
    while low + step < it.waiting and state.waiting[it.first + low + step].row <= row:
        low += step
        step *= 2
    high = min(low + step, it.waiting) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if state.waiting[it.first + middle].row <= row:
            low = middle
        else:
            high = middle - 1
    return low


@compiled
def _enqueue(state: ClusterState, rules: Rules, row: int) -> None:
    """Note a job whose expected run time hangs on its user's others."""
    this = state.job[row]
    if rules.runtimes == ACTUAL or (rules.runtimes == REQUESTED and not np.isnan(this.requested)):
        return
    last = state.queued[this.user, 1]
    if last < 0:
        state.queued[this.user, 0] = row
    else:
        state.job[last].later = row
    state.queued[this.user, 1] = row


@compiled
def _look_again(state: ClusterState, rules: Rules, policies: Records, at: int) -> None:
    this = state.waiting[state.cluster[0].first + at]
    this.estimate = estimate_of(state, rules, this.row)
    this.weight = weight_of(policies[state.cluster[0].policy].order, this.estimate, this.processors)
    state.job[this.row].estimate = this.estimate


@compiled
def weigh(state: ClusterState, policies: Records) -> None:
    """Weigh all waiting jobs by the policy's order, after the policy changed."""
    it = state.cluster[0]
    for at in range(it.waiting):
        this = state.waiting[it.first + at]
        this.weight = weight_of(policies[it.policy].order, this.estimate, this.processors)


@compiled
def _arrive(state: ClusterState, rules: Rules, policies: Records) -> None:
    it = state.cluster[0]
    while it.arrived < len(state.job) and state.job[it.arrived].submit <= it.now:
        new, this = state.job[it.arrived], state.waiting[it.first + it.waiting]
        this.submit = new.submit
        this.run = new.run
        this.processors = new.processors
        this.row = it.arrived
        _look_again(state, rules, policies, it.waiting)
        _enqueue(state, rules, it.arrived)
        it.arrived += 1
        it.waiting += 1
        it.changes += 1
    it.most_waiting = max(it.most_waiting, it.waiting)


@compiled
def _note_starts(state: ClusterState, began: int) -> None:
    """Write down when the jobs started at this tick end; ``began``: jobs that waited before."""
    it = state.cluster[0]
    if it.waiting == began:
        return
    last = -1
    for at in range(it.nodes):
        this = state.node[at]
        if this.row >= 0 and this.begun == it.now and this.row != last:
            last = this.row
            job = state.job[last]
            if np.isnan(job.start):
                job.start = it.now
                it.changes += 1
                heap_push(state.ending, it.ending, it.now + job.run, last)
                it.ending += 1


@compiled
def slowdown_of(wait: float, run: float) -> float:
    """Bounded slowdown of section 2."""
    return float(max((wait + run) / max(run, SLOWDOWN_BOUND), 1.0))


@compiled
def _checkpoint(state: ClusterState, rules: Rules) -> None:
    """Write down what was charged and worked at the checkpoints before this tick, and all slowdowns so far.

    Jobs that run or wait count with what is expected of them: else a policy would look good for as long as
    it lets a burst wait. Called before the tick's ends: between the tick before and this one nothing
    happened.
    """
    it = state.cluster[0]
    while it.checkpoints < len(state.checkpoints) and it.next_checkpoint <= it.now:
        moment = it.next_checkpoint
        row = state.checkpoints[it.checkpoints]
        row[CHARGED] = it.charged
        row[WORK] = it.work
        row[SLOWDOWN] = it.slowdown
        row[JOBS] = it.finished
        for at in range(it.nodes):
            this = state.node[at]
            if moment > this.since:
                row[CHARGED] += charge(moment - this.since, rules.release)
            if this.row >= 0 and np.isnan(state.job[this.row].end):
                job = state.job[this.row]
                row[WORK] += moment - this.begun
                row[SLOWDOWN] += slowdown_of(this.begun - job.submit, job.estimate) / job.processors
                row[JOBS] += 1.0 / job.processors
        for at in range(it.waiting):
            waits = state.waiting[it.first + at]
            row[SLOWDOWN] += slowdown_of(moment - waits.submit, waits.estimate)
            row[JOBS] += 1.0
        it.checkpoints += 1
        it.next_checkpoint += rules.checkpoint


@compiled
def _is_due(state: ClusterState) -> bool:
    """Whether to choose anew: after the rest a tenth of the queue came or went, or the period is over."""
    it = state.cluster[0]
    has_changed = it.changes > 0 and it.changes * 10 >= it.waiting
    rested = it.now >= it.last_choice + it.rest
    return bool((has_changed and rested) or it.now >= it.last_choice + it.period)


@compiled
def advance(state: ClusterState, rules: Rules, policies: Records, mode: int) -> int:
    """Go on to the end, or until the policy is to be chosen (modes ``CHOOSING`` and ``RESUMED``).

    The caller sets ``cluster.policy`` and ``cluster.period`` and calls again with ``RESUMED``.
    """
    it = state.cluster[0]
    chooses = mode != ALONE
    resumes = mode == RESUMED
    while True:
        if not resumes:
            _checkpoint(state, rules)
            _finish(state, rules, policies)
            _arrive(state, rules, policies)
            if chooses and it.waiting > 0 and _is_due(state):
                return CHOOSE
        resumes = False
        policy = policies[it.policy]
        began = it.waiting
        decide(state.node, state.waiting, state.cluster, state.start, state.scratch, rules, policy)
        _note_starts(state, began)
        it.ticks += 1
        if it.waiting == 0 and it.arrived == len(state.job):
            _close(state, rules)
            return DONE
        moment = next_moment(state.node, state.waiting, state.cluster, rules, policy, state.scratch, chooses)
        if chooses and it.waiting > 0:
            moment = min(moment, max(it.last_choice + it.period, it.now))
        if it.arrived < len(state.job):
            moment = min(moment, state.job[it.arrived].submit)
        it.now = tick_of(moment, it.now, rules.tick)


@compiled
def _close(state: ClusterState, rules: Rules) -> None:
    """Every job has started: each node is given back when its last job ends."""
    it = state.cluster[0]
    latest = it.now
    for at in range(it.nodes):
        held = max(state.node[at].ready, it.now) - state.node[at].since
        it.charged += charge(held, rules.release)
        latest = max(latest, state.node[at].ready)
    it.nodes = 0
    while it.ending > 0:
        job = state.job[state.ending[0].job]
        heap_pop(state.ending, it.ending)
        it.ending -= 1
        job.end = job.start + job.run
        it.finished += 1
        it.slowdown += slowdown_of(job.start - job.submit, job.run)
        it.work += job.run * job.processors
    it.now = latest
    while it.checkpoints < len(state.checkpoints):
        row = state.checkpoints[it.checkpoints]
        row[CHARGED] = it.charged
        row[WORK] = it.work
        row[SLOWDOWN] = it.slowdown
        row[JOBS] = it.finished
        it.checkpoints += 1


@compiled
def profile(state: ClusterState, room: Records) -> int:
    """Write the rented nodes into ``room`` as the online simulator takes them; how many.

    There a running job ends when it is expected to end now, and is known to.
    """
    it = state.cluster[0]
    for at in range(it.nodes):
        room[at] = state.node[at]
        room[at].ready = expected_end(state.node, at, it.now)
        if room[at].row >= 0 and room[at].ready > it.now:
            room[at].estimate = room[at].ready - room[at].begun
    return int(it.nodes)


@compiled
def expected_jobs(state: ClusterState, lookahead: float, room: Records) -> int:
    """Write the waiting jobs into ``room``, then the last ``lookahead`` seconds' arrivals again; how many.

    A job that finished since comes with its run time, another with what is expected of it.
    """
    it = state.cluster[0]
    count = 0
    for at in range(it.waiting):
        this, waiting = room[count], state.waiting[it.first + at]
        this.submit = waiting.submit
        this.estimate = waiting.estimate
        this.run = waiting.estimate
        this.processors = waiting.processors
        count += 1
    first = it.arrived
    room_left = len(room) - count
    while first > 0 and it.arrived - first < room_left and state.job[first - 1].submit > it.now - lookahead:
        first -= 1
    for row in range(first, it.arrived):
        this, job = room[count], state.job[row]
        this.submit = job.submit + lookahead
        this.processors = job.processors
        this.estimate = job.estimate
        this.run = job.estimate if np.isnan(job.end) else job.run
        count += 1
    return count
