"""What plans of one situation share is simulated once; the outcome is the same to the last bit.

Most policies differ little in the few minutes for which each is followed. Where no two jobs wait while a node
is idle the order of jobs makes no difference, where a job takes all idle nodes their choice makes none: such
plans are one. And on a full cloud hardly any policy can do anything: what comes after the champion took over
depends on nodes, queue and moment alone, so plans that hand over the same share that future. Sums of charges
are whole seconds, and what idle nodes spare is added up again in the same order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.compiled import compiled
from advisor.simulate.portfolio._tick import BY_CHOICE, BY_ORDER
from advisor.simulate.portfolio.state import NODE, Floats, Ints, OnlineState
from advisor.simulate.state import Records

PLAN = np.dtype(
    [(name, np.int64) for name in ("provisioning", "order", "choice", "headroom", "backfill")]
    + [(name, np.int64) for name in ("forks", "index")],
    align=True,
)
"""A policy that was followed. ``forks``: what would have made a difference (``BY_ORDER``, ``BY_CHOICE``);
``index``: where its outcome is."""

TAIL = np.dtype(
    [(name, np.float64) for name in ("now", "mark", "charged")]
    + [(name, np.int64) for name in ("nodes", "waiting", "arrived", "spared", "started")],
    align=True,
)
"""A future from the champion's first tick on. ``mark``: a sum over its nodes and jobs that tells most others
apart, NaN for a future that must not be shared; ``charged``: from then on; ``spared``: entries; ``started``:
whether every job did."""


class Known(NamedTuple):
    """Plans and futures that are known of one situation.

    ``plan``, ``tail``: shape (m,); ``node``: nodes when the champion took over, shape (m, nodes); ``row``:
    jobs that waited then, ``start``: when jobs started, shape (m, jobs); ``spared``: what idle nodes spared
    between ticks, charge and slowdown, shape (m, k, 2); ``size``: plans and futures, shape (2,).
    """

    plan: Records
    tail: Records
    node: Records
    row: Ints
    start: Floats
    spared: Floats
    size: Ints


PLANS, TAILS = 0, 1


def room_to_know(policies: int, nodes: int, jobs: int) -> Known:
    """Room for one plan and one future a policy."""
    return Known(
        plan=np.zeros(policies, PLAN),
        tail=np.zeros(policies, TAIL),
        node=np.zeros((policies, nodes), NODE),
        row=np.zeros((policies, jobs), np.int64),
        start=np.zeros((policies, jobs)),
        spared=np.zeros((policies, 2 * jobs + 256, 2)),
        size=np.zeros(2, np.int64),
    )


@compiled
def find_plan(known: Known, policy: Records) -> int:
    """Index of a policy that was followed and did what this one would do; -1 for none."""
    for at in range(known.size[PLANS]):
        plan = known.plan[at]
        if plan.provisioning != policy.provisioning or plan.headroom != policy.headroom:
            continue
        if plan.backfill != policy.backfill:
            continue
        if plan.order != policy.order and plan.forks & BY_ORDER:
            continue
        if plan.choice != policy.choice and plan.forks & BY_CHOICE:
            continue
        return int(plan.index)
    return -1


@compiled
def note_plan(known: Known, policy: Records, forks: int, index: int) -> None:
    """Write down that a policy was followed."""
    at = known.size[PLANS]
    if at == len(known.plan):
        return
    plan = known.plan[at]
    plan.provisioning, plan.order, plan.choice = policy.provisioning, policy.order, policy.choice
    plan.headroom, plan.backfill = policy.headroom, policy.backfill
    plan.forks, plan.index = forks, index
    known.size[PLANS] += 1


@compiled
def _mark_of(state: OnlineState) -> float:
    it = state.cluster[0]
    mark = 0.0
    for at in range(it.nodes):
        this = state.node[at]
        mark += (at + 1.0) * (this.ready + 0.37 * this.since) + this.row
    for at in range(it.waiting):
        mark += (at + 1.0) * state.waiting[it.first + at].row
    return mark


@compiled
def _is_alike(state: OnlineState, known: Known, at: int) -> bool:
    it, tail = state.cluster[0], known.tail[at]
    if it.nodes != tail.nodes or it.waiting != tail.waiting or it.arrived != tail.arrived:
        return False
    for node in range(it.nodes):
        one, other = state.node[node], known.node[at, node]
        if one.ready != other.ready or one.since != other.since or one.row != other.row:
            return False
        if one.begun != other.begun or one.estimate != other.estimate:
            return False
    for place in range(it.waiting):  # noqa: SIM110  (compiled: no generators)
        if state.waiting[it.first + place].row != known.row[at, place]:
            return False
    return True


@compiled
def find_tail(state: OnlineState, known: Known) -> tuple[int, bool]:
    """Place of the future that begins as the simulated cluster is now, and whether it is known already.

    Else its beginning is written down.
    """
    it = state.cluster[0]
    mark = _mark_of(state)
    for at in range(known.size[TAILS]):
        tail = known.tail[at]
        if tail.mark == mark and tail.now == it.now and _is_alike(state, known, at):
            return at, True
    at = min(known.size[TAILS], len(known.tail) - 1)
    known.size[TAILS] = at + 1
    tail = known.tail[at]
    tail.now, tail.mark, tail.spared = it.now, mark, 0
    tail.nodes, tail.waiting, tail.arrived = it.nodes, it.waiting, it.arrived
    for node in range(it.nodes):
        known.node[at, node] = state.node[node]
    for place in range(it.waiting):
        known.row[at, place] = state.waiting[it.first + place].row
    return at, False


@compiled
def note_spared(known: Known, at: int, charged: float, slowdown: float) -> None:
    """Write down what idle nodes spared between two ticks; a future with too many of them is not shared."""
    tail = known.tail[at]
    if tail.spared == known.spared.shape[1]:
        tail.mark = np.nan
        return
    known.spared[at, tail.spared, 0] = charged
    known.spared[at, tail.spared, 1] = slowdown
    tail.spared += 1


@compiled
def note_starts(state: OnlineState, known: Known, at: int, jobs: int) -> None:
    """Write down when the jobs of a future started that waited at its beginning or came later."""
    tail = known.tail[at]
    for place in range(tail.waiting):
        row = known.row[at, place]
        known.start[at, row] = state.start[row]
    for row in range(tail.arrived, jobs):
        known.start[at, row] = state.start[row]


@compiled
def take_starts(state: OnlineState, known: Known, at: int, jobs: int) -> None:
    """Start jobs as in a future that is known."""
    tail = known.tail[at]
    for place in range(tail.waiting):
        row = known.row[at, place]
        state.start[row] = known.start[at, row]
    for row in range(tail.arrived, jobs):
        state.start[row] = known.start[at, row]
