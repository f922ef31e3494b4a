"""When a job would start in the cloud, and how long it would run there.

A moved job joins the queue of the burst partition. While a node of its kind is free (powered-down nodes are;
the boot time is counted elsewhere) the job does not wait; else it waits for the first nodes to become free
after the jobs that already wait. `advisor control` computes these times at each poll
(`advisor.service.observation.cloud_rooms`); here they are looked up.
"""

from __future__ import annotations

import math
from typing import Final

from advisor.model.advice import TimeLimit
from advisor.model.job import Job, family
from advisor.model.settings import PlacementSettings
from advisor.model.site import CloudState, PerformanceRatios, Ratio, Room

ANY: Final = ""
"""Any kind of node."""
_MINUTE: Final = 60.0
_ROUNDING: Final = 1e-6


def needs_boot(kind: str, job: Job, wait_seconds: float, cloud: CloudState) -> bool:
    """Whether a job with a given wait for nodes of a kind (:func:`cloud_wait`) starts on nodes that boot.

    Slurm prefers nodes that are up, and a node that has just become free is up. Where nothing is known of the
    queue, nodes boot.
    """
    if wait_seconds > 0.0:
        return False
    rooms = cloud.rooms.get(kind) or cloud.rooms.get(ANY)
    if not rooms:
        return True
    room, needed = _needed(rooms, job, cloud)
    return needed > room.up


def _needed(rooms: tuple[Room, ...], job: Job, cloud: CloudState) -> tuple[Room, int]:
    """The places of a job's size, and how many of them it and those before it need."""
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
    return room, needed


def cloud_wait(kind: str, job: Job, cloud_run_seconds: float, cloud: CloudState, now: float) -> float:
    """Time the job would wait in the cloud for nodes of one kind, without the boot time.

    Args:
        kind: A key of ``cloud.rooms``; a missing kind counts as `ANY`.
        job: The job; for an array the wait of its median task is returned.
        cloud_run_seconds: Predicted run time there; more tasks than nodes run in turns of this length.
        cloud: Without rooms the queue is unknown and counts as empty.
        now: Seconds, on the clock of the rooms.

    Returns:
        Seconds; 0 where there is room now, infinite where no usable node can hold the job.
    """
    rooms = cloud.rooms.get(kind) or cloud.rooms.get(ANY)
    if not rooms:
        return 0.0
    room, needed = _needed(rooms, job, cloud)
    if needed <= room.free:
        return 0.0
    return _wait(room, cloud.nodes_at_most(job), needed, cloud_run_seconds, now)


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


def ratio_of(job: Job, ratios: PerformanceRatios | None) -> Ratio | None:
    """The learned performance ratio of a job; None: nothing was learned, and that of the settings holds."""
    if ratios is None:
        return None
    return ratios.of(job.processors, job.queue, family(job.name) if ratios.applications else None)


def slowdown_of(job: Job, ratio: Ratio | None, settings: PlacementSettings) -> float:
    """s(c): how many times longer a job runs in the cloud, learned (:func:`ratio_of`) or by settings."""
    return settings.performance_ratio(job.processors) if ratio is None else ratio.factor


def stretched(job: Job, settings: PlacementSettings, ratio: Ratio | None = None) -> TimeLimit | None:
    """The limit of a moved job; None keeps the user's, or the partition's where the user set none.

    In the cloud a job runs s(c) = o*c + i times as long (Cunha et al. 2017, section V-C). With the user's
    limit, which is meant for on-premise processors, it would be killed shortly before its end.

    The limit is in whole minutes, rounded up, as Slurm counts, and never below the user's. A learned
    performance ratio counts with one standard deviation more.
    """
    asked = job.requested_time
    if (
        not settings.stretch_time_limit
        or not job.explicit_time_limit
        or not asked
        or not math.isfinite(asked)
    ):
        return None
    slower = settings.performance_ratio(job.processors)
    if ratio is not None:
        slower = ratio.factor * (1.0 + ratio.deviation)
    factor = min(slower, settings.max_time_limit_factor)
    minutes = math.ceil(asked * factor / _MINUTE - _ROUNDING)
    given = min(minutes * _MINUTE, settings.max_time_limit_seconds)
    return TimeLimit(asked_seconds=asked, given_seconds=given) if given > asked else None
