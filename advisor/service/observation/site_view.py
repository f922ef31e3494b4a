"""Functions from a snapshot of Slurm to the states and nodes that decisions read, and a log of states.

The poll loop and the loops that act on nodes call them. They are pure.
"""

from __future__ import annotations

import bisect
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from advisor.model.cluster import ClusterState, Node, NodePower
from advisor.model.machine import PartitionTerms
from advisor.model.settings import Settings
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.predict.knn.tracker import ClusterTracker, SnapshotRow
from advisor.service.observation.placeholders import standing_for_others

PAID_FOR: Final = frozenset({NodePower.UP, NodePower.POWERING_UP, NodePower.POWERING_DOWN})
"""Power states of a cloud node whose instance costs money."""
_MAX_STATES: Final = 120_960
"""One state every five seconds for a week."""


def cluster_state(snapshot: ClusterSnapshot, settings: Settings) -> ClusterState:
    """The on-premise queue as submissions after this snapshot meet it.

    Jobs that are held or wait for a time or another job are left out, as they do not compete for processors.
    Nodes that are down or drained are not counted.
    """
    on_premise = set(settings.cluster.on_premise_partitions)
    usable = sum(node.processors for node in _on_premise_nodes(snapshot, settings))
    here = [job for job in without_doubles(snapshot.jobs) if on_premise & set(job.partitions)]
    rows = [row for job in here for row in _rows(job)]
    for visitor in visitors(snapshot, settings).values():
        share = visitor.nodes / (visitor.queued.job.nodes or 1)
        whole = _rows(visitor.queued)
        rows += [replace(row, processors=max(1, round(share * row.processors))) for row in whole]
    tracker = ClusterTracker.from_snapshot(rows, total_processors=usable, time=snapshot.time)
    return tracker.state(snapshot.time)


def _on_premise_nodes(snapshot: ClusterSnapshot, settings: Settings) -> Iterator[Node]:
    """The usable ones."""
    ours = set(settings.cluster.on_premise_partitions)
    for node in snapshot.nodes:
        if ours & set(node.partitions) and not (node.is_down or node.is_draining or node.is_cloud):
            yield node


def smallest_memory_mb(snapshot: ClusterSnapshot, settings: Settings) -> int:
    """Memory of the smallest usable on-premise node, MiB; 0 where there is none."""
    return min((node.memory_mb for node in _on_premise_nodes(snapshot, settings)), default=0)


class Visitor(NamedTuple):
    """A job of another partition that runs on on-premise nodes.

    Attributes:
        nodes: How many usable ones of these it has.
        partitions: Those of one of these nodes.
    """

    queued: QueuedJob
    nodes: int
    partitions: tuple[str, ...]


def visitors(snapshot: ClusterSnapshot, settings: Settings) -> Mapping[int, Visitor]:
    """The jobs of other partitions that run on on-premise nodes, by id."""
    ours = set(settings.cluster.on_premise_partitions)
    others = {
        queued.job.job_id: queued
        for queued in snapshot.jobs
        if queued.uses_processors and ours.isdisjoint(queued.partitions)
    }
    if not others:
        return {}
    found: dict[int, Visitor] = {}
    for node in _on_premise_nodes(snapshot, settings):
        for job_id in {queued.job.job_id for queued in snapshot.jobs_on.get(node.name, ())} & others.keys():
            nodes = found[job_id].nodes + 1 if job_id in found else 1
            found[job_id] = Visitor(others[job_id], nodes, node.partitions)
    return found


def without_doubles(jobs: Sequence[QueuedJob]) -> Sequence[QueuedJob]:
    """The queue without placeholders in their own job's partition, where the job would count twice."""
    standing = standing_for_others(jobs)
    if not standing:
        return jobs
    partitions = {queued.job.job_id: queued.partitions for queued in jobs}
    doubles = {own for own, other in standing.items() if set(partitions[other]) & set(partitions[own])}
    return [queued for queued in jobs if queued.job.job_id not in doubles]


def _rows(queued: QueuedJob) -> Iterator[SnapshotRow]:
    if not (queued.is_queued or queued.uses_processors):
        return
    job = queued.job
    yield SnapshotRow(
        key=job.job_id,
        processors=job.processors,
        submit_time=job.submit_time,
        requested_time=job.requested_time,
        start_time=queued.start_time if queued.uses_processors else None,
        tasks=job.array_tasks,
    )


def burst_nodes(snapshot: ClusterSnapshot, settings: Settings) -> tuple[Node, ...]:
    """Nodes of the burst partition."""
    return snapshot.nodes_of(settings.cluster.burst_partition)


def within_limits(nodes: Sequence[Node], terms: PartitionTerms) -> Sequence[Node]:
    """The nodes with what jobs of a partition get of them at most."""
    if not (terms.max_processors or terms.max_memory):
        return nodes
    return [
        replace(
            node,
            processors=min(node.processors, terms.max_processors or node.processors),
            memory_mb=min(node.memory_mb, terms.max_memory or node.memory_mb),
        )
        for node in nodes
    ]


def processors_on_a_node(queued: QueuedJob) -> int:
    """Processors that a job holds on each of its nodes, rounded down, at least 1."""
    return max(1, queued.job.processors // (queued.job.nodes or 1))


def active_features(node: Node) -> tuple[str, ...]:
    """The node's active features; its available ones where Slurm was not asked for the active ones."""
    return node.features if node.active_features is None else node.active_features


class StateLog:
    """The on-premise states of the last days: what each job met at its submission. Not thread-safe.

    A state holds for ``max_gap_seconds`` at most.
    """

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap = max_gap_seconds
        self._states: deque[ClusterState] = deque(maxlen=_MAX_STATES)

    def add(self, state: ClusterState) -> None:
        """Add a state, unless it is older than the last one (the clock was set back)."""
        if not self._states or state.time > self._states[-1].time:
            self._states.append(state)

    def at(self, time: float) -> ClusterState | None:
        """The last state up to ``time``, epoch seconds; None if there is none within ``max_gap_seconds``."""
        index = bisect.bisect_right(self._states, time, key=lambda state: state.time) - 1
        if index < 0 or time - self._states[index].time > self._max_gap:
            return None
        return self._states[index]


def nodes_with(nodes: Sequence[Node]) -> MappingProxyType[str, float]:
    """Number of nodes by active feature: slurmctld matches submissions with those."""
    alike = Counter((node.features, node.active_features) for node in nodes)
    found = Counter[str]()
    for (features, active), count in alike.items():
        found.update(dict.fromkeys(features if active is None else active, count))
    return MappingProxyType(dict(found))
