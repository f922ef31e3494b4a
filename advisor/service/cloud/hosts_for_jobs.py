"""The waiting job for which each host is launched. LSF's resource connector only says how many. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from advisor.model.snapshot import QueuedJob

_NEVER_SPOT: Final = "on_demand"
"""The resource that jobs off spot select. Under LSF, `Job.node_list` has a job's ``select[...]``."""


def jobs_of_hosts(
    hosts: Sequence[str],
    size: tuple[int, int],
    waiting: Iterable[QueuedJob],
    without_host: Mapping[int, int],
    *,
    is_never_spot: bool,
) -> tuple[list[tuple[int, Sequence[str]]], dict[int, int]]:
    """The hosts of each job, or of each element of an array, by the job's id.

    Jobs of higher priority go first. A job that fits beside the one before it has no host of its own; one
    that does not fit on such a host has none of them, for LSF asks for others.

    Args:
        size: Cores and memory (MiB) of a host.
        waiting: Jobs that wait in the cloud's queue.
        without_host: How many elements of a job have no host yet; all of a job that is not there.
        is_never_spot: Whether the hosts are never spot. A job that selects such hosts gets no other host.

    Returns:
        Pairs of a job and its hosts, and ``without_host`` of the jobs that have room on the hosts.
    """
    found, after = list[tuple[int, Sequence[str]]](), dict[int, int]()
    cores, memory_mb = size
    left, room, room_mb = list(hosts), 0, 0
    for queued in sorted(waiting, key=lambda one: (-one.priority, one.job.submit_time)):
        job = queued.job
        asked = queued.asked
        is_larger = (
            max(asked.node_processors, job.processors_of_one) > cores or asked.node_memory_mb > memory_mb
        )
        if is_larger or (not is_never_spot and _NEVER_SPOT in (job.node_list or "")):
            continue
        count = job.nodes_of_size(cores, memory_mb)
        shares = count == 1 and not job.whole_nodes
        for others in reversed(range(min(job.array_tasks, without_host.get(job.job_id, job.array_tasks)))):
            if shares and job.processors <= room and queued.memory_mb <= room_mb:
                room, room_mb = room - job.processors, room_mb - queued.memory_mb
            elif left:
                some = left[:count]
                found.append((job.job_id, some))
                left, room = left[len(some) :], 0 if job.whole_nodes else len(some) * cores - job.processors
                room_mb = len(some) * memory_mb - queued.memory_mb
            else:
                return found, after
            after[job.job_id] = others
    return found, after
