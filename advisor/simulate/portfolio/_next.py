"""When something may happen next on rented nodes: between these moments a tick would change nothing.

The plain ``oracle`` acts at every tick; that the kernels may skip the others is what the tests compare.
"""

from __future__ import annotations

import math

import numpy as np

from advisor.compiled import compiled
from advisor.simulate.portfolio._tick import (
    GRACE_SECONDS,
    HOUR_SECONDS,
    expected_end,
    next_job,
    shadow_of,
    wanted,
)
from advisor.simulate.portfolio.policies import JobOrder, Provisioning, Release
from advisor.simulate.portfolio.state import SLOWDOWN_BOUND, Floats, Rules
from advisor.simulate.state import Records

_ODM, _ODX = int(Provisioning.ODM), int(Provisioning.ODX)
_FCFS, _WSPT = int(JobOrder.FCFS), int(JobOrder.WSPT)
_HOUR_KEPT = int(Release.HOUR_KEPT)


@compiled
def _overtaking(waiting: Records, cluster: Records, order: int, widest: int) -> float:
    """When the blocked head is first overtaken by a job of so many nodes at most; not before now."""
    it = cluster[0]
    if order == _FCFS or it.waiting < 2:
        return np.inf
    if it.idle == 0:
        return np.inf
    head = waiting[it.first + next_job(waiting, cluster, order)]
    grace = GRACE_SECONDS if order == _WSPT else 0.0
    soonest = np.inf
    for at in range(it.waiting):
        job = waiting[it.first + at]
        if job.processors <= widest and job.weight > head.weight:
            crossed = (job.submit * job.weight - head.submit * head.weight) / (job.weight - head.weight)
            soonest = min(soonest, max(crossed - grace, it.now))
    return float(soonest)


@compiled
def _is_late(this: Records, now: float) -> bool:
    """Whether a node's job runs beyond its estimate: it is expected to end two seconds later each second."""
    return bool(this.ready > now and this.row >= 0 and this.begun + this.estimate <= now)


@compiled
def _late_at(node: Records, cluster: Records, shadow: float) -> float:
    """Since when the late job runs that is expected to end at the shadow time; NaN for none."""
    it = cluster[0]
    for at in range(it.nodes):
        if _is_late(node[at], it.now) and expected_end(node, at, it.now) == shadow:
            return float(node[at].begun)
    return np.nan


@compiled
def _begins_to_move(node: Records, cluster: Records, shadow: float) -> float:
    """When a job expected to end by the shadow time, which stays till then, may first be expected later."""
    it = cluster[0]
    soonest = np.inf
    for at in range(it.nodes):
        this = node[at]
        if this.ready > it.now and this.row >= 0 and expected_end(node, at, it.now) <= shadow:
            soonest = min(soonest, max(this.begun + this.estimate, (shadow + this.begun) / 2.0))
    return float(soonest)


@compiled
def _moves_so_long(node: Records, cluster: Records, shadow: float, begun: float) -> float:
    """When a shadow time that moves with a job begun then meets a job or boot that keeps to its estimate.

    Or when such a job before it gets late.
    """
    it = cluster[0]
    soonest = np.inf
    for at in range(it.nodes):
        if node[at].ready <= it.now or _is_late(node[at], it.now):
            continue
        end = expected_end(node, at, it.now)
        if end > shadow:
            soonest = min(soonest, (end + begun) / 2.0)
        elif end == shadow or node[at].row >= 0:
            soonest = min(soonest, end if end < shadow else it.now)
    return float(soonest)


@compiled
def _backfilling(node: Records, waiting: Records, cluster: Records, scratch: Floats, order: int) -> float:
    """When a job behind the blocked head may first be backfilled by time alone; early at worst.

    The head's shadow time moves where jobs run beyond their estimates (``expected_end``).
    """
    it = cluster[0]
    if it.waiting < 2 or it.idle == 0:
        return np.inf
    head = waiting[it.first + next_job(waiting, cluster, order)]
    if it.nodes < head.processors:
        return np.inf
    shadow = shadow_of(node, cluster, scratch, head.processors)
    begun = _late_at(node, cluster, shadow)
    if np.isnan(begun):
        return _begins_to_move(node, cluster, shadow)
    soonest = _moves_so_long(node, cluster, shadow, begun)
    for at in range(it.waiting):
        job = waiting[it.first + at]
        if job.processors <= it.idle and begun + job.estimate > it.now:
            soonest = min(soonest, begun + job.estimate)
    return float(soonest)


@compiled
def _paid_hour_over(node: Records, cluster: Records, rules: Rules) -> float:
    """When an idle node's paid hour ends next."""
    it = cluster[0]
    soonest = np.inf
    for at in range(it.nodes):
        this = node[at]
        if this.ready <= it.now:
            hours = math.floor((it.now - this.since) / HOUR_SECONDS) + 1.0
            paid = this.since + hours * HOUR_SECONDS - rules.tick
            soonest = min(soonest, paid if paid > it.now else paid + HOUR_SECONDS)
    return float(soonest)


@compiled
def next_moment(
    node: Records,
    waiting: Records,
    cluster: Records,
    rules: Rules,
    policy: Records,
    scratch: Floats,
    looks_on: bool,  # noqa: FBT001  (compiled: no keywords)
) -> float:
    """When something may happen here next, arrivals apart.

    A node gets idle, a job's slowdown reaches 2, an idle node's paid hour ends, the head of the queue is
    overtaken by a job that fits, the time moves until which may be backfilled, or this tick's starts leave
    less idle than ODM or ODX want. ``looks_on``: slowdowns count while all nodes are rented, too, when
    nothing comes of them but a tick.
    """
    it = cluster[0]
    kind = policy.provisioning
    may_rent = it.waiting > 0 and it.nodes < rules.max_nodes
    if kind in (_ODM, _ODX) and may_rent and wanted(waiting, cluster, kind) > 0:
        return float(it.now)
    if policy.headroom > 0 and rules.boot <= 0.0 and it.waiting > 0 and it.idle > 0:
        return float(it.now)  # warm nodes are rented after the starts, and are ready at once
    if policy.backfill:  # beside another head other jobs start
        soonest = _overtaking(waiting, cluster, policy.order, rules.max_nodes)
        soonest = min(soonest, _backfilling(node, waiting, cluster, scratch, policy.order))
    else:
        soonest = _overtaking(waiting, cluster, policy.order, it.idle)
    soonest = min(soonest, it.next_ready)
    if rules.release == _HOUR_KEPT and it.idle > 0:
        soonest = min(soonest, _paid_hour_over(node, cluster, rules))
    if kind == _ODX and (looks_on or may_rent):
        for at in range(it.waiting):
            moment = waiting[it.first + at].submit + max(waiting[it.first + at].estimate, SLOWDOWN_BOUND)
            if moment > it.now:
                soonest = min(soonest, moment)
    return float(soonest)


@compiled
def tick_of(moment: float, now: float, tick: float) -> float:
    """First tick at or after a moment, and after now."""
    return max(math.ceil(moment / tick), math.floor(now / tick) + 1.0) * tick
