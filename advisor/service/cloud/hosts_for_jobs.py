"""The waiting job for which each host is launched. LSF's resource connector only says how many. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from advisor.model.snapshot import QueuedJob

_NEVER_SPOT: Final = "on_demand"
"""The resource that jobs off spot select. Under LSF, `Job.node_list` has a job's ``select[...]``."""


def jobs_of_hosts(
    hosts: Sequence[str], cores: int, waiting: Iterable[QueuedJob], *, is_never_spot: bool
) -> tuple[dict[str, int], set[int]]:
    """A job's id for each host that has a job, and the ids of all jobs that have room on the hosts.

    Jobs of higher priority go first. A job that fits beside the one before it has no host of its own.

    Args:
        waiting: Jobs that wait in the cloud's queue and have no host yet.
        is_never_spot: Whether the hosts are never spot. A job that selects such hosts gets no other host.
    """
    found, served = dict[str, int](), set[int]()
    left, room = list(hosts), 0
    for queued in sorted(waiting, key=lambda one: (-one.priority, one.job.submit_time)):
        job = queued.job
        if not is_never_spot and _NEVER_SPOT in (job.node_list or ""):
            continue
        for _ in range(job.array_tasks):
            if job.processors <= room:
                room -= job.processors
                served.add(job.job_id)
                continue
            count = math.ceil(job.processors / cores)
            if not left:
                return found, served
            served.add(job.job_id)
            found |= dict.fromkeys(left[:count], job.job_id)
            left, room = left[count:], count * cores - job.processors
    return found, served
