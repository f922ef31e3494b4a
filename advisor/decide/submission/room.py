"""Question 2, before any forecast: can the job start on-premise at once?

Where the requested processors are free and no job waits, the job starts at once, faster than any cloud node
boots. A forecast, learned from months with queues, would predict a wait on an idle cluster, too. Where
jobs wait although processors are free, another resource is short, and this job may need it
(docs/designs/0004-decision.md).
"""

from __future__ import annotations

from typing import Final

from advisor.decide.explanation.reasons import Reason
from advisor.model.advice import Answer, Quantity, Question, Verdict
from advisor.model.job import Job
from advisor.model.site import FreeNodes, SiteState

_FASTER: Final = Question.FASTER


def room_here(job: Job, state: SiteState) -> Answer | None:
    """Answer question 2 with NO where the job, with all tasks of an array, can start on-premise at once.

    Without ``state.free_nodes`` (a replayed log) only processors are compared; with them also memory,
    features and partitions. None where there is no room, or it is not known.
    """
    cluster = state.cluster
    if cluster is None or cluster.queue_size > 0:
        return None
    needed, free = job.processors * job.array_tasks, cluster.free_processors
    if needed > free or not (state.free_nodes is None or _has_nodes(job, state.free_nodes)):
        return None
    return Answer(
        question=_FASTER,
        verdict=Verdict.NO,
        reason=Reason.ROOM_HERE,
        numbers=(
            ("processors", Quantity(float(needed), "cores")),
            ("free_processors", Quantity(float(free), "cores")),
        ),
    )


def _has_nodes(job: Job, free_nodes: tuple[FreeNodes, ...]) -> bool:
    """Whether nodes that the job may use can hold one task, and have processors for all tasks.

    A job that requests a number of nodes needs an equal share of its processors on each. Nodes that run jobs
    count as without free memory. A constraint other than a conjunction counts as not satisfied.
    """
    if not job.plain_constraint:
        return False
    nodes = job.nodes or 0
    share = -(-job.processors // nodes) if nodes else 1
    memory = job.memory_mb_per_node or (-(-job.memory_mb // nodes) if job.memory_mb and nodes else 0)
    fitting = [
        group
        for group in free_nodes
        if group.processors >= share and group.memory_mb >= memory and _may_use(job, group)
    ]
    if nodes and sum(group.nodes for group in fitting) < nodes:
        return False
    if (
        job.memory_mb
        and not memory
        and sum(group.nodes * group.memory_mb for group in fitting) < job.memory_mb
    ):
        return False
    return sum(group.nodes * group.processors for group in fitting) >= job.processors * job.array_tasks


def _may_use(job: Job, group: FreeNodes) -> bool:
    queue = job.queue
    if queue and queue not in group.partitions and not set(queue.split(",")) & set(group.partitions):
        return False
    return not job.features or set(job.features) <= set(group.features)
