"""The online simulator (Deng et al., section 3.3), compiled: queue, node profile and policies in, scores out.

Nothing is allocated in the loop: one policy after the other runs in the same room.
"""

from __future__ import annotations

import numpy as np

from advisor.compiled import compiled
from advisor.simulate.portfolio._next import next_moment, tick_of
from advisor.simulate.portfolio._shared import (
    TAILS,
    Known,
    find_plan,
    find_tail,
    note_plan,
    note_spared,
    note_starts,
    take_starts,
)
from advisor.simulate.portfolio._tick import (
    BY_ORDER,
    charge,
    decide,
    priority_of_next,
    weight_of,
)
from advisor.simulate.portfolio.state import (
    SLOWDOWN_BOUND,
    Flags,
    Floats,
    Ints,
    OnlineState,
    Readiness,
    Rules,
)
from advisor.simulate.state import Records

CHARGED, SLOWDOWN, LATER_SLOWDOWN, HELD, SPARED_CHARGED, SPARED_SLOWDOWN = 0, 1, 2, 3, 4, 5
"""Columns of the outcome: seconds charged that were not yet, sums of bounded slowdowns of the jobs that wait
and of those expected later, seconds charged for the time from now on, paid hours' rest included, and what the
plan's idle nodes spare jobs that are expected to come, less what its busy ones cost them."""
COLUMNS = 6
STARTED, NEVER, HANDED_OVER = 0, 1, 2
"""How a plan ended: every job started, one never would, or its time is over."""


@compiled
def _arrive(job: Records, waiting: Records, cluster: Records, order: int) -> None:
    """Queue the jobs that are there by now."""
    it = cluster[0]
    while it.arrived < len(job) and job[it.arrived].submit <= it.now:
        new, this = job[it.arrived], waiting[it.first + it.waiting]
        this.submit = new.submit
        this.run = new.run
        this.estimate = new.estimate
        this.weight = weight_of(order, new.estimate, new.processors)
        this.processors = new.processors
        this.row = it.arrived
        it.arrived += 1
        it.waiting += 1


@compiled
def _soonest(state: OnlineState, since: float, needed: int) -> None:
    """When the busy nodes that are idle first get so, at least so many of them, and how many at a time.

    Written into ``soon``, ascending. A job's nodes mostly stand together, so that there are few to sort.
    """
    it, moment, count = state.cluster[0], state.soon[0], state.soon[1]
    size = 0
    total = 0.0
    at = 0
    while at < it.nodes:
        ready = state.node[at].ready
        first = at
        while at < it.nodes and state.node[at].ready == ready:
            at += 1
        if ready <= since or (total >= needed and ready >= moment[size - 1]):
            continue
        place = size
        while place > 0 and moment[place - 1] > ready:
            moment[place], count[place] = moment[place - 1], count[place - 1]
            place -= 1
        moment[place], count[place] = ready, at - first
        size += 1
        total += at - first
        while total - count[size - 1] >= needed:
            size -= 1
            total -= count[size]


@compiled
def _hindered(state: OnlineState, rules: Rules, ready: Readiness, since: float, until: float) -> float:
    """Slowdown of the jobs that come between two ticks and wait until enough nodes are idle.

    They come before what waits already, as short ones do in every order but FCFS: so they wait until the
    running jobs leave as many nodes as they need. Not counted is what they do to each other and to the queue.
    """
    it = state.cluster[0]
    free = rules.max_nodes - it.nodes + it.idle
    if len(ready.width) == 0 or ready.width[-1] <= free:
        return 0.0
    _soonest(state, since, ready.width[-1] - free)
    slowdown = 0.0
    at = 0
    idle = state.soon[1, 0]
    for place in range(len(ready.width)):
        needed = ready.width[place] - free
        if needed <= 0:
            continue
        while idle < needed:
            at += 1
            idle += state.soon[1, at]
        wait = state.soon[0, at] - since
        seconds = min(until - since, wait)
        slowdown += ready.harm[place] * seconds * (wait - 0.5 * seconds)
    return slowdown


@compiled
def _spared(
    state: OnlineState, rules: Rules, policy: Records, ready: Readiness, since: float, until: float
) -> tuple[float, float]:
    """What the nodes that are idle between two ticks spare the jobs that come meanwhile: charge, slowdown.

    While the next job is blocked that helps only those that soon come before it in the policy's order. And
    it spares boot and charge only of nodes that could be rented.
    """
    idle = min(state.cluster[0].idle, rules.max_nodes - state.cluster[0].nodes)
    if idle == 0:
        return 0.0, 0.0
    if state.cluster[0].waiting > 0:
        state.cluster[0].forks |= BY_ORDER
    seconds = until - since
    if state.cluster[0].waiting > 0 and not policy.backfill:
        blocked, own = priority_of_next(state.waiting, state.cluster, policy.order, since)
        if own == 0.0:
            return 0.0, 0.0
        weight = ready.weight[policy.order]
        seconds *= 1.0 - np.searchsorted(weight, blocked / own) / len(weight)
    return float(ready.charged[idle] * seconds), float(ready.slowdown[idle] * seconds)


@compiled
def _add_spared(known: Known, tail: int, outcome: Floats, charged: float, slowdown: float) -> None:
    """Add to what idle nodes spare; ``tail``: the future in which that is, -1 for none.

    Whatever a plan gathers on its way has to go through here: it is added again to plans that share it.
    """
    outcome[SPARED_CHARGED] += charged
    outcome[SPARED_SLOWDOWN] += slowdown
    if tail >= 0 and (charged != 0.0 or slowdown != 0.0):
        note_spared(known, tail, charged, slowdown)


@compiled
def _go(  # noqa: PLR0917  (compiled: no keywords)
    job: Records,
    state: OnlineState,
    known: Known,
    tail: int,
    rules: Rules,
    policy: Records,
    until: float,
    least: float,
    ready: Readiness,
    outcome: Floats,
) -> int:
    """Follow a policy from tick to tick until every job has started, or past ``until``.

    Not before ``least``. ``tail``: where to write down what is spared; -1 for nowhere.
    """
    it = state.cluster[0]
    while True:
        _arrive(job, state.waiting, state.cluster, policy.order)
        decide(state.node, state.waiting, state.cluster, state.start, state.scratch, rules, policy)
        all_started = it.waiting == 0 and it.arrived == len(job)
        if all_started and it.now >= least:
            _add_spared(known, tail, outcome, 0.0, -_hindered(state, rules, ready, it.now, np.inf))
            return STARTED
        moment = next_moment(state.node, state.waiting, state.cluster, rules, policy, state.scratch, True)
        if it.arrived < len(job):
            moment = min(moment, job[it.arrived].submit)
        if all_started:
            moment = min(moment, until + 1.0 if until < np.inf else least)
        if moment == np.inf:
            return NEVER
        before = it.now
        it.now = tick_of(moment, it.now, rules.tick)
        if len(ready.slowdown) > 0:
            charged, slowdown = _spared(state, rules, policy, ready, before, it.now)
            slowdown -= _hindered(state, rules, ready, before, it.now)
            _add_spared(known, tail, outcome, charged, slowdown)
        if it.now > until:
            return HANDED_OVER


@compiled
def _charged(state: OnlineState, rules: Rules) -> float:
    """Seconds charged if each node is given back when its last job ends; whole ones."""
    it = state.cluster[0]
    total = it.charged
    for at in range(it.nodes):
        held = max(state.node[at].ready, it.now) - state.node[at].since
        total += charge(held, rules.release)
    return float(total)


@compiled
def _follow(
    job: Records,
    state: OnlineState,
    known: Known,
    rules: Rules,
    after: Records,
    least: float,
    ready: Readiness,
    outcome: Floats,
) -> tuple[bool, float]:
    """Let the policy ``after`` take over; whether every job started, and seconds charged."""
    it = state.cluster[0]
    at, is_known = find_tail(state, known)
    tail = known.tail[at]
    if is_known:
        for place in range(tail.spared):
            outcome[SPARED_CHARGED] += known.spared[at, place, 0]
            outcome[SPARED_SLOWDOWN] += known.spared[at, place, 1]
        take_starts(state, known, at, len(job))
        return tail.started == 1, it.charged + tail.charged
    for place in range(it.waiting):
        this = state.waiting[it.first + place]
        this.weight = weight_of(after.order, this.estimate, this.processors)
    before = it.charged
    ended = _go(job, state, known, at, rules, after, np.inf, least, ready, outcome)
    charged = _charged(state, rules)
    note_starts(state, known, at, len(job))
    tail.started = int(ended == STARTED)
    tail.charged = charged - before
    return ended == STARTED, charged


@compiled
def _paid(profile: Records, now: float, rules: Rules) -> tuple[float, float]:
    """Seconds charged for the rented nodes so far, and how long they have been held."""
    paid = 0.0
    elapsed = 0.0
    for at in range(len(profile)):
        if now > profile[at].since:
            paid += charge(now - profile[at].since, rules.release)
            elapsed += now - profile[at].since
    return float(paid), float(elapsed)


@compiled
def _reset(profile: Records, now: float, state: OnlineState) -> None:
    it = state.cluster[0]
    state.node[: len(profile)] = profile
    it.nodes = len(profile)
    it.now = now
    it.next_ready = -np.inf
    it.charged = 0.0
    it.first = 0
    it.waiting = 0
    it.arrived = 0
    it.forks = 0


@compiled
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
    known: Known,
    ready: Readiness,
    outcome: Floats,
) -> None:
    """Run each chosen policy on the queue; see :func:`advisor.simulate.portfolio.online.simulate`.

    After ``hold`` seconds the policy ``base`` takes over. Where that one keeps nodes warm the plan goes on
    until they can be up: a plan that gave them back has to rent them again.
    """
    it = state.cluster[0]
    paid, elapsed = _paid(profile, now, rules)
    # nodes without boot would be idle after an order was decided on; alone, policies differ to the end
    shares = rules.boot > 0.0 and (base >= 0 or hold == np.inf)
    for index in chosen:
        same = find_plan(known, policies[index]) if shares else -1
        if same >= 0:
            outcome[index] = outcome[same]
            continue
        if base < 0:
            known.size[TAILS] = 0
        _reset(profile, now, state)
        outcome[index, SPARED_CHARGED] = outcome[index, SPARED_SLOWDOWN] = 0.0
        after = policies[index if base < 0 else base]
        until = now + hold
        least = until + rules.boot if after.headroom > 0 and hold < np.inf else now
        ended = _go(job, state, known, -1, rules, policies[index], until, least, ready, outcome[index])
        if shares:
            note_plan(known, policies[index], it.forks, index)
        if ended == HANDED_OVER:
            started, total = _follow(job, state, known, rules, after, least, ready, outcome[index])
        else:
            started, total = ended == STARTED, _charged(state, rules)
        outcome[index, CHARGED] = total - paid if started else np.inf
        outcome[index, HELD] = total - elapsed
        _add_slowdowns(job, present, state.start, outcome, index)


@compiled
def take_alike(policies: Records, known: Known, outcome: Floats, is_known: Flags) -> None:
    """Outcomes of policies whose plan is that of one that was simulated; ``is_known``, shape (n,): whose."""
    for index in range(len(policies)):
        same = find_plan(known, policies[index])
        is_known[index] = same >= 0
        if same >= 0:
            outcome[index] = outcome[same]


@compiled
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
