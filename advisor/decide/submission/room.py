"""Question 2, before any forecast: is there room here? Pure.

Where the processors a job asks for are free and nobody waits, it starts at once, and no cloud node boots as
fast. A forecast knows less than that: learned from months in which jobs like this one waited, it sees a wait
on an idle cluster, too. Where somebody waits although processors are free, something else is short, and
whether this job needs it nobody can tell (docs/designs/0004-decision.md has what logs say of both).
"""

from __future__ import annotations

from typing import Final

from advisor.decide.explanation.reasons import Reason
from advisor.model.advice import Answer, Quantity, Question, Verdict
from advisor.model.job import Job
from advisor.model.site import FreeNodes, SiteState

_FASTER: Final = Question.FASTER


def room_here(job: Job, state: SiteState) -> Answer | None:
    """Answer question 2 with "stays" where the job, all tasks of an array, has room here.

    Parameters
    ----------
    job : Job
        The submission.
    state : SiteState
        As it meets it. Without ``free_nodes`` (a replayed log) processors are only counted; with them
        what else the job asks of its nodes is looked at.

    Returns
    -------
    Answer or None
        None where there is no room, or nobody can tell.
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
    """Whether nodes that the job may use have room for one task of it, and processors for all of its tasks.

    With a number of nodes, so many must have an equal share of its processors each. Memory is not promised on
    nodes that run other jobs: what those use is not known. A constraint that is no conjunction is doubt.
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
