"""The match loop: finds the cloud nodes that are likely to last, and steers long jobs to them.

It never touches a running job. Each change is soft or limited in time, is visible in Slurm's own output, and
is undone when ``matching.enabled`` is switched off; changes left by a process that died make no job wait
(docs/designs/0015-stability-live.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from advisor.decide.matching.matching import BACKLOG, OURS
from advisor.decide.matching.tiers import Tier, weight_offset
from advisor.decide.submission.capacity import is_never_spot
from advisor.model.cluster import Node, NodePower
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.node_weights import MAX_ADDED
from advisor.service.observation.site_view import active_features, burst_nodes
from advisor.service.running.isolating import do_all
from advisor.service.running.loops import Step
from advisor.service.stability.actuators import MatchActuators
from advisor.service.stability.outlook import HORIZON_SECONDS, NodeOutlook, StabilityKnowledge
from advisor.service.stability.stability_view import Waiting, chosen_nodes, waiting_jobs
from advisor.service.stability.steering import NodeConstraintSource

_MAX_HELD: Final = 16  # jobs matched one by one


class MatchLoop:
    """Sets weights and features of nodes, and preferences of jobs.

    The jobs that the interruption loop places are left alone.
    """

    name = "match"

    def __init__(
        self, context: CloudContext, *, knowledge: StabilityKnowledge, jobs: NodeConstraintSource
    ) -> None:
        settings, slurm, view, clock = context.settings, context.slurm, context.view, context.clock
        self._settings = settings
        self.period_seconds = settings.loops.match_seconds
        self._matching = settings.matching
        self._knowledge = knowledge
        self._view = view
        self._interruptions = context.interruptions
        self._actuators = MatchActuators(settings, slurm=slurm, jobs=jobs, view=view, clock=clock)
        self._weights, self._steering = self._actuators.weights, self._actuators.steering
        self._snapshot: ClusterSnapshot | None = None
        self._nodes: tuple[Node, ...] = ()
        self.outlook: Mapping[str, NodeOutlook] = {}

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        always = (
            Step("remember lives", self._knowledge.learn),
            Step("compute outlook", self.compute_outlook),
        )
        if not self._matching.enabled:
            return (*always, Step("take back", self._actuators.take_back))
        return (
            Step("end holds", self._actuators.end_holds),
            *always,
            Step("weigh nodes", self.weigh_nodes),
            Step("mark nodes", self.mark_nodes),
            Step("steer jobs", self.steer_jobs),
        )

    def compute_outlook(self) -> None:
        """Compute what is expected of each node; while it is unknown, the later steps do nothing."""
        self._snapshot, self._nodes = None, ()
        if not self._knowledge.is_ready:
            return
        snapshot = self._view.fresh()
        self.outlook = self._knowledge.outlook(snapshot)
        self._nodes = burst_nodes(snapshot, self._settings)
        self._snapshot = snapshot

    # ------------------------------------------------------------------ nodes

    @property
    def _marked(self) -> tuple[Node, ...]:
        """Nodes to which slurm.conf gives the feature of nodes that last."""
        return self._actuators.marks.of(self._nodes)

    def weigh_nodes(self) -> None:
        """Order the nodes that are up; of the powered-down ones, those that cost more come last.

        slurmctld fills nodes that are up before it resumes one, whatever their weights (seen on 22.05). A job
        whose preference cannot be met has none any more: it must not resume an on-demand node for that.
        """
        if self._snapshot is None:
            return
        steady_last = bool(self._marked)
        added = {
            node.name: weight_offset(self.outlook[node.name].survives, steady_last=steady_last)
            if node.name in self.outlook
            else MAX_ADDED
            for node in self._nodes
            if node.name in self.outlook or is_never_spot(node.features)
        }
        self._weights.apply(self._nodes, added)

    def mark_nodes(self) -> None:
        """Take the feature from nodes that are not likely to last, and give it to those that are.

        At least one node has it at any moment: slurmctld refuses a submission that names a feature of no
        node, even in ``--prefer``. So it is given first, also to nodes that seem to have it, and taken
        afterwards.
        """
        marked = self._marked
        if self._snapshot is None or not marked:
            return
        feature = self._matching.long_lived_feature
        holders = {node.name for node in marked if feature in active_features(node)}
        steady = self._steady_nodes() & {node.name for node in marked}
        wanted = steady or {self._best_holder(marked, holders)}
        dropped = holders - wanted
        given = wanted if dropped else wanted - holders
        self._actuators.marks.move(given, dropped, marked)

    def _steady_nodes(self) -> set[str]:
        return {
            name for name, item in self.outlook.items() if item.tier.is_steady and not item.node.is_draining
        }

    def _best_holder(self, marked: Sequence[Node], holders: Collection[str]) -> str:
        """The node to mark if none is likely to last: the likeliest that is up, else one that has it."""
        up = [item for node in marked if (item := self.outlook.get(node.name)) and not item.node.is_draining]
        if up:
            return max(up, key=lambda item: (item.survives or 0.0, item.node.name)).node.name
        return min(holders, default=marked[0].name)

    # ------------------------------------------------------------------ jobs

    def steer_jobs(self) -> None:
        """Let long waiting jobs prefer nodes that last, and hold off those that do better to wait."""
        snapshot = self._snapshot
        if snapshot is None or not self._marked:
            return
        waiting = waiting_jobs(snapshot, self._settings.cluster.burst_partition)
        shaky = {node.name for node in self._nodes} - self._steady_nodes()
        self._actuators.see(snapshot)

        def prefer() -> None:
            if self._can_distinguish():  # else present preferences do no harm, and may soon be right again
                self._steering.prefer(self._to_steer(snapshot, waiting))

        do_all(prefer, lambda: self._steering.hold_off(self._to_hold(snapshot, waiting), shaky))

    def _can_distinguish(self) -> bool:
        found = {item.tier.is_steady for item in self.outlook.values() if not item.node.is_draining}
        return len(found) == 2

    def _to_steer(self, snapshot: ClusterSnapshot, waiting: Waiting) -> list[int]:
        """Long jobs whose best node is likely to last, or that the match gives no node now."""
        model = self._knowledge.model()
        chosen = chosen_nodes(snapshot, waiting, self.outlook, model)
        return [
            queued.job.job_id
            for queued, node, seconds in zip(waiting.jobs, chosen, waiting.during, strict=True)
            if seconds >= self._matching.long_job_seconds
            and queued.job.array_tasks == 1  # the row of an array also stands for its running tasks
            and (node is None or self.outlook[node].tier.is_steady)
        ]

    def _to_hold(self, snapshot: ClusterSnapshot, waiting: Waiting) -> set[int]:
        """Long jobs that would do better to wait, if a shaky node came free this moment.

        slurmctld fills a node in the moment it is free, so this must be known before. Each job counts on
        other cores than the jobs held before it. No job is held while jobs ask for many more cores than there
        are, or while a node can be resumed at once.
        """
        can_resume = any(
            node.power is NodePower.DOWN and not node.is_down and not node.is_draining and not node.is_busy
            for node in self._nodes
        )
        if can_resume or not self._can_distinguish() or self._is_crowded(waiting):
            return set()
        outlook = self.outlook.values()
        shaky = [item for item in outlook if item.tier is Tier.SHAKY and not item.node.is_draining]
        freed = {max(shaky, key=lambda item: (item.survives or 0.0, item.node.name)).node.name}
        left_to_others = self._interruptions.to_place()
        held: list[int] = []
        for row in np.flatnonzero(waiting.during >= self._matching.long_job_seconds)[:_MAX_HELD]:
            job = waiting.jobs[row].job
            if (
                job.array_tasks == 1
                and job.job_id not in left_to_others
                and self._waits(snapshot, waiting, [*held, row], freed)
            ):
                held.append(int(row))
        return {waiting.jobs[row].job.job_id for row in held}

    def _waits(
        self, snapshot: ClusterSnapshot, waiting: Waiting, rows: Sequence[int], freed: Collection[str]
    ) -> bool:
        """Whether the last of these jobs does better to wait."""
        some = Waiting(
            jobs=tuple(waiting.jobs[row] for row in rows),
            cores=waiting.cores[rows],
            during=waiting.during[rows],
        )
        fits = any(
            item.node.processors >= some.cores[-1] for item in self.outlook.values() if item.tier.is_steady
        )
        rules = OURS._replace(keeps_busy=False)  # `_is_crowded` has checked the whole queue
        model = self._knowledge.model()
        chosen = chosen_nodes(snapshot, some, self.outlook, model, freed=freed, rules=rules)
        return fits and chosen[-1] is None

    def _is_crowded(self, waiting: Waiting) -> bool:
        total = sum(item.node.processors for item in self.outlook.values() if not item.node.is_draining)
        return float(waiting.cores.sum()) > BACKLOG * total

    # ------------------------------------------------------------------ reporting

    def release(self) -> None:
        """Release all jobs held off: no job may wait for a process that has ended."""
        self._actuators.release_jobs()

    def gauges(self) -> dict[str, tuple[float, str]]:
        """The loop's Prometheus gauges: value and help text by name."""
        steady = sum(item.tier.is_steady for item in self.outlook.values())
        return {
            "cloud_nodes_steady": (steady, "Cloud nodes that are up and likely to last."),
            "cloud_nodes_shaky": (
                len(self.outlook) - steady,
                "Cloud nodes that are up, and not likely to last.",
            ),
            "jobs_steered": (self._steering.steered, "Long jobs that were given a preference."),
            "jobs_held_off": (self._steering.held_off, "Jobs that were held off shaky nodes."),
        }

    def report(self) -> dict[str, Any]:
        """What `advisor status` and `advisor nodes` show."""
        counts = {tier.value: 0 for tier in Tier}
        for item in self.outlook.values():
            counts[item.tier.value] += 1
        return {
            "enabled": self._matching.enabled,
            "by": "features" if self._marked else "weights",
            "horizon_seconds": HORIZON_SECONDS,
            "nodes": counts,
            "jobs_steered": self._steering.steered,
            "jobs_held_off": self._steering.held_off,
            "steered_now": sorted(self._steering.now_steered),
            "held_off_now": sorted(self._steering.now_held),
            "pools": self._knowledge.table(),
        }
