"""The waiting jobs about which the price or `ask again` loop may ask, and their users' options. Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import RecordedAdvice, parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.model.job import Job
from advisor.model.node_classes import NOT_BY_NODE
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING, QueuedJob
from advisor.service.observation.advice_of_jobs import moved_by_us

_WAITS_FOR_ROOM: Final = ("Priority", "Resources", "ReqNodeNotAvail", "Nodes required for job")
"""Beginnings of Slurm's reasons of a job that waits only for nodes; the last two: for those that are drained,
or reserved for maintenance. With another reason (held, a limit of its QOS, a begin time, its own reservation)
it would not start elsewhere either, or is meant to wait."""


def may_be_asked(queued: QueuedJob, settings: Settings) -> RecordedAdvice | None:
    """The former advice of a job about which advice may be asked again; None for all others.

    It is a plain job in its first run that waits only for processors, in an on-premise partition, and that
    the hook has seen: what the users of other jobs said is unknown. Arrays are left out, as Slurm would
    change running tasks as well, and so are placeholders, and jobs that were moved and brought back.
    """
    job = queued.job
    recorded = parse_admin_comment(queued.admin_comment)
    is_plain = not queued.is_array_or_task and job.placeholder_for is None
    if recorded is None or not is_plain or queued.restarts or moved_by_us(queued) is not None:
        return None
    if queued.state != PENDING or not queued.reason.startswith(_WAITS_FOR_ROOM):
        return None
    if not set(queued.partitions).issubset(settings.cluster.on_premise_partitions):
        return None
    return recorded if recorded.reason != Reason.EXPLICIT_BURST else None


def as_asked(queued: QueuedJob, submitted: Job) -> Job | None:
    """A waiting job as it is now, with the fields of its submission that only the hook has seen.

    ``queued`` is squeue's job, which its user may have changed since; ``submitted`` is the ledger's. None
    where the job waits in other partitions than it was submitted to, as a user or admin has chosen them, or
    is the last task of an array, which looks like a plain job.
    """
    now, of_node, of_all = queued.job, submitted.memory_mb_per_node, submitted.memory_mb
    if of_all and queued.node_memory_mb:  # one that asked for none has what the burst partition gives
        of_node, of_all = queued.node_memory_mb, queued.memory_mb
    if submitted.array_tasks > 1 or (submitted.queue or "").split(",") != list(queued.partitions):
        return None
    return replace(
        now,
        queue=submitted.queue,
        group=submitted.group,
        memory_mb=of_all,
        memory_mb_per_node=of_node,
        node_processors=submitted.node_processors,
        tmp_disk=submitted.tmp_disk,
        layout=submitted.layout,
        whole_cores=submitted.whole_cores,
        prefer=submitted.prefer,
        task_processors=submitted.task_processors,
        nodes=submitted.nodes,
        most_nodes=submitted.most_nodes,
        requeue=submitted.requeue if now.requeue is None else now.requeue,
        gres=submitted.gres if (submitted.gres or "").startswith(NOT_BY_NODE) else now.gres or submitted.gres,
        burst_buffer=submitted.burst_buffer,
        interactive=now.interactive or submitted.interactive,
        explicit_partition=submitted.explicit_partition,
        explicit_time_limit=submitted.explicit_time_limit or now.requested_time != submitted.requested_time,
        heterogeneous=now.heterogeneous or submitted.heterogeneous,
        deferred=False,  # its begin time has passed: it waits for processors
    )


def user_words(queued: QueuedJob) -> str:
    """What the user of a waiting job may change and what affects its advice, as JSON."""
    job = queued.job
    words = (
        job.processors,
        job.nodes,
        queued.memory_mb,
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
