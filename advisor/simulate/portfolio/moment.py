"""What a policy does at this moment with nodes and queue as they are: one tick of the simulated cluster."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.model.errors import BadInput
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
from advisor.simulate.state import Records

_NEW: Final = -1
_TELLING: Final = 1e-4
"""Seconds between two nodes' starts that change no charge."""
_NAME: Final = re.compile(
    r"(OD[ABEMX])-(FCFS|LXF|WFP3|UNICEF|WSPT)-(First|Best|Worst)Fit(?:\+h([0-9]{1,4}))?(\+bf)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a policy wants now; numbers are places in the situation's profile and jobs.

    Attributes
    ----------
    allowed : int or None
        Nodes that may be rented, those that are rented included; None: as many as the jobs take.
    warm : int
        Nodes rented now for jobs that are not here yet.
    back : tuple of int
        Rented nodes that are given back.
    kept : tuple of int
        Idle nodes that are kept although nobody waits: headroom, or a paid hour.
    order : tuple of int
        Waiting jobs, the next first.
    starting : tuple of int
        Those that start now on nodes that are idle.
    """

    allowed: int | None
    warm: int
    back: tuple[int, ...]
    kept: tuple[int, ...]
    order: tuple[int, ...]
    starting: tuple[int, ...]


def policy_named(name: str) -> RentingPolicy:
    """The policy of a name.

    Raises
    ------
    BadInput
        No policy is called so.

    Examples
    --------
    >>> policy_named("ODA-WSPT-WorstFit+h4+bf").headroom
    4
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise BadInput(
            f"{name[:80]!a} names no policy",
            where="portfolio.leader",
            mend="Write one as advisor replay portfolio does, such as ODX-UNICEF-FirstFit",
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
    """Let a policy act once, by the code of the simulated cluster (``_tick.decide``)."""
    without = _after_tick(situation, replace(policy, headroom=0), rules)
    after = _after_tick(situation, policy, rules) if policy.headroom else without
    free = {at for at in range(len(situation.profile)) if _is_free(situation, at)}
    left = {at for at in after.places if at >= 0}
    idle = [at for at in sorted(free & left) if after.nodes[after.places.index(at)]["ready"] <= situation.now]
    return Moment(
        allowed=None if policy.provisioning is Provisioning.ODA else len(after.places),
        warm=max(0, after.places.count(_NEW) - without.places.count(_NEW)),
        back=tuple(sorted(free - left)),
        kept=_kept(situation, policy, rules, idle),
        order=order_of(situation, policy.order),
        starting=after.starting,
    )


def order_of(situation: Situation, order: JobOrder) -> tuple[int, ...]:
    """Places of the waiting jobs, the next first (``JobOrder``); ties: earlier submission."""
    jobs = situation.jobs[: situation.present]
    if order is JobOrder.FCFS:
        priority = -jobs["submit"]
    else:
        grace = _tick.GRACE_SECONDS if order is JobOrder.WSPT else 0.0
        weight = np.array(
            [_tick.weight_of(int(order), job["estimate"], int(job["processors"])) for job in jobs]
        )
        priority = (situation.now + grace - jobs["submit"]) * weight
    return tuple(int(at) for at in np.lexsort((jobs["submit"], -priority)))


def left_of_paid_hour(since: float, end: float) -> float:
    """Seconds left at ``end`` of the hour that a node rented at ``since`` has paid for by then."""
    return (_tick.HOUR_SECONDS - (end - since) % _tick.HOUR_SECONDS) % _tick.HOUR_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class _After:
    """Nodes after a tick, each one's place in the profile (``_NEW``: rented now), jobs that start."""

    nodes: Records
    places: list[int]
    starting: tuple[int, ...]


def _after_tick(situation: Situation, policy: RentingPolicy, rules: Rules) -> _After:
    rented, most = len(situation.profile), max(rules.max_nodes, len(situation.profile))
    node = np.zeros(most, NODE)
    node[:rented] = situation.profile
    # the kernel moves nodes about: these fractions of a second tell whose each one was, and which are new;
    # earlier, not later: one rented now has all its paid hour before it
    node["since"][:rented] -= np.arange(rented, 0, -1) * _TELLING
    place_of = {float(since): at for at, since in enumerate(node["since"][:rented])}
    waiting, cluster = np.zeros(situation.present + 1, WAITING), np.zeros(1, CLUSTER)
    for at in range(situation.present):
        job, this = situation.jobs[at], waiting[at]
        for name in ("submit", "run", "estimate", "processors"):
            this[name] = job[name]
        this["row"] = at
        this["weight"] = _tick.weight_of(int(policy.order), job["estimate"], int(job["processors"]))
    it = cluster[0]
    it["next_ready"] = -math.inf
    it["now"], it["nodes"], it["waiting"] = situation.now, rented, situation.present
    start, scratch = np.full(situation.present, np.nan), np.zeros(most)
    _tick.decide(node, waiting, cluster, start, scratch, rules, as_records([policy])[0])
    nodes = node[: int(it["nodes"])]
    return _After(
        nodes,
        [place_of.get(float(since), _NEW) for since in nodes["since"]],
        tuple(int(at) for at in np.flatnonzero(~np.isnan(start))),
    )


def _kept(situation: Situation, policy: RentingPolicy, rules: Rules, idle: list[int]) -> tuple[int, ...]:
    """Idle nodes to be kept from Slurm's own SuspendTime.

    Not those that are idle while jobs wait that do not fit: nobody knows how long they will.
    """
    if rules.release == Release.HOUR_KEPT:
        since = situation.profile["since"]
        paid = [at for at in idle if not _tick.paid_hour_ends(since[at], situation.now, rules.tick)]
        return tuple(dict.fromkeys([*idle[: policy.headroom], *paid]))
    return tuple(idle[: policy.headroom])


def _is_free(situation: Situation, at: int) -> bool:
    """Idle, or booting for nobody in particular."""
    node = situation.profile[at]
    return bool(node["ready"] <= situation.now or node["row"] < 0)
