"""What a policy does at one tick: rent, order, place, give back.

Shared by both kernels, so that the online simulator is right about the cluster whenever it is right about run
times and arrivals. In this order: provisioning; jobs start while the next one fits (head-blocking, or EASY
behind it); headroom is filled up; idle nodes are given back by the release rule.
"""

from __future__ import annotations

import math

import numpy as np

from advisor.compiled import compiled
from advisor.simulate.portfolio.policies import JobOrder, NodeChoice, Provisioning, Release
from advisor.simulate.portfolio.state import SLOWDOWN_BOUND, Floats, Rules
from advisor.simulate.state import Records

_ODA, _ODB, _ODE, _ODM = (
    int(Provisioning.ODA),
    int(Provisioning.ODB),
    int(Provisioning.ODE),
    int(Provisioning.ODM),
)
_ODX = int(Provisioning.ODX)
_FCFS, _LXF, _WFP3, _UNICEF = (
    int(JobOrder.FCFS),
    int(JobOrder.LXF),
    int(JobOrder.WFP3),
    int(JobOrder.UNICEF),
)
_WSPT = int(JobOrder.WSPT)
_FIRST, _BEST = int(NodeChoice.FIRST), int(NodeChoice.BEST)
_HOUR_KEPT, _SECOND = int(Release.HOUR_KEPT), int(Release.SECOND)
HOUR_SECONDS = 3600.0
_MIN_CHARGED = 60.0
GRACE_SECONDS = 3600.0
_SOON = 300.0
BY_ORDER, BY_CHOICE = 1, 2
"""Bits of ``forks``: another order of jobs, or choice of nodes, might have led to something else."""


@compiled
def weight_of(order: int, estimate: float, processors: int) -> float:
    """What a job's wait is multiplied with to give its priority (see ``JobOrder``)."""
    run = max(estimate, 1.0)
    if order == _LXF:
        return 1.0 / run
    if order == _WFP3:
        return float(processors ** (1.0 / 3.0) / run)
    if order == _UNICEF:
        return 1.0 / (math.log2(max(processors, 2)) * run)
    if order == _WSPT:
        return 1.0 / (max(run, SLOWDOWN_BOUND) * processors * run)
    return 1.0


@compiled
def charge(held: float, release: int) -> float:
    """Seconds charged for a node that was held so long."""
    if release == _SECOND:
        return max(math.ceil(held), _MIN_CHARGED)
    return max(math.ceil(held / HOUR_SECONDS), 1.0) * HOUR_SECONDS


@compiled
def expected_end(node: Records, at: int, now: float) -> float:
    """When a node is expected to be idle.

    A job beyond its estimate is expected to take twice its time so far.
    """
    it = node[at]
    if it.ready <= now or it.row < 0:
        return float(it.ready)
    end = it.begun + it.estimate
    if end <= now:
        end = now + max(now - it.begun, 1.0)
    return float(end)


@compiled
def _count(node: Records, cluster: Records) -> None:
    """Count idle and booting nodes, and see when the next gets idle; until then the counts are kept."""
    it = cluster[0]
    now = it.now
    idle = 0
    booting = 0
    soonest = np.inf
    for at in range(it.nodes):
        this = node[at]
        if this.ready <= now:
            idle += 1
        else:
            soonest = min(soonest, this.ready)
            booting += int(this.row < 0)
    it.idle = idle
    it.booting = booting
    it.next_ready = soonest


@compiled
def _rent(node: Records, cluster: Records, rules: Rules, wanted: int) -> None:
    it = cluster[0]
    rented = max(min(wanted, rules.max_nodes - it.nodes), 0)
    for _ in range(rented):
        new = node[it.nodes]
        new.since = it.now
        new.ready = it.now + rules.boot
        new.begun = it.now
        new.estimate = rules.boot
        new.row = -1
        it.nodes += 1
    if rules.boot <= 0.0:
        it.idle += rented
    elif rented > 0:
        it.booting += rented
        it.next_ready = min(it.next_ready, it.now + rules.boot)


@compiled
def wanted(waiting: Records, cluster: Records, kind: int) -> int:
    """Nodes a provisioning policy rents now; below 1 for none."""
    it = cluster[0]
    there = int(it.idle + it.booting)
    demand = 0
    widest = 0
    seconds = 0.0
    for at in range(it.waiting):
        job = waiting[it.first + at]
        if kind == _ODX and it.now - job.submit < max(job.estimate, SLOWDOWN_BOUND):
            continue
        demand += job.processors
        widest = max(widest, job.processors)
        seconds += job.processors * job.estimate
    if kind == _ODB:
        return demand - int(it.nodes)
    if kind == _ODE:
        target = math.ceil(seconds / HOUR_SECONDS)
        if there == it.nodes:
            target = max(target, widest)
        return target - int(it.nodes)
    if kind == _ODM:
        return widest - there
    return demand - there


@compiled
def next_job(waiting: Records, cluster: Records, order: int) -> int:
    """Which of the waiting jobs is next."""
    it = cluster[0]
    if order == _FCFS:
        return 0
    now = it.now + (GRACE_SECONDS if order == _WSPT else 0.0)
    best = 0
    highest = -1.0
    for at in range(it.waiting):
        priority = (now - waiting[it.first + at].submit) * waiting[it.first + at].weight
        if priority > highest:
            highest = priority
            best = at
    return best


@compiled
def priority_of_next(waiting: Records, cluster: Records, order: int, now: float) -> tuple[float, float]:
    """Priority of the next job, and what the weight of one that came now is multiplied with soon.

    The second is 0 where the order never lets a later job pass.
    """
    if order == _FCFS:
        return np.inf, 0.0
    grace = GRACE_SECONDS if order == _WSPT else 0.0
    head = waiting[cluster[0].first + next_job(waiting, cluster, order)]
    return float((now + grace - head.submit) * head.weight), grace + _SOON


@compiled
def _into_hour(seconds: float) -> float:
    """``seconds % 3600``, exactly; a tenth of the time."""
    if seconds < 0.0:
        return seconds % HOUR_SECONDS
    hours = float(math.floor(seconds / HOUR_SECONDS))
    if hours * HOUR_SECONDS > seconds:  # the quotient was rounded up
        hours -= 1.0
    return seconds - hours * HOUR_SECONDS


@compiled
def _left_after(since: float, end: float) -> float:
    """What is left at ``end`` of the hour paid by then."""
    left = HOUR_SECONDS - _into_hour(end - since)
    return left if left < HOUR_SECONDS else 0.0


@compiled
def _give(node: Records, at: int, now: float, job: Records) -> None:
    this = node[at]
    this.ready = now + job.run
    this.begun = now
    this.estimate = job.estimate
    this.row = job.row


@compiled
def _place(  # noqa: C901  (plain loops over the nodes)
    node: Records, cluster: Records, scratch: Floats, rules: Rules, choice: int, job: Records
) -> None:
    """Give a job its nodes: in the order rented, or all nodes of the best key, then of the next best."""
    it = cluster[0]
    needed = job.processors
    if needed < it.idle and rules.release != _SECOND:
        it.forks |= BY_CHOICE
    it.idle -= needed
    it.next_ready = min(it.next_ready, it.now + job.run)
    if choice == _FIRST or rules.release == _SECOND or it.idle == 0:
        for at in range(it.nodes):
            if node[at].ready <= it.now:
                _give(node, at, it.now, job)
                needed -= 1
                if needed == 0:
                    return
    end = it.now + job.estimate
    sign = 1.0 if choice == _BEST else -1.0
    for at in range(it.nodes):
        scratch[at] = sign * _left_after(node[at].since, end) if node[at].ready <= it.now else np.inf
    while needed > 0:
        least = np.inf
        for at in range(it.nodes):
            least = min(least, scratch[at])
        for at in range(it.nodes):
            if scratch[at] == least:
                scratch[at] = np.inf
                _give(node, at, it.now, job)
                needed -= 1
                if needed == 0:
                    return


@compiled
def _take_out(waiting: Records, cluster: Records, at: int) -> None:
    """Close the gap from the nearer end of the queue."""
    it = cluster[0]
    place = it.first + at
    if 2 * at < it.waiting:
        for later in range(place, it.first, -1):
            waiting[later] = waiting[later - 1]
        it.first += 1
    else:
        for later in range(place, it.first + it.waiting - 1):
            waiting[later] = waiting[later + 1]
    it.waiting -= 1


@compiled
def shadow_of(node: Records, cluster: Records, scratch: Floats, processors: int) -> float:
    """When so many nodes are expected to be idle; leaves when each is in ``scratch``, sorted."""
    it = cluster[0]
    for at in range(it.nodes):
        scratch[at] = max(expected_end(node, at, it.now), it.now)
    scratch[: it.nodes].sort()
    return float(scratch[processors - 1])


@compiled
def _backfill(
    node: Records,
    waiting: Records,
    cluster: Records,
    start: Floats,
    scratch: Floats,
    rules: Rules,
    policy: Records,
    head: int,
) -> None:
    """Start behind the head, in submission order, what ends before the head can start, or fits beside it.

    While fewer nodes are rented than the head needs, nothing holds the others back: the head's start then
    hangs on provisioning, which counts idle nodes as there and will rent for it.
    """
    it = cluster[0]
    shadow = np.inf
    extra = it.idle
    if it.nodes >= waiting[it.first + head].processors:
        shadow = shadow_of(node, cluster, scratch, waiting[it.first + head].processors)
        extra = 0
        for at in range(it.nodes):
            extra += int(scratch[at] <= shadow)
        extra -= waiting[it.first + head].processors
    at = 0
    blocked = waiting[it.first + head].row
    while at < it.waiting and it.idle > 0:
        job = waiting[it.first + at]
        ends_in_time = it.now + job.estimate <= shadow
        if job.row == blocked or job.processors > it.idle or not (ends_in_time or job.processors <= extra):
            at += 1
            continue
        if not ends_in_time:
            extra -= job.processors
        _place(node, cluster, scratch, rules, policy.choice, job)
        start[job.row] = it.now
        _take_out(waiting, cluster, at)


@compiled
def _start_jobs(
    node: Records,
    waiting: Records,
    cluster: Records,
    start: Floats,
    scratch: Floats,
    rules: Rules,
    policy: Records,
) -> None:
    it = cluster[0]
    while it.waiting > 0:
        at = next_job(waiting, cluster, policy.order)
        job = waiting[it.first + at]
        if job.processors > it.idle:
            if policy.backfill and it.idle > 0:
                _backfill(node, waiting, cluster, start, scratch, rules, policy, at)
            return
        _place(node, cluster, scratch, rules, policy.choice, job)
        start[job.row] = it.now
        _take_out(waiting, cluster, at)


@compiled
def _fill_headroom(node: Records, waiting: Records, cluster: Records, rules: Rules, policy: Records) -> None:
    spare = int(cluster[0].idle + cluster[0].booting)
    if policy.provisioning == _ODA:  # those nodes are for jobs that wait already
        for at in range(cluster[0].waiting):
            spare -= waiting[cluster[0].first + at].processors
    _rent(node, cluster, rules, policy.headroom - max(spare, 0))


@compiled
def paid_hour_ends(since: float, now: float, tick: float) -> bool:
    """Whether the node has to be given back now if it shall not be charged for another hour."""
    return HOUR_SECONDS - _into_hour(now - since) <= tick


@compiled
def _give_back(node: Records, cluster: Records, rules: Rules, headroom: int) -> None:
    """Give back what is idle or booting beyond the headroom; the caller knows that nobody waits."""
    it = cluster[0]
    surplus = it.idle + it.booting - headroom
    if surplus <= 0:
        return
    kept = 0
    booting = it.booting
    for at in range(it.nodes):
        this = node[at]
        is_free = this.ready <= it.now or this.row < 0
        may_go = rules.release != _HOUR_KEPT or paid_hour_ends(this.since, it.now, rules.tick)
        if is_free and may_go and surplus > 0:
            it.charged += charge(it.now - this.since, rules.release)
            surplus -= 1
            if this.ready <= it.now:
                it.idle -= 1
            else:
                it.booting -= 1
            continue
        if kept != at:
            node[kept] = node[at]
        kept += 1
    it.nodes = kept
    if it.booting < booting:
        _count(node, cluster)


@compiled
def decide(
    node: Records,
    waiting: Records,
    cluster: Records,
    start: Floats,
    scratch: Floats,
    rules: Rules,
    policy: Records,
) -> None:
    """Apply a policy at one tick."""
    it = cluster[0]
    if it.now >= it.next_ready:
        _count(node, cluster)
    if it.waiting > 0:
        if it.nodes < rules.max_nodes:
            _rent(node, cluster, rules, wanted(waiting, cluster, policy.provisioning))
        if it.idle > 0:
            if it.waiting > 1:
                it.forks |= BY_ORDER
            _start_jobs(node, waiting, cluster, start, scratch, rules, policy)
    if policy.headroom > 0:
        _fill_headroom(node, waiting, cluster, rules, policy)
    if it.waiting == 0:
        _give_back(node, cluster, rules, policy.headroom)
