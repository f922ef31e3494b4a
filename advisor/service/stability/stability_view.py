"""The queue and the nodes as input of the match loop: the same records as in the replay. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.decide.matching.matching import NOWHERE, OURS, MatchRules, match
from advisor.model.node_view import NODE_RECORD, NodeView
from advisor.model.snapshot import PARTITION_CLOSED, ClusterSnapshot, QueuedJob
from advisor.predict.survival.pool_survival import PoolSurvival
from advisor.service.cloud.money import expected_seconds
from advisor.service.observation.site_view import processors_on_a_node
from advisor.service.stability.outlook import NodeOutlook

_MAX_TASKS = 1000  # in one snapshot; the match itself places some dozens


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """Waiting one-node jobs in the queue's order, with processors and expected seconds of each."""

    jobs: tuple[QueuedJob, ...]
    cores: NDArray[np.int64]
    during: NDArray[np.float64]


def waiting_jobs(snapshot: ClusterSnapshot, partition: str) -> Waiting:
    """Jobs that wait in the burst partition for one node; the match does not place wider jobs.

    Where the partition is closed they keep their places: they start when it opens.
    """
    jobs = tuple(
        queued
        for queued in snapshot.jobs
        if (queued.is_queued or queued.reason in PARTITION_CLOSED)
        and partition in queued.partitions
        and (queued.job.nodes or 1) == 1
    )[:_MAX_TASKS]
    return Waiting(
        jobs=jobs,
        cores=np.array([queued.job.processors for queued in jobs], np.int64),
        during=np.array([max(1.0, expected_seconds(queued)) for queued in jobs], np.float64),
    )


def _observed_nodes(
    snapshot: ClusterSnapshot, nodes: Sequence[NodeOutlook], freed: Collection[str] = ()
) -> NodeView:
    """Nodes, one row each, and what runs on them.

    Nodes in ``freed`` count as free: the match then says what it would do the moment they are.
    """
    records = np.zeros(len(nodes), NODE_RECORD)
    remaining: list[float] = []
    held: list[int] = []
    on_node = snapshot.jobs_on
    for row, outlook in enumerate(nodes):
        node = outlook.node
        running = [] if node.name in freed else sorted(_ends(on_node.get(node.name, []), snapshot.time))
        used = min(node.processors, sum(cores for _, cores in running))
        records[row] = (
            outlook.age,
            node.processors,
            node.processors - used,
            0,
            int(not node.is_draining),
            len(remaining),
            len(running),
        )
        remaining += [seconds for seconds, _ in running]
        held += [cores for _, cores in running]
    return NodeView(records, np.array(remaining, np.float64), np.array(held, np.int64))


def _ends(jobs: Sequence[QueuedJob], now: float) -> list[tuple[float, int]]:
    """Seconds until each job on a node is expected to end, and the processors it has there."""
    found = []
    for queued in jobs:
        elapsed = max(0.0, now - queued.start_time) if queued.start_time is not None else 0.0
        left = expected_seconds(queued) - elapsed
        # a job that exceeds its forecast is not about to end: its forecast was wrong
        found.append((left if left > 0.0 else max(60.0, elapsed), processors_on_a_node(queued)))
    return found


def chosen_nodes(
    snapshot: ClusterSnapshot,
    waiting: Waiting,
    outlook: Mapping[str, NodeOutlook],
    model: PoolSurvival,
    *,
    freed: Collection[str] = (),
    rules: MatchRules = OURS,
) -> list[str | None]:
    """For each waiting job its best node now, or None if it does better to wait.

    The choice is `advisor.decide.matching.matching.match`, as in the replay.
    """
    nodes = list(outlook.values())
    if not nodes or not waiting.jobs:
        return [None] * len(waiting.jobs)
    stability = model.of_nodes([item.pool for item in nodes])
    view = _observed_nodes(snapshot, nodes, freed)
    rows = match(view, waiting.cores, waiting.during, stability, rules)
    return [None if row == NOWHERE else nodes[row].node.name for row in rows]
