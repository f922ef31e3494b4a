"""The leading policy's actions on cloud nodes (close, keep, give back, warm up), and how to undo them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

import structlog

from advisor.model.cluster import Node, NodePower
from advisor.model.errors import RetryLater
from advisor.model.snapshot import is_partition_up
from advisor.service.cloud.node_weights import MAX_ADDED
from advisor.service.portfolio.portfolio_view import RESERVED, BurstView
from advisor.simulate.portfolio.moment import Moment
from advisor.simulate.portfolio.paid_hours import left_of_paid_hour
from advisor.simulate.portfolio.policies import NodeChoice, Release, RentingPolicy
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.steering import BurstSteering, Closed

log = structlog.get_logger(__name__)

_NO_WARM_SECONDS: Final = 180.0
"""Pause after a node that could not be warmed up, as long as that of an empty pool."""
_SETTLED_SECONDS: Final = 30.0
"""A node that is powered down again so soon after its warm-up counts as one that could not be warmed up."""
_FORGOTTEN_SECONDS: Final = 60.0
"""After so long no snapshot still shows a node that was opened as reserved."""
_GONE: Final = frozenset[str]()
_NOT_OURS: Final = RESERVED | {
    "DRAIN",
    "DRAINING",
    "DRAINED",
    "FAIL",
    "FAILING",
    "DOWN",
    "POWER_DOWN",
    "POWERING_DOWN",
    "POWERED_DOWN",
}
"""States of a node that has another purpose; state=IDLE would end them."""


class ClosedNodes:
    """Powered-down nodes that are closed to new jobs, for ``lease_seconds`` without renewal."""

    def __init__(self, steering: BurstSteering, *, lease_seconds: float) -> None:
        self._steering = steering
        self._lease = lease_seconds
        self.known: Closed | None = None
        self._has_asked = False
        self._opened: dict[str, float] = {}  # node: epoch seconds

    def ours(self, now: float) -> frozenset[str]:
        """Nodes that Slurm may show as reserved because of us.

        Raises:
            RetryLater: slurmctld did not say what an earlier process has closed.
        """
        if not self._has_asked:
            self.known = self._steering.closed()
            self._has_asked = True
        # the snapshot may be older than our last change
        lately = {name for name, opened in self._opened.items() if now - opened < _FORGOTTEN_SECONDS}
        return frozenset(lately) | (self.known.nodes if self.known is not None else frozenset())

    def apply(self, asleep: Sequence[Node], may_start: int | None, now: float) -> None:
        """Leave the first ``may_start`` nodes open and close the others; None leaves all open.

        Args:
            asleep: Nodes that are powered down or powering down, the first to be powered up first.
            now: Epoch seconds.

        Raises:
            RetryLater: slurmctld refused; the next call tries again.
        """
        if may_start is None and self._has_asked and self.known is None:
            return
        self.known = self._steering.closed()
        self._has_asked = True
        wanted = frozenset[str]() if may_start is None else self._to_close(asleep, may_start, now)
        if self.known is not None and (not wanted or self.known.until <= now):
            self.open_all()
        if not wanted:
            return
        known = self.known
        if known is None or known.nodes != wanted or known.until - now < 0.5 * self._lease:
            self._steering.close(wanted, seconds=self._lease, known=known)
            if known is not None:
                self._opened |= dict.fromkeys(known.nodes - wanted, now)
            self.known = Closed(nodes=wanted, until=now + self._lease)
            if known is None or known.nodes != wanted:
                log.info("portfolio.closed", nodes=sorted(wanted))

    def open_all(self) -> None:
        """Open all nodes.

        Raises:
            RetryLater: slurmctld refused.
        """
        self._steering.open()
        if self.known is not None:
            self._opened |= dict.fromkeys(self.known.nodes, self.known.until)  # at the latest
        self.known = None
        log.info("portfolio.opened")

    def _to_close(self, asleep: Sequence[Node], may_start: int, now: float) -> frozenset[str]:
        """All but the first nodes, without those that another reservation has."""
        ours = self.ours(now)
        free = [node for node in asleep if node.name in ours or not node.states & RESERVED]
        return frozenset(node.name for node in free[max(may_start, 0) :])


class SteeredNodes:
    """Gives idle nodes back, keeps them from Slurm's SuspendTime, and warms powered-down nodes up.

    ``steering`` is asked about nodes right before they are kept, and about Slurm's own power saving.
    """

    def __init__(
        self, slurm: SlurmBackend, steering: BurstSteering, *, partition: str, period_seconds: float
    ) -> None:
        self._slurm = slurm
        self._steering = steering
        self._partition = partition
        self._period = period_seconds
        self._kept: dict[str, float] = {}  # node: when its idle time began anew, epoch seconds
        self._acted: dict[str, float] = {}  # node: epoch seconds
        self._warmed: dict[str, float] = {}
        self._no_warm_until = 0.0
        self.given_back = 0
        self.warmed = 0

    def give_back(self, nodes: Sequence[Node], seen: float, now: float) -> None:
        """Power idle nodes down, except those that slurm.conf keeps; a job that has just got one ends first.

        ``seen`` is the time of the nodes' snapshot; ``seen`` and ``now`` are epoch seconds.
        """
        names = [node.name for node in nodes if seen > self._acted.get(node.name, 0.0)]
        if names:
            excluded = self._steering.power_saving(self._partition).excluded
            names = [name for name in names if name not in excluded]
        if names:
            self._slurm.update_node(names, state="POWER_DOWN")
            self._note(names, now)
            for name in names:
                self._warmed.pop(name, None)
            self.given_back += len(names)
            log.info("portfolio.given_back", nodes=names)

    def keep(self, nodes: Sequence[Node], now: float) -> None:
        """Restart the idle time of these nodes, so that Slurm does not power them down.

        It is done only when half of the idle time is over: slurmctld takes state=IDLE for the end of a DRAIN
        as well, be it an admin's or EC2's. ``now`` is in epoch seconds.
        """
        if not nodes:
            self._kept.clear()
            return
        saving = self._steering.power_saving(self._partition)
        least = (saving.idle_seconds or 0.0) / 2.0 - self._period
        # the idle time of a node that was not kept until now is unknown
        self._kept = {node.name: self._kept[node.name] for node in nodes if node.name in self._kept}
        due = [
            node.name
            for node in nodes
            if node.name not in saving.excluded and now - self._kept.get(node.name, -math.inf) >= least
        ]
        if not due:
            return
        states = self._steering.node_states(due)  # the snapshot may be seconds old
        names = [
            name for name in due if "IDLE" in (words := states.get(name, _GONE)) and not words & _NOT_OURS
        ]
        self._set_idle(names, now)

    def _set_idle(self, names: Sequence[str], now: float) -> None:
        if not names:
            return
        try:
            self._slurm.update_node(names, state="IDLE")
            self._kept |= dict.fromkeys(names, now)
        except RetryLater:
            for name in names:  # slurmctld rightly refuses it for a node that has a job by now
                try:
                    self._slurm.update_node([name], state="IDLE")
                    self._kept[name] = now
                except RetryLater as error:
                    log.debug("portfolio.not_kept", node=name, message=str(error))

    def warm(self, asleep: Sequence[Node], count: int, seen: float, now: float) -> None:
        """Power up ``count`` nodes for jobs that have not arrived yet, less those powered up since ``seen``.

        ``seen`` is the time of the nodes' snapshot; ``seen`` and ``now`` are epoch seconds.
        """
        self._check_warmed(asleep, seen, now)
        under_way = sum(acted >= seen for acted in self._warmed.values())
        count -= under_way
        if count <= 0 or now < self._no_warm_until:
            return
        ready = [node for node in asleep if node.power is NodePower.DOWN and node.name not in self._warmed]
        ready.sort(key=lambda node: node.weight or 0)
        names = [node.name for node in ready[:count]]
        if names and is_partition_up(self._slurm.partitions(), self._partition):
            self._slurm.update_node(names, state="POWER_UP")
            self._warmed |= dict.fromkeys(names, now)
            self._note(names, now)
            self.warmed += len(names)
            log.info("portfolio.warmed", nodes=names)

    def _check_warmed(self, asleep: Sequence[Node], seen: float, now: float) -> None:
        down = {node.name for node in asleep}
        for name, acted in list(self._warmed.items()):
            if seen <= acted:
                continue
            if name not in down:
                if seen > acted + _SETTLED_SECONDS:
                    del self._warmed[name]
            elif seen > acted + 1.0:
                del self._warmed[name]
                self._no_warm_until = now + _NO_WARM_SECONDS
                log.warning("portfolio.not_warmed", node=name, again_in_seconds=_NO_WARM_SECONDS)

    def _note(self, names: Collection[str], now: float) -> None:
        self._acted |= dict.fromkeys(names, now)


def ranks(view: BurstView, moment: Moment, policy: RentingPolicy, release: Release) -> dict[str, int]:
    """Numbers to add to nodes' weights, so that the next job gets the idle node that the policy chooses.

    Powered-down nodes come after all nodes that are up. Empty if the choice makes no difference.
    """
    situation = view.situation
    idle = [
        at
        for at, node in enumerate(view.rented)
        if node.power is NodePower.UP and situation.profile[at]["ready"] <= situation.now
    ]
    if release is Release.SECOND or len(idle) < 2:
        return {}
    first = moment.order[0] if moment.order else None
    end = situation.now + (float(situation.jobs[first]["estimate"]) if first is not None else 0.0)

    def key(at: int) -> float:
        since = float(situation.profile[at]["since"])
        if policy.choice is NodeChoice.FIRST:
            return since
        left = left_of_paid_hour(since, end)
        return left if policy.choice is NodeChoice.BEST else -left

    places = {view.rented[at].name: place for place, at in enumerate(sorted(idle, key=key))}
    others: Sequence[Node] = [*view.rented, *view.asleep]
    added = {node.name: MAX_ADDED for node in others}
    return added | {name: min(place, MAX_ADDED - 1) for name, place in places.items()}
