"""The next time at which a tick can change something on rented nodes; ticks between are skipped.

The tests compare the kernels with a plain simulator that acts at every tick.
"""

from __future__ import annotations

import math

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.simulate.heap import Records
from advisor.simulate.portfolio._tick import (
    GRACE_SECONDS,
    expected_end,
    next_job,
    shadow_of,
    wanted,
)
from advisor.simulate.portfolio.paid_hours import HOUR_SECONDS
from advisor.simulate.portfolio.policies import JobOrder, Provisioning, Release
from advisor.simulate.portfolio.state import SLOWDOWN_BOUND, Rules

_ODM, _ODX = int(Provisioning.ODM), int(Provisioning.ODX)
_FCFS, _WSPT = int(JobOrder.FCFS), int(JobOrder.WSPT)
_HOUR_KEPT = int(Release.HOUR_KEPT)


@compiled
def _overtaking(waiting: Records, scalars: Records, order: int, widest: int) -> float:
    """When a job of at most ``widest`` nodes first overtakes the blocked head; not before now."""
    cluster = scalars[0]
    if order == _FCFS or cluster.waiting < 2:
        return np.inf
    if cluster.idle == 0:
        return np.inf
    head = waiting[cluster.first + next_job(waiting, scalars, order)]
    grace = GRACE_SECONDS if order == _WSPT else 0.0
    soonest = np.inf
    for i in range(cluster.waiting):
        job = waiting[cluster.first + i]
        if job.processors <= widest and job.weight > head.weight:
            overtakes = (job.submit * job.weight - head.submit * head.weight) / (job.weight - head.weight)
            soonest = min(soonest, max(overtakes - grace, cluster.now))
    return float(soonest)


@compiled
def _is_late(node: Records, now: float) -> bool:
    """Whether a node's job runs beyond its estimate; its expected end then moves two seconds each second."""
    return bool(node.ready > now and node.row >= 0 and node.begun + node.estimate <= now)


@compiled
def _late_at(nodes: Records, scalars: Records, shadow: float) -> float:
    """Start of the late job that is expected to end at the shadow time; NaN for none."""
    cluster = scalars[0]
    for i in range(cluster.nodes):
        if _is_late(nodes[i], cluster.now) and expected_end(nodes, i, cluster.now) == shadow:
            return float(nodes[i].begun)
    return np.nan


@compiled
def _begins_to_move(nodes: Records, scalars: Records, shadow: float) -> float:
    """When a job expected to end by the fixed shadow time may first be expected later."""
    cluster = scalars[0]
    soonest = np.inf
    for i in range(cluster.nodes):
        node = nodes[i]
        if node.ready > cluster.now and node.row >= 0 and expected_end(nodes, i, cluster.now) <= shadow:
            soonest = min(soonest, max(node.begun + node.estimate, (shadow + node.begun) / 2.0))
    return float(soonest)


@compiled
def _moves_so_long(nodes: Records, scalars: Records, shadow: float, begun: float) -> float:
    """Until when a shadow time follows the late job that began at ``begun``.

    It is the time at which the shadow meets the end of a job or boot that is not late, or at which such a job
    becomes late before it.
    """
    cluster = scalars[0]
    soonest = np.inf
    for i in range(cluster.nodes):
        if nodes[i].ready <= cluster.now or _is_late(nodes[i], cluster.now):
            continue
        end = expected_end(nodes, i, cluster.now)
        if end > shadow:
            soonest = min(soonest, (end + begun) / 2.0)
        elif end == shadow or nodes[i].row >= 0:
            soonest = min(soonest, end if end < shadow else cluster.now)
    return float(soonest)


@compiled
def _backfilling(nodes: Records, waiting: Records, scalars: Records, scratch: Floats, order: int) -> float:
    """When a job behind the blocked head may first be backfilled because of time alone; at worst too early.

    The head's shadow time moves where jobs run beyond their estimates (``expected_end``).
    """
    cluster = scalars[0]
    if cluster.waiting < 2 or cluster.idle == 0:
        return np.inf
    head = waiting[cluster.first + next_job(waiting, scalars, order)]
    if cluster.nodes < head.processors:
        return np.inf
    shadow = shadow_of(nodes, scalars, scratch, head.processors)
    begun = _late_at(nodes, scalars, shadow)
    if np.isnan(begun):
        return _begins_to_move(nodes, scalars, shadow)
    soonest = _moves_so_long(nodes, scalars, shadow, begun)
    for i in range(cluster.waiting):
        job = waiting[cluster.first + i]
        if job.processors <= cluster.idle and begun + job.estimate > cluster.now:
            soonest = min(soonest, begun + job.estimate)
    return float(soonest)


@compiled
def _paid_hour_over(nodes: Records, scalars: Records, rules: Rules) -> float:
    """When an idle node's paid hour ends next."""
    cluster = scalars[0]
    soonest = np.inf
    for i in range(cluster.nodes):
        node = nodes[i]
        if node.ready <= cluster.now:
            hours = math.floor((cluster.now - node.since) / HOUR_SECONDS) + 1.0
            paid = node.since + hours * HOUR_SECONDS - rules.tick
            soonest = min(soonest, paid if paid > cluster.now else paid + HOUR_SECONDS)
    return float(soonest)


@compiled
def next_moment(
    nodes: Records,
    waiting: Records,
    scalars: Records,
    rules: Rules,
    policy: Records,
    scratch: Floats,
    ticks_when_full: bool,  # noqa: FBT001  (compiled: no keywords)
) -> float:
    """The next time at which something may happen, apart from arrivals.

    These are: a node gets idle, a job's slowdown reaches 2, an idle node's paid hour ends, a job that fits
    overtakes the head of the queue, the shadow time moves, or this tick's starts leave fewer idle nodes than
    ODM or ODX want. ``ticks_when_full``: slowdowns also count while all nodes are rented, although nothing
    follows.
    """
    cluster = scalars[0]
    kind = policy.provisioning
    may_rent = cluster.waiting > 0 and cluster.nodes < rules.max_nodes
    if kind in (_ODM, _ODX) and may_rent and wanted(waiting, scalars, kind) > 0:
        return float(cluster.now)
    if policy.headroom > 0 and rules.boot <= 0.0 and cluster.waiting > 0 and cluster.idle > 0:
        return float(cluster.now)  # warm nodes are rented after the starts and are ready at once
    if policy.backfill:  # another head lets other jobs start
        soonest = _overtaking(waiting, scalars, policy.order, rules.max_nodes)
        soonest = min(soonest, _backfilling(nodes, waiting, scalars, scratch, policy.order))
    else:
        soonest = _overtaking(waiting, scalars, policy.order, cluster.idle)
    soonest = min(soonest, cluster.next_ready)
    if rules.release == _HOUR_KEPT and cluster.idle > 0:
        soonest = min(soonest, _paid_hour_over(nodes, scalars, rules))
    if kind == _ODX and (ticks_when_full or may_rent):
        for i in range(cluster.waiting):
            moment = waiting[cluster.first + i].submit + max(
                waiting[cluster.first + i].estimate, SLOWDOWN_BOUND
            )
            if moment > cluster.now:
                soonest = min(soonest, moment)
    return float(soonest)


@compiled
def tick_of(moment: float, now: float, tick: float) -> float:
    """First tick at or after a moment, and after now."""
    return max(math.ceil(moment / tick), math.floor(now / tick) + 1.0) * tick
