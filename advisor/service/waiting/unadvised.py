"""Jobs in the queue that the hook has not seen: what was submitted, and what the advice changes. Pure.

They are what `sbatch` hands to the hook (``slurm_hooks/advisor_submit.lua``), as far as slurmctld still
shows it. Moves of waiting jobs that were advised (`advisor.service.waiting.moving`) change the same fields.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.model.job import Job
from advisor.model.job_words import feature_words
from advisor.model.snapshot import PENDING, ClusterSnapshot, Partition, QueuedJob, SubmittedJob
from advisor.service.exchange.protocol import AdviseReply

_SOON_SECONDS: Final = 60.0
"""A job that has waited longer without advice is one that gets none, and is a part of the queue."""
_HOW_FULFILLED: Final = re.compile(r"\([a-z]+\)")


def is_unadvised(queued: QueuedJob) -> bool:
    """Whether a waiting job is to be advised: its first run, a job or an array as submitted.

    A part of a heterogeneous job is not, nor a task that Slurm shows apart from its array. A job whose
    AdminComment is the site's own is left alone: its advice could not be written down.
    """
    is_whole = queued.array_job_id == queued.job.job_id and not queued.job.heterogeneous
    return queued.state == PENDING and is_whole and not queued.restarts and not queued.admin_comment


def before_unadvised(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The queue as it was before the jobs were submitted that are still to be advised.

    Each of them then meets the queue that the hook's job meets inside `sbatch`, and is not counted twice.
    """
    jobs = tuple(
        queued
        for queued in snapshot.jobs
        if not is_unadvised(queued) or snapshot.time - queued.job.submit_time > _SOON_SECONDS
    )
    return snapshot if len(jobs) == len(snapshot.jobs) else replace(snapshot, jobs=jobs)


def as_submitted(
    one: SubmittedJob,
    partitions: Mapping[str, Partition],
    *,
    default_memory: tuple[int | None, int | None],
    now: float,
) -> Job:
    """A waiting job as the hook would have described it.

    slurmctld does not say what it has filled in. So what equals a default was not asked for: a default
    partition that a user has named is not told from one that they have not.

    Args:
        default_memory: slurm.conf's, MiB of a node and of a processor.
        now: Epoch seconds.
    """
    queued, job = one.queued, one.queued.job
    home = partitions.get(queued.partitions[0])
    minutes = _default_minutes(home)
    has_default_limit = minutes is not None and job.requested_time == 60.0 * minutes
    asks_memory = not _is_default_memory(job, home, default_memory)
    is_default = len(queued.partitions) == 1 and home is not None and home.is_default
    return structs.replace(
        job,
        memory_mb=job.memory_mb if asks_memory else None,
        memory_mb_per_node=job.memory_mb_per_node if asks_memory else None,
        prefer=feature_words(one.prefer),
        dependency=_HOW_FULFILLED.sub("", job.dependency) if job.dependency else None,
        explicit_partition=not is_default,
        explicit_time_limit=job.requested_time is not None and not has_default_limit,
        deferred=queued.is_held or (one.eligible_time or 0.0) > now,
    )


def _default_minutes(home: Partition | None) -> int | None:
    if home is None:
        return None
    return home.max_minutes if home.default_minutes is None else home.default_minutes


def _is_default_memory(
    job: Job, home: Partition | None, default_memory: tuple[int | None, int | None]
) -> bool:
    for node, processor in (home.default_memory if home else (None, None), default_memory):
        if node is not None or processor is not None:
            of_all = None if processor is None else processor * job.processors
            return job.memory_mb == of_all or (node is not None and job.memory_mb_per_node == node)
    return job.memory_mb_per_node == 0  # each job has all memory of its nodes where there is no default


def obstacle(job: Job, partition: Partition | None) -> str:
    """Why slurmctld would refuse a job in a partition, or never start it there; empty: it would not.

    The checks of the hook's `fits`, but for the nodes that a job excludes and a reboot, which are not known
    here. Slurm itself checks the lists of groups and submit hosts.
    """
    if partition is None or not partition.is_up:
        return "the partition is not up"
    if _is_over_limits(job, partition):
        return "it is over the partition's limits"
    for what, name in (("accounts", job.account), ("qos", job.qos)):
        allowed, denied = partition.allowed.get(what), partition.denied.get(what, frozenset())
        if allowed is not None and (name is None or name.lower() not in allowed):
            return f"the partition's list of {what} does not have it"
        if denied and (name is None or name.lower() in denied):
            return f"the partition denies its {what}"
    return ""


def _is_over_limits(job: Job, partition: Partition) -> bool:
    nodes, most = job.nodes or 1, job.most_nodes or job.nodes
    seconds = job.requested_time  # also that of its own partition, which it keeps
    minutes = math.inf if seconds is None else seconds / 60.0
    per_processor = None if job.memory_mb is None else job.memory_mb / job.processors
    is_by_processor = job.memory_mb_per_node is None
    limits = (
        (minutes, partition.max_minutes),
        (job.processors, partition.total_processors or None),
        (most, partition.max_nodes),
        (nodes, partition.total_nodes),
        (per_processor if is_by_processor else None, partition.max_memory_per_processor_mb),
        (job.memory_mb_per_node, partition.max_memory_per_node_mb),
    )
    is_over = any(asked is not None and limit is not None and asked > limit for asked, limit in limits)
    return is_over or (most is not None and most < partition.min_nodes)


def raised_minutes(
    advised: int | None, asked_seconds: float | None, partition: Partition | None
) -> int | None:
    """The advised longer limit of a moved job, minutes, at most the partition's; None: its own stays."""
    if advised is None or asked_seconds is None:
        return None
    most = partition.max_minutes if partition is not None else None
    minutes = advised if most is None else min(advised, most)
    return minutes if 60.0 * minutes > asked_seconds else None


def changes_of(
    reply: AdviseReply, *, prefer: str, asked_seconds: float | None, partition: Partition | None
) -> dict[str, str] | None:
    """Arguments of ``scontrol update`` that move a job: what the hook would have set inside ``sbatch``.

    None where the user has a preference and the advice requires features: Slurm would use the preference
    instead of them. Otherwise the user's preference stays.

    Args:
        prefer: The user's ``--prefer``, empty for none.
        asked_seconds: The user's own limit; None: it is not to be raised.
    """
    if prefer and reply.features is not None:
        return None
    changes = {"partition": reply.partition or "", "admincomment": reply.admin_comment or ""}
    if reply.features is not None:
        changes["features"] = reply.features
    if reply.prefer is not None and not prefer:
        changes["prefer"] = reply.prefer
    if (minutes := raised_minutes(reply.time_limit, asked_seconds, partition)) is not None:
        changes["timelimit"] = str(minutes)
    return changes


def changes_here(reply: AdviseReply, *, nice: int) -> dict[str, str]:
    """The same for a job that stays: its advice, and its priority where its user has not lowered it."""
    changes = {"admincomment": reply.admin_comment or ""}
    if reply.site_factor is not None:
        changes["sitefactor"] = str(reply.site_factor)
    if reply.nice and not nice:
        changes["nice"] = str(reply.nice)
    return changes


def has_our_comment(queued: QueuedJob) -> bool:
    """Whether a job was advised."""
    return parse_admin_comment(queued.admin_comment) is not None
