"""The acquirer: keeps cloud nodes up, exchanges shaky ones, and lets their number follow their use.

Once an hour `advisor.decide.matching.acquirer` says how many nodes there should be and which are not worth
keeping. New nodes are requested first, by powering nodes up in Slurm, so that their launch takes the usual
path (hand-over, budget, journal, pools). A node is given up only when others are up in its place, and only
with ``POWER_DOWN_ASAP``: slurmctld drains it, lets its jobs end and then powers it down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray

from advisor.decide.matching.acquirer import AcquirerPlan, AcquirerRules, acquire
from advisor.decide.submission.capacity import is_never_spot
from advisor.model.cluster import Node, NodePower
from advisor.model.snapshot import ClusterSnapshot, is_partition_up
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.observation.site_view import burst_nodes, processors_on_a_node
from advisor.service.running.isolating import for_each
from advisor.service.running.loops import Step
from advisor.service.stability.outlook import NodeOutlook, StabilityKnowledge, hazard_of
from advisor.service.state.budget_records import limits_of
from advisor.service.state.state_files import ACQUIRER

log = structlog.get_logger(__name__)

REASON: Final = "burst advisor: retired"
_ASKED_SECONDS: Final = 1800.0  # the longest ResumeTimeout: a later node does not come up at all
_ASLEEP_SECONDS: Final = 60.0  # a node still powered down by then was refused its launch
_PAUSE_SECONDS: Final = 300.0  # after a node that did not boot: its instance cost money
_MAX_PAUSE: Final = 3600.0
_MARGIN: Final = 1.25  # an exchange pays if a fresh node's hazard is this much lower
_IN_USE: Final = 1e-3  # cores; an idle site shrinks to `acquirer.kept_nodes`
_MIN_UTILISATION: Final = 0.6  # of the kept cores; below it nodes are given up (Agarwal et al., section 3.2)
_MAX_UTILISATION: Final = 0.8  # above it nodes are requested (Agarwal et al., section 3.2)
_EXCHANGED_SHARE: Final = (
    0.1  # of the kept nodes in one exchange; 0.3 and 0.4 wasted more work in simulations
)
_MIN_HAZARD: Final = 1e-6
_ON_DEMAND_RATE: Final = 1e6  # an on-demand instance on a node that may be spot: exchanged first


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptNodes:
    """The nodes that may be spot, by their present state."""

    usable: int  # also those that power down
    up: tuple[NodeOutlook, ...]
    booting: tuple[Node, ...]
    asleep: tuple[Node, ...]
    retiring: tuple[Node, ...]
    idle: frozenset[str]  # of those that are up


class AcquireLoop:
    """Keeps nodes up.

    Args:
        closed: Pools and purchase options whose breakers are open.

    Attributes:
        retired, asked: Nodes given up and nodes requested since the start.
    """

    name = "acquire"

    def __init__(
        self,
        context: CloudContext,
        *,
        knowledge: StabilityKnowledge,
        closed: Callable[[], Collection[str]],
    ) -> None:
        self._settings = settings = context.settings
        self.period_seconds = settings.loops.match_seconds
        self._rules = settings.acquirer
        self._knowledge = knowledge
        self._slurm, self._view, self._clock = context.slurm, context.view, context.clock
        self._cloud, self._paid = context.cloud, context.paid_now()
        self._state = ACQUIRER.at(settings.paths.state)
        self._closed = closed
        self._record = self._state.read()
        self._booting: set[str] = set()  # asked for, and seen to boot
        self._victims: list[tuple[str, str]] = []  # node, instance; worst first
        self._busy_sum = self._samples = 0.0
        self._retired: dict[str, str] = {}  # node that was retired: its instance
        self.retired = self.asked = 0

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("plan", self.plan), Step("ask for nodes", self.ask), Step("retire", self.retire))

    def wanted(self) -> Collection[str]:
        """Requested nodes that are not up yet: they are to be spot."""
        return frozenset(self._record.asked)

    # ------------------------------------------------------------------ planning

    def plan(self) -> None:
        """Measure use; once an hour decide how many nodes there should be, and which should go."""
        if not self._knowledge.is_ready:
            return
        snapshot = self._view.fresh()
        kept = self._kept_nodes(snapshot)
        self._busy_sum += self._busy_cores(snapshot, kept)
        self._samples += 1
        now, period = self._clock.wall(), self._settings.loops.acquire_seconds
        if self._record.planned is not None and 0.0 <= now - self._record.planned < period:
            return
        nodes = [item.node for item in kept.up] or kept.asleep
        per_node = max((node.processors for node in nodes), default=1)
        waiting = self._waiting_cores(snapshot)
        plan = self._decide(
            kept,
            self._busy_sum / self._samples,
            per_node,
            needed_now=self._busy_cores(snapshot, kept) + waiting,
            may_go=np.array([item.node.name in kept.idle and not waiting for item in kept.up], np.bool_),
        )
        left = sum(item.node.processors for item in kept.up) - sum(
            kept.up[row].node.processors for row in plan.retire
        )
        self._record.target = round((left + plan.cores) / per_node)
        self._victims = [(kept.up[row].node.name, kept.up[row].instance_id) for row in plan.retire]
        self._record.planned, self._busy_sum, self._samples = now, 0.0, 0.0
        self._save()
        going = [name for name, _ in self._victims]
        log.info("acquirer.plan", nodes=len(kept.up), target=self._record.target, retire=going)

    def _decide(
        self, kept: _KeptNodes, busy: float, per_node: int, *, needed_now: float, may_go: NDArray[np.bool_]
    ) -> AcquirerPlan:
        rules, count = self._rules, len(kept.up)
        most = rules.max_nodes or kept.usable
        share = max(_EXCHANGED_SHARE, 1.0 / count) if count else _EXCHANGED_SHARE
        covered = self._paid.at_launch(self._knowledge.instances).covered
        fresh = self._fresh_hazard()
        if fresh is None or not self._settings.capacity.use_spot:
            fresh, share = 1.0, 0.0  # nothing better can be had now
        return acquire(
            np.array([item.node.processors for item in kept.up], np.int64),
            np.array([item.age for item in kept.up], np.float64),
            np.array([_rate(item, max(fresh, _MIN_HAZARD), covered) for item in kept.up], np.float64),
            busy_cores=max(busy, _IN_USE),
            target_cores=None,
            fresh_rate=_MARGIN,
            bounds=(float(rules.kept_nodes * per_node), float(most * per_node)),
            rules=AcquirerRules(
                share=share,
                by_own_rate=self._settings.cluster.policy != "agarwal2023",
                lowest=_MIN_UTILISATION,
                highest=_MAX_UTILISATION,
            ),
            needed_now=needed_now,
            may_go=may_go,
        )

    def _fresh_hazard(self) -> float | None:
        return self._knowledge.fresh_hazard(self._closed())

    def _kept_nodes(self, snapshot: ClusterSnapshot) -> _KeptNodes:
        outlook = self._knowledge.outlook(snapshot)
        mine = [node for node in burst_nodes(snapshot, self._settings) if not is_never_spot(node.features)]
        usable = [node for node in mine if not (node.is_down or node.is_draining)]
        up = [node for node in usable if node.name in outlook]
        held = snapshot.jobs_on.keys()
        return _KeptNodes(
            usable=len(usable),
            up=tuple(outlook[node.name] for node in up),
            booting=tuple(node for node in usable if node.power is NodePower.POWERING_UP),
            # not nodes that power down still: powered up now, they would keep their instances
            asleep=tuple(node for node in usable if "POWERED_DOWN" in node.states and not node.is_busy),
            retiring=tuple(node for node in mine if node.is_draining and node.power is NodePower.UP),
            idle=frozenset(node.name for node in up if not node.is_busy and node.name not in held),
        )

    def _waiting_cores(self, snapshot: ClusterSnapshot) -> float:
        """Processors that waiting jobs ask for in the burst partition.

        Jobs that have waited since before the last plan do not count: with idle nodes they wait for something
        else and must not keep all nodes up.
        """
        period = self._settings.loops.acquire_seconds
        return float(
            sum(
                queued.job.processors * max(1, queued.job.array_tasks)
                for queued in snapshot.jobs
                if queued.is_queued
                and self._settings.cluster.burst_partition in queued.partitions
                and snapshot.time - queued.job.submit_time <= period
            )
        )

    def _busy_cores(self, snapshot: ClusterSnapshot, kept: _KeptNodes) -> float:
        """Processors that jobs hold on nodes that are kept or about to leave."""
        names = {item.node.name for item in kept.up} | {node.name for node in (*kept.booting, *kept.retiring)}
        return float(
            sum(
                processors_on_a_node(queued)
                for name, jobs in snapshot.jobs_on.items()
                if name in names
                for queued in jobs
            )
        )

    # ------------------------------------------------------------------ acting

    def ask(self) -> None:
        """Power up as many nodes as will be missing once those to retire have gone."""
        if self._record.target is None:
            return
        kept = self._kept_nodes(self._view.fresh())
        self._forget_asked(kept)
        if self._cloud.protected:
            return  # ten boots in a row failed: kept nodes, too, wait for the one node that may boot
        if self._settings.capacity.use_spot and self._fresh_hazard() is None:
            return  # no spot pool is open
        leaving = {name for name, _ in self._victims}
        staying = sum(item.node.name not in leaving for item in kept.up)
        missing = (
            self._record.target - staying - len({n.name for n in kept.booting} | self._record.asked.keys())
        )
        now = self._clock.wall()
        if self._record.misses:
            # the next nodes may fail for the same reason, so one node tries
            is_pausing = any(0.0 < time - now <= _MAX_PAUSE for time in self._record.not_before.values())
            missing = 0 if is_pausing else min(missing, 1 - len(self._record.asked))
        if missing <= 0 or self._cloud.budget.exhausted(limits_of(self._settings))[0]:
            return
        names = [node.name for node in kept.asleep if node.name not in self._record.asked]
        names = sorted(names, key=lambda name: self._record.not_before.get(name, 0.0))[:missing]
        burst = self._settings.cluster.burst_partition
        if names and is_partition_up(self._slurm.partitions(), burst):
            self._record.asked |= dict.fromkeys(names, now)
            self._save()  # first: the launch must know that the node is to be spot
            self.asked += len(names)
            log.info("acquirer.asked", nodes=names)
            for_each(names, lambda name: self._slurm.update_node([name], state="POWER_UP"))

    def _forget_asked(self, kept: _KeptNodes) -> None:
        now = self._clock.wall()
        up = {item.node.name for item in kept.up} | {node.name for node in kept.retiring}
        asleep = {node.name for node in kept.asleep}
        self._booting = (self._booting | {node.name for node in kept.booting}) & self._record.asked.keys()
        left = {
            name: time
            for name, time in self._record.asked.items()
            if name not in up and 0.0 <= now - time < (_ASLEEP_SECONDS if name in asleep else _ASKED_SECONDS)
        }
        if left != self._record.asked:
            self._pause(
                self._record.asked.keys() - left.keys() - up, came=bool(self._record.asked.keys() & up)
            )
            self._record.asked = left
            self._save()

    def _pause(self, missed: Collection[str], *, came: bool) -> None:
        """Wait before nodes that did not come up are requested again: twice as long each time."""
        now = self._clock.wall()
        if came:
            self._record.misses, self._record.not_before = 0, {}
        if not missed:
            return
        self._record.misses += 1
        # a node that was never seen to boot has cost nothing
        first = _PAUSE_SECONDS if self._booting & set(missed) else _ASLEEP_SECONDS
        seconds = min(_MAX_PAUSE, first * 2.0 ** min(10, self._record.misses - 1))
        self._record.not_before |= dict.fromkeys(missed, now + seconds)
        log.warning("acquirer.not_booted", nodes=sorted(missed), again_in_seconds=seconds)

    def retire(self) -> None:
        """Give up the nodes that should go, as far as enough others are up; their jobs end undisturbed."""
        if not self._victims or self._record.target is None:
            return
        kept = self._kept_nodes(self._view.fresh())
        instance_of = {item.node.name: item.instance_id for item in kept.up}
        self._retired = {
            name: retired for name, retired in self._retired.items() if instance_of.get(name) == retired
        }
        # the next poll may not show these changes yet
        spare = len(instance_of) - len(self._retired) - self._record.target
        while self._victims and spare > 0:
            name, instance_id = self._victims[0]
            if name in instance_of and instance_of[name] == instance_id and name not in self._retired:
                self._slurm.update_node([name], state="POWER_DOWN_ASAP", reason=f"{REASON} ({instance_id})")
                self._retired[name] = instance_id
                self.retired += 1
                spare -= 1
                log.info("acquirer.retired", node=name, instance=instance_id)
            self._victims.pop(0)

    def gauges(self) -> dict[str, tuple[float, str]]:
        """The loop's Prometheus gauges: value and help text by name."""
        return {
            "cloud_nodes_target": (self._record.target or 0, "Cloud nodes to keep up by the last plan."),
            "cloud_nodes_retired": (self.retired, "Kept nodes given up since the start."),
            "cloud_nodes_asked": (self.asked, "Nodes asked for to be kept since the start."),
        }

    def report(self) -> dict[str, Any]:
        """What `advisor status` shows."""
        return {
            "kept_nodes": self._rules.kept_nodes,
            "target_nodes": self._record.target,
            "planned": self._record.planned,
            "to_retire": [name for name, _ in self._victims],
            "asked_for": sorted(self._record.asked),
            "did_not_come": sorted(self._record.not_before),
            "nodes_retired": self.retired,
            "nodes_asked": self.asked,
        }

    def _save(self) -> None:
        self._state.keep(self._record, "acquirer.not_saved")


def _rate(item: NodeOutlook, fresh: float, covered: Collection[str]) -> float:
    """How many times as likely to be taken as a fresh node; one got for a job that paid for more is dear.

    Args:
        covered: Ids of the instances that are paid for already.
    """
    if not item.instance_id or item.instance_id in covered:
        return 0.0  # not known yet for what it is, or free and not spot
    return _ON_DEMAND_RATE if item.pool is None else hazard_of(item.survives) / fresh
