"""The compiled online simulator (Deng et al., section 3.3): queue, nodes and policies in, scores out.

The loop allocates nothing: all policies use the same arrays, one after the other.
"""

from __future__ import annotations

import numpy as np

from advisor.arrays import Bools, Floats, Ints
from advisor.compiled import compiled
from advisor.simulate.heap import Records
from advisor.simulate.portfolio._next import next_moment, tick_of
from advisor.simulate.portfolio._shared import (
    TAILS,
    SharedPlans,
    find_plan,
    find_tail,
    note_plan,
    note_spared,
    note_starts,
    take_starts,
)
from advisor.simulate.portfolio._tick import (
    ORDER_MATTERED,
    charge,
    decide,
    priority_of_next,
    weight_of,
)
from advisor.simulate.portfolio.state import SLOWDOWN_BOUND, OnlineState, Readiness, Rules

CHARGED, SLOWDOWN, HELD, SPARED_CHARGED, SPARED_SLOWDOWN = 0, 1, 2, 3, 4
"""Columns of the outcome: seconds charged that were not yet; the sum of the bounded slowdowns; seconds
charged for the time from now on, paid hours' rest included; and what the plan's idle nodes spare jobs that
may come, less what its busy ones cost them.
"""
COLUMNS = 5
STARTED, NEVER, HANDED_OVER = 0, 1, 2
"""How a plan ended: every job started, one never would, or its time is over."""


@compiled
def _queue(jobs: Records, waiting: Records, order: int) -> None:
    for row in range(len(jobs)):
        job, entry = jobs[row], waiting[row]
        entry.submit = job.submit
        entry.run = job.run
        entry.estimate = job.estimate
        entry.weight = weight_of(order, job.estimate, job.processors)
        entry.processors = job.processors
        entry.row = row


@compiled
def _next_idle(state: OnlineState, since: float, needed: int) -> None:
    """Write into ``idle_times`` when busy nodes get idle and how many, ascending, up to ``needed`` nodes.

    A job's nodes mostly stand together, so there are few entries to sort.
    """
    cluster, moment, count = state.scalars[0], state.idle_times[0], state.idle_times[1]
    size = 0
    total = 0.0
    i = 0
    while i < cluster.nodes:
        ready = state.node[i].ready
        first = i
        while i < cluster.nodes and state.node[i].ready == ready:
            i += 1
        if ready <= since or (total >= needed and ready >= moment[size - 1]):
            continue
        position = size
        while position > 0 and moment[position - 1] > ready:
            moment[position], count[position] = moment[position - 1], count[position - 1]
            position -= 1
        moment[position], count[position] = ready, i - first
        size += 1
        total += i - first
        while total - count[size - 1] >= needed:
            size -= 1
            total -= count[size]


@compiled
def _hindered(state: OnlineState, rules: Rules, ready: Readiness, since: float, until: float) -> float:
    """Slowdown of the jobs that come between two ticks and wait until enough nodes are idle.

    They go before the queue, as short jobs do in every order but FCFS, so they wait until the running jobs
    leave enough nodes. Their effect on each other and on the queue is not counted.
    """
    cluster = state.scalars[0]
    free = rules.max_nodes - cluster.nodes + cluster.idle
    if len(ready.width) == 0 or ready.width[-1] <= free:
        return 0.0
    _next_idle(state, since, ready.width[-1] - free)
    slowdown = 0.0
    i = 0
    idle = state.idle_times[1, 0]
    for width_class in range(len(ready.width)):
        needed = ready.width[width_class] - free
        if needed <= 0:
            continue
        while idle < needed:
            i += 1
            idle += state.idle_times[1, i]
        wait = state.idle_times[0, i] - since
        seconds = min(until - since, wait)
        slowdown += ready.harm[width_class] * seconds * (wait - 0.5 * seconds)
    return slowdown


@compiled
def _spared(
    state: OnlineState, rules: Rules, policy: Records, ready: Readiness, since: float, until: float
) -> tuple[float, float]:
    """Charge and slowdown that the nodes idle between two ticks save the jobs that come meanwhile.

    While the next job is blocked, only jobs that soon precede it in the policy's order benefit. Boot and
    charge are saved only for nodes that could be rented.
    """
    idle = min(state.scalars[0].idle, rules.max_nodes - state.scalars[0].nodes)
    if idle == 0:
        return 0.0, 0.0
    if state.scalars[0].waiting > 0:
        state.scalars[0].mattered |= ORDER_MATTERED
    seconds = until - since
    if state.scalars[0].waiting > 0 and not policy.backfill:
        blocked, own = priority_of_next(state.waiting, state.scalars, policy.order, since)
        if own == 0.0:
            return 0.0, 0.0
        weight = ready.weight[policy.order]
        seconds *= 1.0 - np.searchsorted(weight, blocked / own) / len(weight)
    return float(ready.charged[idle] * seconds), float(ready.slowdown[idle] * seconds)


@compiled
def _add_spared(shared: SharedPlans, tail: int, outcome: Floats, charged: float, slowdown: float) -> None:
    """Add savings to the outcome, and to the tail ``tail`` (-1 for none).

    Every saving of a plan must go through here: it is added again to the plans that share the tail.
    """
    outcome[SPARED_CHARGED] += charged
    outcome[SPARED_SLOWDOWN] += slowdown
    if tail >= 0 and (charged != 0.0 or slowdown != 0.0):
        note_spared(shared, tail, charged, slowdown)


@compiled
def _run_policy(  # noqa: PLR0917  (compiled: no keywords)
    state: OnlineState,
    shared: SharedPlans,
    tail: int,
    rules: Rules,
    policy: Records,
    until: float,
    not_before: float,
    ready: Readiness,
    outcome: Floats,
) -> int:
    """Run a policy tick by tick until all jobs have started and ``not_before``, or past ``until``."""
    cluster = state.scalars[0]
    while True:
        decide(state.node, state.waiting, state.scalars, state.start, state.scratch, rules, policy)
        all_started = cluster.waiting == 0
        if all_started and cluster.now >= not_before:
            _add_spared(shared, tail, outcome, 0.0, -_hindered(state, rules, ready, cluster.now, np.inf))
            return STARTED
        moment = next_moment(state.node, state.waiting, state.scalars, rules, policy, state.scratch, True)
        if all_started:
            moment = min(moment, until + 1.0 if until < np.inf else not_before)
        if moment == np.inf:
            return NEVER
        before = cluster.now
        cluster.now = tick_of(moment, cluster.now, rules.tick)
        if len(ready.slowdown) > 0:
            charged, slowdown = _spared(state, rules, policy, ready, before, cluster.now)
            slowdown -= _hindered(state, rules, ready, before, cluster.now)
            _add_spared(shared, tail, outcome, charged, slowdown)
        if cluster.now > until:
            return HANDED_OVER


@compiled
def _charged(state: OnlineState, rules: Rules) -> float:
    """Seconds charged if each node is given back when its last job ends; whole seconds."""
    cluster = state.scalars[0]
    total = cluster.charged
    for i in range(cluster.nodes):
        held = max(state.node[i].ready, cluster.now) - state.node[i].since
        total += charge(held, rules.release)
    return float(total)


@compiled
def _hand_over(
    state: OnlineState,
    shared: SharedPlans,
    rules: Rules,
    after: Records,
    not_before: float,
    ready: Readiness,
    outcome: Floats,
) -> tuple[bool, float]:
    """Let the policy ``after`` take over; returns whether every job started, and the seconds charged."""
    cluster = state.scalars[0]
    index, is_shared = find_tail(state, shared)
    tail = shared.tail[index]
    if is_shared:
        for i in range(tail.spared):
            outcome[SPARED_CHARGED] += shared.spared[index, i, 0]
            outcome[SPARED_SLOWDOWN] += shared.spared[index, i, 1]
        take_starts(state, shared, index)
        return tail.started == 1, cluster.charged + tail.charged
    for i in range(cluster.waiting):
        entry = state.waiting[cluster.first + i]
        entry.weight = weight_of(after.order, entry.estimate, entry.processors)
    before = cluster.charged
    ended = _run_policy(state, shared, index, rules, after, np.inf, not_before, ready, outcome)
    charged = _charged(state, rules)
    note_starts(state, shared, index)
    tail.started = int(ended == STARTED)
    tail.charged = charged - before
    return ended == STARTED, charged


@compiled
def _paid(profile: Records, now: float, rules: Rules) -> tuple[float, float]:
    """Seconds charged for the rented nodes so far, and how long they have been held."""
    paid = 0.0
    elapsed = 0.0
    for i in range(len(profile)):
        if now > profile[i].since:
            paid += charge(now - profile[i].since, rules.release)
            elapsed += now - profile[i].since
    return float(paid), float(elapsed)


@compiled
def _reset(profile: Records, jobs: Records, now: float, order: int, state: OnlineState) -> None:
    cluster = state.scalars[0]
    state.node[: len(profile)] = profile
    cluster.nodes = len(profile)
    cluster.now = now
    cluster.next_ready = -np.inf
    cluster.charged = 0.0
    cluster.first = 0
    cluster.waiting = len(jobs)
    cluster.mattered = 0
    _queue(jobs, state.waiting, order)


@compiled
def simulate_policies(  # noqa: PLR0917  (compiled: no keywords)
    profile: Records,
    jobs: Records,
    now: float,
    base: int,
    hold: float,
    policies: Records,
    chosen: Ints,
    rules: Rules,
    state: OnlineState,
    shared: SharedPlans,
    ready: Readiness,
    outcome: Floats,
) -> None:
    """Run each chosen policy on the queue; see :class:`advisor.simulate.portfolio.online.OnlineSimulator`.

    After ``hold`` seconds the policy ``base`` takes over. Where that one keeps nodes warm, the plan goes on
    until they can be up: a plan that gave them back has to rent them again.
    """
    cluster = state.scalars[0]
    paid, elapsed = _paid(profile, now, rules)
    # without a boot, nodes could get idle after the order was decided; without a base, all plans differ
    shares = rules.boot > 0.0 and (base >= 0 or hold == np.inf)
    for index in chosen:
        same = find_plan(shared, policies[index]) if shares else -1
        if same >= 0:
            outcome[index] = outcome[same]
            continue
        if base < 0:
            shared.size[TAILS] = 0
        _reset(profile, jobs, now, policies[index].order, state)
        outcome[index, SPARED_CHARGED] = outcome[index, SPARED_SLOWDOWN] = 0.0
        after = policies[index if base < 0 else base]
        until = now + hold
        not_before = until + rules.boot if after.headroom > 0 and hold < np.inf else now
        ended = _run_policy(
            state, shared, -1, rules, policies[index], until, not_before, ready, outcome[index]
        )
        if shares:
            note_plan(shared, policies[index], cluster.mattered, index)
        if ended == HANDED_OVER:
            started, total = _hand_over(state, shared, rules, after, not_before, ready, outcome[index])
        else:
            started, total = ended == STARTED, _charged(state, rules)
        outcome[index, CHARGED] = total - paid if started else np.inf
        outcome[index, HELD] = total - elapsed
        outcome[index, SLOWDOWN] = _slowdowns(jobs, state.start)


@compiled
def copy_shared_outcomes(policies: Records, shared: SharedPlans, outcome: Floats, is_shared: Bools) -> None:
    """Copy outcomes to all policies whose plan was simulated; ``is_shared``, shape (n,), marks them."""
    for index in range(len(policies)):
        same = find_plan(shared, policies[index])
        is_shared[index] = same >= 0
        if same >= 0:
            outcome[index] = outcome[same]


@compiled
def _slowdowns(jobs: Records, start: Floats) -> float:
    total = 0.0
    for row in range(len(jobs)):
        run = jobs[row].run
        total += max((start[row] - jobs[row].submit + run) / max(run, SLOWDOWN_BOUND), 1.0)
    return total
