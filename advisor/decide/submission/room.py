"""Is there room: on-premise at once, in the cloud when?

On-premise (question 2, before any forecast): where the requested processors are free and no job waits, the
job starts at once, faster than any cloud node boots. A forecast, learned from months with queues, would
predict a wait on an idle cluster, too. Where jobs wait although processors are free, another resource is
short, and this job may need it (docs/designs/0004-decision.md).

In the cloud a moved job joins the queue of the burst partition. While a node of its kind is free
(powered-down nodes are; the boot time is counted elsewhere) the job does not wait; else it waits for the
first nodes to become free after the jobs that already wait. `advisor control` computes these times at each
poll (`advisor.service.observation.cloud_rooms`); here they are looked up.
"""

from __future__ import annotations

import math
from typing import Final

from advisor.decide.explanation.reasons import Reason
from advisor.model.advice import Answer, Quantity, Question, Verdict
from advisor.model.job import Job
from advisor.model.site import CloudState, FreeNodes, Room, SiteState

_FASTER: Final = Question.FASTER
ANY: Final = ""
"""Any kind of node."""


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


def cloud_wait(kind: str, job: Job, cloud_run_seconds: float, cloud: CloudState, now: float) -> float:
    """Time the job would wait in the cloud for nodes of one kind, without the boot time.

    Args:
        kind: A key of ``cloud.rooms``; a missing kind counts as `ANY`.
        job: For an array the wait of its median task is returned.
        cloud_run_seconds: Predicted run time there; more tasks than nodes run in turns of this length.
        cloud: Without rooms the queue is unknown and counts as empty.
        now: Seconds, on the clock of the rooms.

    Returns:
        Seconds; 0 where there is room now, infinite where no usable node can hold the job.
    """
    rooms = cloud.rooms.get(kind) or cloud.rooms.get(ANY)
    if not rooms:
        return 0.0
    nodes = cloud.nodes_at_most(job)
    room = rooms[-1]
    if nodes == 1:
        for one in rooms:
            if one.processors >= job.processors:
                room = one
                break
    needed = nodes * ((job.array_tasks + 1) // 2)
    if cloud.taken_processors:
        needed += -(-cloud.taken_processors // room.processors)
    return 0.0 if needed <= room.free else _wait(room, nodes, needed, cloud_run_seconds, now)


def _wait(room: Room, nodes: int, needed: int, cloud_run_seconds: float, now: float) -> float:
    """Seconds until the `needed`-th place is free: after running jobs end, or in turns on the free places."""
    if room.total < nodes:
        return math.inf
    run = cloud_run_seconds if cloud_run_seconds > 0.0 else math.inf
    # in turns on the free places
    again = run * -(-(needed - room.free) // room.free) if room.free >= nodes else math.inf
    turns, place = divmod(needed - 1, room.total)
    # `room.later` holds the first places only, so this is a lower bound where there are very many
    freed = 0.0
    if place >= room.free:
        if not room.later:
            return again
        freed = max(0.0, room.later[min(place - room.free, len(room.later) - 1)] - now)
    return min(again, freed + (turns * run if turns else 0.0))
