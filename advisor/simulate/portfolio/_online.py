"""The online simulator (Deng et al., section 3.3), compiled: queue, node profile and policies in, scores out.

Nothing is allocated in the loop: one policy after the other runs in the same room.
"""

from __future__ import annotations

import numba
import numpy as np

from advisor.simulate._state import Records
from advisor.simulate.portfolio._state import (
    SLOWDOWN_BOUND,
    Floats,
    Ints,
    OnlineState,
    Readiness,
    Rules,
)
from advisor.simulate.portfolio._tick import charge, decide, next_moment, priority_of_next, tick_of, weight_of

CHARGED, SLOWDOWN, LATER_SLOWDOWN, HELD, SPARED_CHARGED, SPARED_SLOWDOWN = 0, 1, 2, 3, 4, 5
"""Columns of the outcome: seconds charged that were not yet, sums of bounded slowdowns of the jobs that wait
and of those expected later, seconds charged for the time from now on, paid hours' rest included, and what the
plan's idle nodes spare jobs that are expected to come."""
COLUMNS = 6


@numba.njit(cache=True)
def _arrive(job: Records, waiting: Records, cluster: Records, order: int) -> None:
    """Queue the jobs that are there by now."""
    it = cluster[0]
    while it.arrived < len(job) and job[it.arrived].submit <= it.now:
        new, this = job[it.arrived], waiting[it.waiting]
        this.submit = new.submit
        this.run = new.run
        this.estimate = new.estimate
        this.weight = weight_of(order, new.estimate, new.processors)
        this.processors = new.processors
        this.row = it.arrived
        it.arrived += 1
        it.waiting += 1


@numba.njit(cache=True)
def _spare(
    state: OnlineState, policy: Records, ready: Readiness, since: float, until: float, outcome: Floats
) -> None:
    """Add what the nodes that are idle between two ticks spare the jobs that come meanwhile.

    While the next job is blocked that helps only those that soon come before it in the policy's order.
    """
    idle = 0
    for at in range(state.cluster[0].nodes):
        idle += int(state.node[at].ready <= since)
    if idle == 0:
        return
    seconds = until - since
    if state.cluster[0].waiting > 0 and not policy.backfill:
        blocked, own = priority_of_next(state.waiting, state.cluster, policy.order, since)
        if own == 0.0:
            return
        weight = ready.weight[policy.order]
        seconds *= 1.0 - np.searchsorted(weight, blocked / own) / len(weight)
    outcome[SPARED_CHARGED] += ready.charged[idle] * seconds
    outcome[SPARED_SLOWDOWN] += ready.slowdown[idle] * seconds


@numba.njit(cache=True)
def _run(
    job: Records,
    state: OnlineState,
    rules: Rules,
    policy: Records,
    after: Records,
    hold: float,
    ready: Readiness,
    outcome: Floats,
) -> bool:
    """Go from tick to tick until every job has started; False if a job never would.

    After ``hold`` seconds the policy ``after`` takes over. Where that one keeps nodes warm the plan goes on
    until they can be up: a plan that gave them back has to rent them again.
    """
    it = state.cluster[0]
    until = it.now + hold
    is_held = True
    least = until + rules.boot if after.headroom > 0 and hold < np.inf else it.now
    while True:
        _arrive(job, state.waiting, state.cluster, policy.order)
        decide(state.node, state.waiting, state.cluster, state.start, state.scratch, rules, policy)
        all_started = it.waiting == 0 and it.arrived == len(job)
        if all_started and it.now >= least:
            return True
        moment = next_moment(state.node, state.waiting, state.cluster, rules, policy)
        if it.arrived < len(job):
            moment = min(moment, job[it.arrived].submit)
        if all_started:
            moment = min(moment, until + 1.0 if is_held else least)
        if moment == np.inf:
            return False
        before = it.now
        it.now = tick_of(moment, it.now, rules.tick)
        if len(ready.slowdown) > 0:
            _spare(state, policy, ready, before, it.now, outcome)
        if is_held and it.now > until:
            is_held = False
            policy = after
            for at in range(it.waiting):
                this = state.waiting[at]
                this.weight = weight_of(after.order, this.estimate, this.processors)


@numba.njit(cache=True, nogil=True)
def simulate_policies(  # noqa: PLR0917  (compiled: no keywords)
    profile: Records,
    job: Records,
    present: int,
    now: float,
    base: int,
    hold: float,
    policies: Records,
    chosen: Ints,
    rules: Rules,
    state: OnlineState,
    ready: Readiness,
    outcome: Floats,
) -> None:
    """Run each chosen policy on the queue; see :func:`advisor.simulate.portfolio.online.simulate`."""
    it = state.cluster[0]
    paid = 0.0
    elapsed = 0.0
    for at in range(len(profile)):
        if now > profile[at].since:
            paid += charge(now - profile[at].since, rules.release)
            elapsed += now - profile[at].since
    for index in chosen:
        state.node[: len(profile)] = profile
        it.nodes = len(profile)
        it.now = now
        it.charged = 0.0
        it.waiting = 0
        it.arrived = 0
        outcome[index, SPARED_CHARGED] = outcome[index, SPARED_SLOWDOWN] = 0.0
        after = policies[index if base < 0 else base]
        started = _run(job, state, rules, policies[index], after, hold, ready, outcome[index])
        total = it.charged
        for at in range(it.nodes):
            held = max(state.node[at].ready, it.now) - state.node[at].since
            total += charge(held, rules.release)
        outcome[index, CHARGED] = total - paid if started else np.inf
        outcome[index, HELD] = total - elapsed
        _add_slowdowns(job, present, state.start, outcome, index)


@numba.njit(cache=True)
def _add_slowdowns(
    job: Records,
    present: int,
    start: Floats,
    outcome: Floats,
    index: int,
) -> None:
    here = 0.0
    later = 0.0
    for row in range(len(job)):
        run = job[row].run
        slowdown = max((start[row] - job[row].submit + run) / max(run, SLOWDOWN_BOUND), 1.0)
        if row < present:
            here += slowdown
        else:
            later += slowdown
    outcome[index, SLOWDOWN] = here
    outcome[index, LATER_SLOWDOWN] = later
