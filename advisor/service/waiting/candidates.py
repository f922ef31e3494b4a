"""Which waiting jobs are asked again, and what is known of their users' wishes. Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import RecordedAdvice, parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.slurm.protocol import PENDING, QueuedJob

_WAITS_FOR_ROOM: Final = frozenset({"Priority", "Resources"})
"""Slurm's reasons of a job that only waits for processors. With any other (held, a limit of its QOS, a time,
a reservation) it would not start elsewhere either, or somebody wants it so."""


def may_be_asked(queued: QueuedJob, settings: Settings) -> RecordedAdvice | None:
    """The advice a job waits under here, if it may be asked again; None for all others.

    Asked is a plain job in its first run that only waits for processors, in a partition of ours, and that the
    hook has seen: of any other nobody knows what its user said. Arrays are not asked: Slurm would change the
    tasks that run as well. A placeholder is another job's.
    """
    job = queued.job
    recorded = parse_admin_comment(queued.admin_comment)
    is_plain = queued.array_job_id == job.job_id and job.array_tasks == 1 and job.placeholder_for is None
    if recorded is None or not is_plain or queued.restarts:
        return None
    if queued.state != PENDING or queued.reason not in _WAITS_FOR_ROOM:
        return None
    if not set(queued.partitions).issubset(settings.cluster.on_premise_partitions):
        return None
    return recorded if recorded.reason != Reason.EXPLICIT_BURST else None


def as_asked(queued: QueuedJob, submitted: Job) -> Job | None:
    """A waiting job as it is now, with what only the hook saw of its submission.

    Parameters
    ----------
    queued : QueuedJob
        As squeue shows it: its user may have changed it since.
    submitted : Job
        As the hook saw it (the ledger).

    Returns
    -------
    Job or None
        None where it waits in other partitions than it was submitted to: somebody has named them.
    """
    now = queued.job
    if (submitted.queue or "").split(",") != list(queued.partitions):
        return None
    return replace(
        now,
        queue=submitted.queue,
        group=submitted.group,
        memory_mb=submitted.memory_mb,
        memory_mb_per_node=submitted.memory_mb_per_node,
        nodes=submitted.nodes,
        requeue=submitted.requeue if now.requeue is None else now.requeue,
        gres=now.gres or submitted.gres,
        burst_buffer=submitted.burst_buffer,
        interactive=now.interactive or submitted.interactive,
        explicit_partition=submitted.explicit_partition,
        explicit_time_limit=submitted.explicit_time_limit or now.requested_time != submitted.requested_time,
        heterogeneous=now.heterogeneous or submitted.heterogeneous,
        deferred=False,  # that time has come: it waits for processors
    )


def user_words(job: Job) -> str:
    """What a user may change of a waiting job (``scontrol update``) that an advice rests on, as one text."""
    words = (
        job.name,
        job.account,
        job.qos,
        job.comment,
        job.features,
        job.plain_constraint,
        job.requested_time,
        job.requeue,
        job.licenses,
        job.reservation,
        job.dependency,
        job.gres,
        job.node_list,
    )
    return msgspec.json.encode(words).decode()
