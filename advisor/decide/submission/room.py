"""When the cloud has room for a job.

A moved job joins the queue of the burst partition. While a node of its kind is free (powered-down nodes are;
the boot time is counted elsewhere) the job does not wait; else it waits for the first nodes to become free
after the jobs that already wait. `advisor control` computes these times at each poll
(`advisor.service.observation.cloud_rooms`); here they are looked up.
"""

from __future__ import annotations

import math
from typing import Final

from advisor.model.job import Job
from advisor.model.site import CloudState, Room

ANY: Final = ""
"""Any kind of node."""


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
