"""Shared parts of the plans of one situation are simulated once; the outcome is the same to the last bit.

Most policies differ little in the few minutes for which each is followed. Where no two jobs wait while a node
is idle, the order of jobs makes no difference; where a job takes all idle nodes, their choice makes none:
such policies share one plan. On a full cloud hardly any policy can act: what happens after the champion took
over depends only on nodes, queue and time, so plans with the same state then share that *tail*. Sums of
charges are whole seconds, and savings are added again in the same order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.simulate.heap import Records
from advisor.simulate.portfolio._tick import CHOICE_MATTERED, ORDER_MATTERED
from advisor.simulate.portfolio.state import NODE, OnlineState

PLAN = np.dtype(
    [(name, np.int64) for name in ("provisioning", "order", "choice", "headroom", "backfill")]
    + [(name, np.int64) for name in ("mattered", "index")],
    align=True,
)
"""A policy that was simulated. ``mattered``: ``ORDER_MATTERED``, ``CHOICE_MATTERED``; ``index``: its outcome.
"""

TAIL = np.dtype(
    [(name, np.float64) for name in ("now", "fingerprint", "charged")]
    + [(name, np.int64) for name in ("nodes", "waiting", "spared", "started")],
    align=True,
)
"""A plan from the champion's first tick on.

``fingerprint``: a sum over its nodes and jobs that differs for most others, NaN for a tail that must not be
shared; ``charged``: seconds charged in it; ``spared``: number of entries; ``started``: whether every job did.
"""


class SharedPlans(NamedTuple):
    """Plans and tails that are known for one situation.

    ``plan``, ``tail``: shape (m,); ``node``: nodes when the champion took over, shape (m, nodes); ``row``:
    jobs that waited then, ``start``: starts of jobs, shape (m, jobs); ``spared``: charge and slowdown that
    idle nodes saved between ticks, shape (m, k, 2); ``size``: numbers of plans and tails, shape (2,).
    """

    plan: Records
    tail: Records
    node: Records
    row: Ints
    start: Floats
    spared: Floats
    size: Ints


PLANS, TAILS = 0, 1


def empty_shared_plans(policies: int, nodes: int, jobs: int) -> SharedPlans:
    """Empty arrays for one plan and one tail of each policy."""
    return SharedPlans(
        plan=np.zeros(policies, PLAN),
        tail=np.zeros(policies, TAIL),
        node=np.zeros((policies, nodes), NODE),
        row=np.zeros((policies, jobs), np.int64),
        start=np.zeros((policies, jobs)),
        spared=np.zeros((policies, 2 * jobs + 256, 2)),
        size=np.zeros(2, np.int64),
    )


@compiled
def find_plan(shared: SharedPlans, policy: Records) -> int:
    """The index of the outcome of a simulated policy with the same plan; -1: there is none."""
    for i in range(shared.size[PLANS]):
        plan = shared.plan[i]
        if plan.provisioning != policy.provisioning or plan.headroom != policy.headroom:
            continue
        if plan.backfill != policy.backfill:
            continue
        if plan.order != policy.order and plan.mattered & ORDER_MATTERED:
            continue
        if plan.choice != policy.choice and plan.mattered & CHOICE_MATTERED:
            continue
        return int(plan.index)
    return -1


@compiled
def note_plan(shared: SharedPlans, policy: Records, mattered: int, index: int) -> None:
    """Record that a policy was simulated."""
    i = shared.size[PLANS]
    if i == len(shared.plan):
        return
    plan = shared.plan[i]
    plan.provisioning, plan.order, plan.choice = policy.provisioning, policy.order, policy.choice
    plan.headroom, plan.backfill = policy.headroom, policy.backfill
    plan.mattered, plan.index = mattered, index
    shared.size[PLANS] += 1


@compiled
def _fingerprint(state: OnlineState) -> float:
    cluster = state.scalars[0]
    fingerprint = 0.0
    for i in range(cluster.nodes):
        node = state.node[i]
        fingerprint += (i + 1.0) * (node.ready + 0.37 * node.since) + node.row
    for i in range(cluster.waiting):
        fingerprint += (i + 1.0) * state.waiting[cluster.first + i].row
    return fingerprint


@compiled
def _is_same(state: OnlineState, shared: SharedPlans, index: int) -> bool:
    cluster, tail = state.scalars[0], shared.tail[index]
    if cluster.nodes != tail.nodes or cluster.waiting != tail.waiting:
        return False
    for i in range(cluster.nodes):
        one, other = state.node[i], shared.node[index, i]
        if one.ready != other.ready or one.since != other.since or one.row != other.row:
            return False
        if one.begun != other.begun or one.estimate != other.estimate:
            return False
    for i in range(cluster.waiting):  # noqa: SIM110  (compiled: no generators)
        if state.waiting[cluster.first + i].row != shared.row[index, i]:
            return False
    return True


@compiled
def find_tail(state: OnlineState, shared: SharedPlans) -> tuple[int, bool]:
    """Index of the tail that begins in the present state, and whether it is known; a new one is recorded."""
    cluster = state.scalars[0]
    fingerprint = _fingerprint(state)
    for index in range(shared.size[TAILS]):
        tail = shared.tail[index]
        if tail.fingerprint == fingerprint and tail.now == cluster.now and _is_same(state, shared, index):
            return index, True
    index = min(shared.size[TAILS], len(shared.tail) - 1)
    shared.size[TAILS] = index + 1
    tail = shared.tail[index]
    tail.now, tail.fingerprint, tail.spared = cluster.now, fingerprint, 0
    tail.nodes, tail.waiting = cluster.nodes, cluster.waiting
    for i in range(cluster.nodes):
        shared.node[index, i] = state.node[i]
    for i in range(cluster.waiting):
        shared.row[index, i] = state.waiting[cluster.first + i].row
    return index, False


@compiled
def note_spared(shared: SharedPlans, index: int, charged: float, slowdown: float) -> None:
    """Record what idle nodes saved between two ticks; a tail with too many entries is not shared."""
    tail = shared.tail[index]
    if tail.spared == shared.spared.shape[1]:
        tail.fingerprint = np.nan
        return
    shared.spared[index, tail.spared, 0] = charged
    shared.spared[index, tail.spared, 1] = slowdown
    tail.spared += 1


@compiled
def note_starts(state: OnlineState, shared: SharedPlans, index: int) -> None:
    """Record the starts of a tail's jobs, which waited at its beginning."""
    tail = shared.tail[index]
    for i in range(tail.waiting):
        row = shared.row[index, i]
        shared.start[index, row] = state.start[row]


@compiled
def take_starts(state: OnlineState, shared: SharedPlans, index: int) -> None:
    """Copy the starts of a known tail."""
    tail = shared.tail[index]
    for i in range(tail.waiting):
        row = shared.row[index, i]
        state.start[row] = shared.start[index, row]
