"""Convert a ``JOB_FINISH`` record of ``lsb.acct`` to a finished job of the history, in Slurm's words."""

from __future__ import annotations

import math
import re
from typing import Final

from advisor.history.sacct import MIN_INELIGIBLE_SECONDS, EndedRun
from advisor.lsf.fields import short_text
from advisor.lsf.job_finish import USUAL_TERMS, JobFinish, SiteTerms, slots_and_host
from advisor.lsf.joining import said_by_user
from advisor.lsf.queued_jobs import full_id
from advisor.lsf.resource_request import ResourceRequest, gpus_of, read_resource_request
from advisor.model.job import Job, JobOutcome, JobState

# bits of the status and of bsub's options (lsbatch.h)
_DONE: Final = 0x40
_EXIT: Final = 0x20
_RERUNNABLE: Final = 0x4000
_INTERACTIVE: Final = 0x4000000

# numbers of IBM's page "Termination reasons displayed by bacct, bhist, and bjobs"
_STATE_OF_REASON: Final = (
    dict.fromkeys((5, 6, 12), JobState.TIMEOUT)  # run limit, deadline, CPU limit
    | dict.fromkeys((16, 20), JobState.OUT_OF_MEMORY)  # memory, swap
    | dict.fromkeys((1, 34), JobState.PREEMPTED)  # preemption, interruption of a cloud host
    | dict.fromkeys((18, 19, 22), JobState.NODE_FAIL)  # RMS, LSF was down; node failure in Slurm's terms
    # run window, load, without clean-up, checkpoint, owner, admin, bkill -b, removed, orphan
    | dict.fromkeys((2, 3, 8, 9, 13, 14, 15, 23, 26, 27), JobState.CANCELLED)
)
_REQUEUED: Final = frozenset({4, 10, 11, 30, 31})
"""Another run follows: chunk member, requeued by owner, by admin, recalled, interruption of a cloud host."""
_MAYBE_CONTINUED: Final = frozenset({JobState.PREEMPTED, JobState.NODE_FAIL})

_ARRAY: Final = re.compile(r"\[[^\[\]]*\](?:%[0-9]+)?$")


def has_ended(record: JobFinish) -> bool:
    """Whether the record has the status done or exit."""
    return bool(record.status & (_DONE | _EXIT))


def run_of(record: JobFinish, terms: SiteTerms = USUAL_TERMS) -> EndedRun | None:
    """The run of a job that a record describes; None for a job that never started.

    ``brequeue`` keeps the submit time, so the runs of a requeued job have id and submission in common.
    """
    submit, start, end = record.submit_time, record.start_time, record.event_time
    if not 0 < submit <= start <= end:
        # killed in the queue, or times in an impossible order
        return None
    is_requeued = bool(record.status & _EXIT) and record.exit_info in _REQUEUED
    outcome = None if is_requeued else _outcome_of(record, terms)
    may_continue = (
        outcome is None
        or outcome.state in _MAYBE_CONTINUED
        or (outcome.state is not JobState.COMPLETED and bool(record.requeue_exit_values))
    )
    return EndedRun(
        outcome=outcome,
        job_id=full_id(record),
        submit_time=float(submit),
        start_time=float(start),
        end_time=float(end),
        may_continue=may_continue,
        partition=short_text(record.queue),
        nodes=_hosts(record),
    )


def _outcome_of(record: JobFinish, terms: SiteTerms) -> JobOutcome:
    used = record.allocated_slots or sum(slots_and_host(host)[0] for host in record.hosts)
    processors = max(1, record.processors or used)
    asked = read_resource_request(
        record.resource_request, processors, terms.memory_unit, per_task=terms.reserves_per_task
    )
    of_queue = terms.limits.get(record.queue) if record.has_no_run_limit else None  # as of a live job
    hosts = len({slots_and_host(host)[1] for host in record.hosts})
    # without the time in which it was suspended; 0 and None: the release does not say
    ran = min(record.running_seconds or math.inf, record.event_time - record.start_time)
    return JobOutcome(
        job=_job_of(record, processors, asked, record.run_limit_seconds or of_queue),
        start_time=float(record.start_time),
        end_time=float(record.start_time + ran),
        state=_state_of(record),
        processors_used=used or max(1, record.processors),
        memory_held_mb=asked.memory_mb or (asked.memory_mb_per_node or 0) * hosts,
        ineligible_seconds=_ineligible_seconds(record),
        restarts=1 if record.requeue_time else 0,  # at least; ingest counts the runs before it
        partition=short_text(record.queue),
        nodes=_hosts(record),
    )


def _job_of(record: JobFinish, processors: int, asked: ResourceRequest, limit: float | None) -> Job:
    chosen = record.resource_request if asked.chooses_hosts else ""  # as of a live job
    return Job(
        job_id=full_id(record),
        submit_time=float(record.submit_time),
        processors=processors,
        user=short_text(record.user) or str(record.user_id),
        group=_group_of(record),
        queue=short_text(record.queue),
        requested_time=limit,
        explicit_time_limit=record.run_limit_seconds is not None,
        nodes=asked.nodes,
        memory_mb=asked.memory_mb,
        memory_mb_per_node=asked.memory_mb_per_node,
        name=short_text(_ARRAY.sub("", record.name) if record.array_index else record.name),
        account=short_text(record.project),
        qos=short_text(record.service_class),
        comment=short_text(said_by_user(record.description)),
        requeue=True if record.options & _RERUNNABLE else None,
        licenses=short_text(asked.licenses),
        gres=short_text(asked.gres or gpus_of(record.effective_resource_request or "")),
        reservation=short_text(record.reservation) or short_text(record.long_reservation),
        dependency=short_text(record.dependency),
        node_list=short_text(",".join(record.asked_hosts) or chosen),
        interactive=bool(record.options & _INTERACTIVE),
        deferred=record.begin_time > record.submit_time,
        array_job_id=record.job_id if record.array_index > 0 else None,
    )


def _ineligible_seconds(record: JobFinish) -> float:
    """Of its wait the time in which it might not start: as LSF says, else to its begin time.

    When a dependency was fulfilled is not in the record: nothing of such a wait is learned from.
    """
    wait, late = record.start_time - record.submit_time, record.ineligible_seconds
    if late is None or late < 0:
        late = wait if record.dependency else record.begin_time - record.submit_time
    return float(min(wait, late)) if late >= MIN_INELIGIBLE_SECONDS else 0.0


def _state_of(record: JobFinish) -> JobState:
    if record.status & _DONE:
        return JobState.COMPLETED
    return _STATE_OF_REASON.get(record.exit_info or 0, JobState.FAILED)


def _group_of(record: JobFinish) -> str | None:
    """The user's group in the fairshare tree, ``/group/user``: the record has no Unix group."""
    path = [part for part in (record.share_account or "").split("/") if part]
    if path and path[-1] == record.user:
        path.pop()
    return short_text("/".join(path))


def _hosts(record: JobFinish) -> str | None:
    names = dict.fromkeys(slots_and_host(host)[1] for host in record.hosts)
    return ",".join(names) or None
