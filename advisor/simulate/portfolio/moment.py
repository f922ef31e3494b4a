"""The portfolio loop's actions now: one tick of the simulated cluster on the real nodes and queue."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.model.errors import BadInput
from advisor.simulate.heap import Records
from advisor.simulate.portfolio import _tick
from advisor.simulate.portfolio.online import Situation
from advisor.simulate.portfolio.policies import (
    JobOrder,
    NodeChoice,
    Provisioning,
    Release,
    RentingPolicy,
    as_records,
)
from advisor.simulate.portfolio.state import CLUSTER, NODE, WAITING, Rules

_NEW: Final = -1
_MARK_SECONDS: Final = 1e-4  # difference of two nodes' starts by which they are identified; changes no charge
_NAME: Final = re.compile(
    r"(OD[ABEMX])-(FCFS|LXF|WFP3|UNICEF|WSPT)-(First|Best|Worst)Fit(?:\+h([0-9]{1,4}))?(\+bf)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The actions of a policy now; numbers are positions in the situation's profile and jobs.

    Attributes:
        allowed: Nodes that may be rented, including those that are; None: as many as the jobs take.
        warm: Nodes rented now for jobs that have not come yet.
        back: Rented nodes that are given back.
        kept: Idle nodes that are kept although the queue is empty: headroom, or a paid hour.
        order: Waiting jobs, the next first.
        starting: Waiting jobs that start now on idle nodes.
    """

    allowed: int | None
    warm: int
    back: tuple[int, ...]
    kept: tuple[int, ...]
    order: tuple[int, ...]
    starting: tuple[int, ...]


def policy_named(name: str) -> RentingPolicy:
    """The policy of a name; raises BadInput where there is none.

    A name is ``PROVISIONING-ORDER-CHOICE``; ``+h4``: a headroom of 4 nodes; ``+bf``: with backfill.

    Examples:
        >>> policy_named("ODA-WSPT-WorstFit+h4+bf").headroom
        4
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise BadInput(
            f"{name[:80]!a} is not the name of a policy",
            where="portfolio.leader",
            mend="Use a name that `advisor replay portfolio` prints, such as ODX-UNICEF-FirstFit",
            code="portfolio.policy",
        )
    return RentingPolicy(
        provisioning=Provisioning[match[1]],
        order=JobOrder[match[2]],
        choice=NodeChoice[match[3].upper()],
        headroom=int(match[4] or 0),
        backfill=bool(match[5]),
    )


def moment_of(situation: Situation, policy: RentingPolicy, rules: Rules) -> Moment:
    """Apply a policy for one tick with the code of the simulated cluster (``_tick.decide``)."""
    without = _after_tick(situation, replace(policy, headroom=0), rules)
    after = _after_tick(situation, policy, rules) if policy.headroom else without
    free = {i for i in range(len(situation.profile)) if _is_free(situation, i)}
    left = {i for i in after.places if i >= 0}
    idle = [i for i in sorted(free & left) if after.nodes[after.places.index(i)]["ready"] <= situation.now]
    return Moment(
        allowed=None if policy.provisioning is Provisioning.ODA else len(after.places),
        warm=max(0, after.places.count(_NEW) - without.places.count(_NEW)),
        back=tuple(sorted(free - left)),
        kept=_kept(situation, policy, rules, idle),
        order=_order_of(situation, policy.order),
        starting=after.starting,
    )


def _order_of(situation: Situation, order: JobOrder) -> tuple[int, ...]:
    """Positions of the waiting jobs, the next first (``JobOrder``); ties: earlier submission."""
    jobs = situation.jobs
    if order is JobOrder.FCFS:
        priority = -jobs["submit"]
    else:
        grace = _tick.GRACE_SECONDS if order is JobOrder.WSPT else 0.0
        weight = np.array(
            [_tick.weight_of(int(order), job["estimate"], int(job["processors"])) for job in jobs]
        )
        priority = (situation.now + grace - jobs["submit"]) * weight
    return tuple(int(i) for i in np.lexsort((jobs["submit"], -priority)))


@dataclass(frozen=True, slots=True, eq=False)
class _After:
    """Nodes after a tick, the position of each in the profile (``_NEW``: rented now), and jobs that start."""

    nodes: Records
    places: list[int]
    starting: tuple[int, ...]


def _after_tick(situation: Situation, policy: RentingPolicy, rules: Rules) -> _After:
    rented, most = len(situation.profile), max(rules.max_nodes, len(situation.profile))
    room = np.zeros(most, NODE)
    room[:rented] = situation.profile
    # The kernel reorders nodes. These fractions of a second identify them afterwards, and show which are new.
    # They make nodes older, not younger: a node that is rented now has its whole paid hour ahead.
    room["since"][:rented] -= np.arange(rented, 0, -1) * _MARK_SECONDS
    place_of = {float(since): i for i, since in enumerate(room["since"][:rented])}
    waiting, scalars = np.zeros(len(situation.jobs) + 1, WAITING), np.zeros(1, CLUSTER)
    for i, job in enumerate(situation.jobs):
        entry = waiting[i]
        for name in ("submit", "run", "estimate", "processors"):
            entry[name] = job[name]
        entry["row"] = i
        entry["weight"] = _tick.weight_of(int(policy.order), job["estimate"], int(job["processors"]))
    cluster = scalars[0]
    cluster["next_ready"] = -math.inf
    cluster["now"], cluster["nodes"], cluster["waiting"] = situation.now, rented, len(situation.jobs)
    start, scratch = np.full(len(situation.jobs), np.nan), np.zeros(most)
    _tick.decide(room, waiting, scalars, start, scratch, rules, as_records([policy])[0])
    after = room[: int(cluster["nodes"])]
    return _After(
        after,
        [place_of.get(float(since), _NEW) for since in after["since"]],
        tuple(int(i) for i in np.flatnonzero(~np.isnan(start))),
    )


def _kept(situation: Situation, policy: RentingPolicy, rules: Rules, idle: list[int]) -> tuple[int, ...]:
    """Idle nodes to keep from Slurm's own SuspendTime.

    Nodes that are idle while only jobs wait that do not fit are not among them: that wait may be long.
    """
    if rules.release == Release.HOUR_KEPT:
        since = situation.profile["since"]
        paid = [i for i in idle if not _tick.paid_hour_ends(since[i], situation.now, rules.tick)]
        return tuple(dict.fromkeys([*idle[: policy.headroom], *paid]))
    return tuple(idle[: policy.headroom])


def _is_free(situation: Situation, i: int) -> bool:
    """Whether a node is idle, or boots without a job."""
    node = situation.profile[i]
    return bool(node["ready"] <= situation.now or node["row"] < 0)
