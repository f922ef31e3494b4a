"""The cloud's own queue: how long a moved job would wait there for nodes that are taken now. Pure.

A job that is moved to the cloud joins the burst partition's queue. While a node of its kind is free (powered
down counts: the boot time is reckoned with elsewhere) it waits for nothing; else for the first ones to come
free, behind the jobs that wait there already. When that is expected `advisor control` works out at each look
(`advisor.service.observation.cloud_rooms`); here it is only looked up, inside ``sbatch``.
"""

from __future__ import annotations

import math
from typing import Final

from advisor.model.job import Job
from advisor.model.site import CloudState, Room

ANY: Final = ""
"""Kind of node: whichever."""


def cloud_wait(kind: str, job: Job, cloud_run_seconds: float, cloud: CloudState, now: float) -> float:
    """How long the job would wait in the cloud for nodes of one kind, boot not counted.

    Parameters
    ----------
    kind : str
        A key of ``cloud.rooms``; one that is not told apart there is like any.
    job : Job
        Of an array the middle task: half of them start sooner.
    cloud_run_seconds : float
        Predicted run time there: where more start than there are nodes, they do so in turns of that length.
    cloud : CloudState
        With its rooms; without any nothing is known of the queue, and it counts as empty.
    now : float
        Seconds, on the clock of the rooms.

    Returns
    -------
    float
        Seconds, 0 where it would find room at once; infinite where no usable node could take it.
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
    """Until the `needed`-th place comes free; never later than by one of the two ways it may."""
    if room.total < nodes:
        return math.inf
    run = cloud_run_seconds if cloud_run_seconds > 0.0 else math.inf
    # the free places again, once those who take them before it have ended
    again = run * -(-(needed - room.free) // room.free) if room.free >= nodes else math.inf
    turns, place = divmod(needed - 1, room.total)
    # where there are very many places only the first are told: it is then that long at least
    freed = 0.0
    if place >= room.free:
        if not room.later:
            return again
        freed = max(0.0, room.later[min(place - room.free, len(room.later) - 1)] - now)
    return min(again, freed + (turns * run if turns else 0.0))
