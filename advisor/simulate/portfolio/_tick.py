"""One tick of a policy: rent nodes, order jobs, place them, give nodes back.

The kernels of the simulated cluster (`_cluster`) and of the online simulator (`_online`) share it, so the
latter is right about the cluster whenever it is right about run times and arrivals. The order is:
provisioning; jobs start while the next one fits (head-blocking, or EASY behind it); headroom is filled; idle
nodes are given back by the release rule. `policies` says what the policies' names mean.
"""

from __future__ import annotations

import math

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.simulate.heap import Records, sort_values
from advisor.simulate.portfolio.paid_hours import HOUR_SECONDS, into_hour, left_of_paid_hour
from advisor.simulate.portfolio.policies import JobOrder, NodeChoice, Provisioning, Release
from advisor.simulate.portfolio.state import SLOWDOWN_BOUND, Rules

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
_MIN_CHARGED = 60.0
GRACE_SECONDS = 3600.0
"""The hour that `JobOrder.WSPT` adds to each wait."""
_SOON_SECONDS = 300.0
ORDER_MATTERED, CHOICE_MATTERED = 1, 2
"""Bits of ``mattered``: another order of jobs, or choice of nodes, might have led to something else."""


@compiled
def weight_of(order: int, estimate: float, processors: int) -> float:
    """Factor of a job's wait in its priority (see ``JobOrder``)."""
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
    """Seconds charged for a node that was held for ``held`` seconds."""
    if release == _SECOND:
        return max(math.ceil(held), _MIN_CHARGED)
    return max(math.ceil(held / HOUR_SECONDS), 1.0) * HOUR_SECONDS


@compiled
def expected_end(nodes: Records, i: int, now: float) -> float:
    """When a node is expected to be idle.

    A job beyond its estimate is expected to take twice its time so far.
    """
    busy = nodes[i]
    if busy.ready <= now or busy.row < 0:
        return float(busy.ready)
    end = busy.begun + busy.estimate
    if end <= now:
        end = now + max(now - busy.begun, 1.0)
    return float(end)


@compiled
def _count(nodes: Records, scalars: Records) -> None:
    """Count idle and booting nodes, and find when the next one gets idle: the counts hold until then."""
    cluster = scalars[0]
    now = cluster.now
    idle = 0
    booting = 0
    soonest = np.inf
    for i in range(cluster.nodes):
        node = nodes[i]
        if node.ready <= now:
            idle += 1
        else:
            soonest = min(soonest, node.ready)
            booting += int(node.row < 0)
    cluster.idle = idle
    cluster.booting = booting
    cluster.next_ready = soonest


@compiled
def _rent(nodes: Records, scalars: Records, rules: Rules, wanted: int) -> None:
    cluster = scalars[0]
    rented = max(min(wanted, rules.max_nodes - cluster.nodes), 0)
    for _ in range(rented):
        new = nodes[cluster.nodes]
        new.since = cluster.now
        new.ready = cluster.now + rules.boot
        new.begun = cluster.now
        new.estimate = rules.boot
        new.row = -1
        cluster.nodes += 1
    if rules.boot <= 0.0:
        cluster.idle += rented
    elif rented > 0:
        cluster.booting += rented
        cluster.next_ready = min(cluster.next_ready, cluster.now + rules.boot)


@compiled
def wanted(waiting: Records, scalars: Records, kind: int) -> int:
    """Nodes that a provisioning policy rents now; none below 1."""
    cluster = scalars[0]
    available = int(cluster.idle + cluster.booting)
    demand = 0
    widest = 0
    seconds = 0.0
    for i in range(cluster.waiting):
        job = waiting[cluster.first + i]
        if kind == _ODX and cluster.now - job.submit < max(job.estimate, SLOWDOWN_BOUND):
            continue
        demand += job.processors
        widest = max(widest, job.processors)
        seconds += job.processors * job.estimate
    if kind == _ODB:
        return demand - int(cluster.nodes)
    if kind == _ODE:
        target = math.ceil(seconds / HOUR_SECONDS)
        if available == cluster.nodes:
            target = max(target, widest)
        return target - int(cluster.nodes)
    if kind == _ODM:
        return widest - available
    return demand - available


@compiled
def next_job(waiting: Records, scalars: Records, order: int) -> int:
    """Which of the waiting jobs is next."""
    cluster = scalars[0]
    if order == _FCFS:
        return 0
    now = cluster.now + (GRACE_SECONDS if order == _WSPT else 0.0)
    best = 0
    highest = -1.0
    for i in range(cluster.waiting):
        priority = (now - waiting[cluster.first + i].submit) * waiting[cluster.first + i].weight
        if priority > highest:
            highest = priority
            best = i
    return best


@compiled
def priority_of_next(waiting: Records, scalars: Records, order: int, now: float) -> tuple[float, float]:
    """Priority of the next job, and the factor that turns the weight of a new job into its priority soon.

    The factor is 0 where the order never lets a later job pass.
    """
    if order == _FCFS:
        return np.inf, 0.0
    grace = GRACE_SECONDS if order == _WSPT else 0.0
    head = waiting[scalars[0].first + next_job(waiting, scalars, order)]
    return float((now + grace - head.submit) * head.weight), grace + _SOON_SECONDS


@compiled
def _give(nodes: Records, i: int, now: float, job: Records) -> None:
    node = nodes[i]
    node.ready = now + job.run
    node.begun = now
    node.estimate = job.estimate
    node.row = job.row


@compiled
def _place(  # noqa: C901  (plain loops over the nodes)
    nodes: Records, scalars: Records, scratch: Floats, rules: Rules, choice: int, job: Records
) -> None:
    """Give a job its nodes: in the order rented, or all nodes of the best key, then of the next best."""
    cluster = scalars[0]
    needed = job.processors
    if needed < cluster.idle and rules.release != _SECOND:
        cluster.mattered |= CHOICE_MATTERED
    cluster.idle -= needed
    cluster.next_ready = min(cluster.next_ready, cluster.now + job.run)
    if choice == _FIRST or rules.release == _SECOND or cluster.idle == 0:
        for i in range(cluster.nodes):
            if nodes[i].ready <= cluster.now:
                _give(nodes, i, cluster.now, job)
                needed -= 1
                if needed == 0:
                    return
    end = cluster.now + job.estimate
    sign = 1.0 if choice == _BEST else -1.0
    for i in range(cluster.nodes):
        scratch[i] = (
            sign * left_of_paid_hour(nodes[i].since, end) if nodes[i].ready <= cluster.now else np.inf
        )
    while needed > 0:
        smallest = np.inf
        for i in range(cluster.nodes):
            smallest = min(smallest, scratch[i])
        for i in range(cluster.nodes):
            if scratch[i] == smallest:
                scratch[i] = np.inf
                _give(nodes, i, cluster.now, job)
                needed -= 1
                if needed == 0:
                    return


@compiled
def _take_out(waiting: Records, scalars: Records, index: int) -> None:
    """Remove a job from the queue; the nearer end moves."""
    cluster = scalars[0]
    position = cluster.first + index
    if 2 * index < cluster.waiting:
        for i in range(position, cluster.first, -1):
            waiting[i] = waiting[i - 1]
        cluster.first += 1
    else:
        for i in range(position, cluster.first + cluster.waiting - 1):
            waiting[i] = waiting[i + 1]
    cluster.waiting -= 1


@compiled
def shadow_of(nodes: Records, scalars: Records, scratch: Floats, processors: int) -> float:
    """When ``processors`` nodes are expected to be idle; ``scratch`` holds the sorted expected ends."""
    cluster = scalars[0]
    for i in range(cluster.nodes):
        scratch[i] = max(expected_end(nodes, i, cluster.now), cluster.now)
    sort_values(scratch[: cluster.nodes])
    return float(scratch[processors - 1])


@compiled
def _backfill(
    nodes: Records,
    waiting: Records,
    scalars: Records,
    start: Floats,
    scratch: Floats,
    rules: Rules,
    policy: Records,
    head: int,
) -> None:
    """Start jobs behind the head, in submission order, that end before the head can start or fit beside it.

    While fewer nodes are rented than the head needs, no job is held back: the head's start then depends on
    provisioning, which counts idle nodes and will rent for it.
    """
    cluster = scalars[0]
    shadow = np.inf
    extra = cluster.idle
    if cluster.nodes >= waiting[cluster.first + head].processors:
        shadow = shadow_of(nodes, scalars, scratch, waiting[cluster.first + head].processors)
        extra = 0
        for i in range(cluster.nodes):
            extra += int(scratch[i] <= shadow)
        extra -= waiting[cluster.first + head].processors
    i = 0
    blocked = waiting[cluster.first + head].row
    while i < cluster.waiting and cluster.idle > 0:
        job = waiting[cluster.first + i]
        ends_in_time = cluster.now + job.estimate <= shadow
        if (
            job.row == blocked
            or job.processors > cluster.idle
            or not (ends_in_time or job.processors <= extra)
        ):
            i += 1
            continue
        if not ends_in_time:
            extra -= job.processors
        _place(nodes, scalars, scratch, rules, policy.choice, job)
        start[job.row] = cluster.now
        _take_out(waiting, scalars, i)


@compiled
def _start_jobs(
    nodes: Records,
    waiting: Records,
    scalars: Records,
    start: Floats,
    scratch: Floats,
    rules: Rules,
    policy: Records,
) -> None:
    cluster = scalars[0]
    while cluster.waiting > 0:
        i = next_job(waiting, scalars, policy.order)
        job = waiting[cluster.first + i]
        if job.processors > cluster.idle:
            if policy.backfill and cluster.idle > 0:
                _backfill(nodes, waiting, scalars, start, scratch, rules, policy, i)
            return
        _place(nodes, scalars, scratch, rules, policy.choice, job)
        start[job.row] = cluster.now
        _take_out(waiting, scalars, i)


@compiled
def _fill_headroom(nodes: Records, waiting: Records, scalars: Records, rules: Rules, policy: Records) -> None:
    spare = int(scalars[0].idle + scalars[0].booting)
    if policy.provisioning == _ODA:  # nodes for jobs that already wait are not spare
        for i in range(scalars[0].waiting):
            spare -= waiting[scalars[0].first + i].processors
    _rent(nodes, scalars, rules, policy.headroom - max(spare, 0))


@compiled
def paid_hour_ends(since: float, now: float, tick: float) -> bool:
    """Whether the node must be given back now to avoid the charge for another hour."""
    return HOUR_SECONDS - into_hour(now - since) <= tick


@compiled
def _give_back(nodes: Records, scalars: Records, rules: Rules, headroom: int) -> None:
    """Give back idle and booting nodes beyond the headroom; the queue must be empty."""
    cluster = scalars[0]
    surplus = cluster.idle + cluster.booting - headroom
    if surplus <= 0:
        return
    kept = 0
    booting = cluster.booting
    for i in range(cluster.nodes):
        node = nodes[i]
        is_free = node.ready <= cluster.now or node.row < 0
        may_go = rules.release != _HOUR_KEPT or paid_hour_ends(node.since, cluster.now, rules.tick)
        if is_free and may_go and surplus > 0:
            cluster.charged += charge(cluster.now - node.since, rules.release)
            surplus -= 1
            if node.ready <= cluster.now:
                cluster.idle -= 1
            else:
                cluster.booting -= 1
            continue
        if kept != i:
            nodes[kept] = nodes[i]
        kept += 1
    cluster.nodes = kept
    if cluster.booting < booting:
        _count(nodes, scalars)


@compiled
def decide(
    nodes: Records,
    waiting: Records,
    scalars: Records,
    start: Floats,
    scratch: Floats,
    rules: Rules,
    policy: Records,
) -> None:
    """Apply a policy at one tick."""
    cluster = scalars[0]
    if cluster.now >= cluster.next_ready:
        _count(nodes, scalars)
    if cluster.waiting > 0:
        if cluster.nodes < rules.max_nodes:
            _rent(nodes, scalars, rules, wanted(waiting, scalars, policy.provisioning))
        if cluster.idle > 0:
            if cluster.waiting > 1:
                cluster.mattered |= ORDER_MATTERED
            _start_jobs(nodes, waiting, scalars, start, scratch, rules, policy)
    if policy.headroom > 0:
        _fill_headroom(nodes, waiting, scalars, rules, policy)
    if cluster.waiting == 0:
        _give_back(nodes, scalars, rules, policy.headroom)
