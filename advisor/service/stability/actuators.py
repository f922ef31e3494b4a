"""The changes of the match loop in Slurm, and how to undo them.

Undoing needs neither EC2 nor a forecast. So expired credentials, or a cloud that was removed from the
settings, leave no job delayed and no node without its feature (docs/designs/0015-stability-live.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import structlog

from advisor.files.state_file import StateFile
from advisor.model.cluster import Node
from advisor.model.errors import AdvisorError
from advisor.model.scheduler import CloudScheduler
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING, ClusterSnapshot
from advisor.service.cloud.node_weights import NodeWeights
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import active_features, burst_nodes
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature
from advisor.service.running.isolating import do_all
from advisor.service.running.loops import LoopRunner, Step
from advisor.service.stability.steering import JobSteering, NodeConstraintSource
from advisor.service.state.records import MarkedNodes
from advisor.service.state.state_files import MARKED_NODES, NODE_WEIGHTS, STEERED_JOBS

log = structlog.get_logger(__name__)


class NodeMarks:
    """The feature of nodes that are likely to last, and whether we have changed it. Used by one thread.

    ``state`` keeps the features that are missing from nodes to which slurm.conf gives them; an empty
    ``feature`` means that there is none.
    """

    def __init__(self, slurm: CloudScheduler, state: StateFile[MarkedNodes], feature: str) -> None:
        self._slurm = slurm
        self._state = state
        self._feature = feature
        self._changed = set(state.read().features)

    @property
    def are_changed(self) -> bool:
        """Whether a node may lack a feature because of us."""
        return bool(self._changed)

    def of(self, nodes: Sequence[Node], feature: str | None = None) -> tuple[Node, ...]:
        """Nodes to which slurm.conf gives the feature."""
        word = self._feature if feature is None else feature
        return tuple(node for node in nodes if word and word in node.features)

    def move(self, given: Collection[str], dropped: Collection[str], nodes: Sequence[Node]) -> None:
        """Give the feature to some nodes, then take it from others."""
        by_name, feature = {node.name: node for node in nodes}, self._feature
        if dropped and feature not in self._changed:
            self._changed.add(feature)
            self._save()  # first: an unrecorded node would lack its feature for ever
        self._set(feature, given, by_name)
        self._set(feature, dropped, by_name, has=False)

    def put_back(self, nodes: Sequence[Node], *, anyway: bool = False) -> None:
        """Give all nodes their features back; this is remembered until a snapshot shows that they have them.

        ``anyway``: also if no change of ours is known.
        """
        words = self._changed | ({self._feature} if anyway and self._feature else set())
        for feature in sorted(words):
            marked = {node.name: node for node in self.of(nodes, feature)}
            lacking = [name for name, node in marked.items() if feature not in active_features(node)]
            self._set(feature, lacking, marked)
            if nodes and not lacking and feature in self._changed:
                self._changed.discard(feature)
                self._save()

    def _set(
        self, feature: str, names: Collection[str], nodes: Mapping[str, Node], *, has: bool = True
    ) -> None:
        """Set or remove a feature of nodes."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in sorted(names):
            words = dict.fromkeys((*active_features(nodes[name]), feature))
            if not has:
                del words[feature]
            groups.setdefault(tuple(words), []).append(name)
        for features, group in groups.items():
            self._slurm.update_node(group, features=features)

    def _save(self) -> None:
        self._state.keep(MarkedNodes(features=sorted(self._changed)), "marks.not_saved")


class MatchActuators:
    """Weights and features of nodes, preferences and exclusions of jobs. Used by one thread."""

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: CloudScheduler,
        jobs: NodeConstraintSource,
        view: SharedView,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._view = view
        state, matching = settings.paths.state, settings.matching
        self.weights = NodeWeights(slurm, NODE_WEIGHTS.at(state))
        self.marks = NodeMarks(slurm, MARKED_NODES.at(state), matching.long_lived_feature)
        self.steering = JobSteering(
            slurm=slurm,
            jobs=jobs,
            state=STEERED_JOBS.at(state),
            clock=clock,
            feature=matching.long_lived_feature,
            max_delay_seconds=matching.max_delay_seconds,
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing in Slurm is ours."""
        return self.steering.is_empty and not self.weights.count and not self.marks.are_changed

    def see(self, snapshot: ClusterSnapshot) -> None:
        """Forget jobs that have left the queue."""
        pending = [queued.job.job_id for queued in snapshot.jobs if queued.state == PENDING]
        self.steering.forget(pending, {queued.job.job_id for queued in snapshot.jobs})

    def end_holds(self) -> None:
        """End the exclusions of nodes (ExcNodeList) that are due; end all if no node is marked."""
        snapshot = self._view.fresh()
        self.see(snapshot)
        if self.marks.of(burst_nodes(snapshot, self._settings)):
            self.steering.release_overdue()
        else:
            do_all(self.steering.release_all, lambda: self.steering.prefer(()))

    def release_jobs(self) -> None:
        """End all exclusions of nodes, so that no job waits because of a process that has ended.

        If slurmctld fails, the next process ends them.
        """
        try:
            self.steering.release_all()
        except AdvisorError as error:
            log.warning("match.not_released", code=error.code, message=str(error))

    def take_back(self) -> None:
        """Restore what slurm.conf and the users have set."""
        snapshot = self._view.fresh()
        self.see(snapshot)
        nodes = burst_nodes(snapshot, self._settings)
        steering, weights, marks = self.steering, self.weights, self.marks
        anyway = bool(weights.count)  # an earlier release did not record marks: they may be ours, too
        do_all(
            steering.release_all,
            lambda: steering.prefer(()),
            lambda: marks.put_back(nodes, anyway=anyway),
            lambda: weights.apply(nodes, {}),
        )


class TakeBackLoop(Feature):
    """Takes back what an earlier process has left, if there is no cloud any more and so no match loop."""

    name = "take-back"
    steering = (name,)

    def __init__(self, settings: Settings, actuators: MatchActuators, clock: Clock) -> None:
        self.period_seconds = settings.loops.match_seconds
        self._actuators = actuators
        self.runners = (LoopRunner(self, clock),)

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return () if self._actuators.is_empty else (Step("take back", self._actuators.take_back),)

    def release(self) -> None:
        """See :class:`Feature`."""
        self._actuators.release_jobs()
