"""Live jobs of LSF as rows of a queue, for each poll. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from advisor.lsf.answers import Queue
from advisor.lsf.fields import short_text
from advisor.lsf.job_finish import JobFinish
from advisor.lsf.joining import said_by_user, token_of
from advisor.lsf.live_job import WAITING, LiveJob
from advisor.lsf.resource_request import MemoryUnit, ResourceRequest, read_resource_request
from advisor.lsf.run_limit import limit_as_given
from advisor.lsf.shares import own_priority, priority_of_queue
from advisor.lsf.site import LsfSite
from advisor.model.job import Job
from advisor.model.snapshot import PENDING, RUNNING, STOPPED, QueuedJob

_STATES: Final = {
    "PEND": PENDING, "PSUSP": PENDING, "RUN": RUNNING, "SSUSP": STOPPED, "USUSP": STOPPED,
    "UNKWN": STOPPED,  # its host does not answer: it holds its slots, and nothing is done about it
}  # fmt: skip
_DEPENDENCY: Final = "Dependency"
_USER_IS_FULL: Final = "UserSlotLimit"
_RESERVATION: Final = "of bsub -U"
_CHANGED: Final = "changed by bmod, in a way that lsb.events of this release does not tell"


def full_id(job: LiveJob | JobFinish) -> int:
    """LSF's 64-bit id, which differs between elements of an array: index * 2**32 + job."""
    return max(0, job.array_index) << 32 | job.job_id


def rows_of(jobs: Iterable[LiveJob]) -> dict[int, tuple[LiveJob, int]]:
    """Jobs by the id under which they are shown, with their number of elements.

    The elements of an array that wait for the first time, all in one queue, are one row, under the array's
    id. Others are rows of their own.
    """
    rows: dict[int, tuple[LiveJob, int]] = {}
    arrays: dict[int, list[LiveJob]] = {}
    for job in jobs:
        if _waits_with_its_array(job):
            arrays.setdefault(job.job_id, []).append(job)
        else:
            rows[full_id(job)] = (job, 1)
    for array_id, elements in arrays.items():
        if len({(job.queue, job.state) for job in elements}) == 1:
            rows[array_id] = (elements[0], len(elements))
        else:
            rows |= {full_id(job): (job, 1) for job in elements}
    return rows


def names_of(jobs: Collection[LiveJob]) -> dict[int, str]:
    """How LSF's commands name the rows of :func:`rows_of` that are less than an array: ``95[2-4,7]``.

    By the array's id alone they would change its elements that run, too.
    """
    live = Counter(job.job_id for job in jobs)
    waiting: dict[int, list[int]] = {}
    for job in jobs:
        if _waits_with_its_array(job):
            waiting.setdefault(job.job_id, []).append(job.array_index)
    return {
        array_id: f"{array_id}[{_folded(indices)}]"
        for array_id, indices in waiting.items()
        if len(indices) < live[array_id]
    }


def _folded(indices: Iterable[int]) -> str:
    """``2-4,7`` of 2, 3, 4 and 7."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in runs)


def _waits_with_its_array(job: LiveJob) -> bool:
    return job.array_index > 0 and job.state in WAITING and not job.restarts


def queued_jobs(
    rows: Mapping[int, tuple[LiveJob, int]],
    *,
    site: LsfSite,
    burst: str,
    comments: Mapping[int, str],
    now: float,
    memory_unit: MemoryUnit,
) -> Iterator[QueuedJob]:
    """The rows of the queue.

    Args:
        rows: See :func:`rows_of`.
        burst: The cloud's queue.
        comments: The advice of each job that has one, as its AdminComment has it under Slurm.
        now: Epoch seconds.
    """
    there = site.queues.get(burst)
    for job_id, (job, tasks) in rows.items():
        hosts, queue = tuple(dict.fromkeys(job.hosts)), site.queues.get(job.queue)
        said = site.reasons.get((job.job_id, job.array_index))
        if job.user in site.full_users and (said == "" or not (said or job.dependency)):
            said = _USER_IS_FULL
        asked, of_queue = (
            read_resource_request(text, job.processors, memory_unit, per_task=site.reserves_per_task)
            for text in (job.resource_request, "" if queue is None else queue.resource_request)
        )
        named = next((one for one in (asked, of_queue) if one.memory_mb or one.memory_mb_per_node), asked)
        of_host = named.memory_mb_per_node or 0
        yield QueuedJob(
            job=_job(job_id, job, tasks, site, asked, there),
            state=_STATES.get(job.state, job.state),
            partitions=(job.queue,),
            array_job_id=job.job_id,
            start_time=None if job.start_time is None else float(job.start_time),
            restarts=job.restarts,
            priority=priority_of_queue(queue) + own_priority(job.priority, site.max_priority),
            reason=_reason(job, queue, now, said),
            nodes=",".join(hosts),
            memory_mb=named.memory_mb or of_host * (len(hosts) or asked.nodes or 1),
            node_memory_mb=0 if hosts else of_host,
            admin_comment=comments.get(job_id, comments.get(job.job_id, "")) or _asked_about(job),
            is_of_array=job.array_index > 0,
        )


def _job(
    job_id: int, job: LiveJob, tasks: int, site: LsfSite, asked: ResourceRequest, there: Queue | None
) -> Job:
    given, own = job.run_limit_seconds, site.queues.get(job.queue)
    if given is None:
        minutes = None if own is None else own.limit_minutes
        limit = None if minutes is None else 60.0 * minutes
    else:
        limit = limit_as_given(given, job.limit_factor, is_absolute=site.has_absolute_limits)
    chosen = job.resource_request if asked.chooses_hosts else None  # as a list of hosts chooses them
    return Job(
        job_id=job_id,
        submit_time=float(job.submit_time),
        processors=len(job.hosts) or job.processors,
        user=short_text(job.user),
        queue=job.queue,
        requested_time=limit,
        nodes=len(set(job.hosts)) or asked.nodes,
        memory_mb=asked.memory_mb,
        memory_mb_per_node=asked.memory_mb_per_node,
        name=short_text(job.name.partition("[")[0] if job.array_index else job.name),
        account=short_text(job.project),
        comment=said_by_user(job.description),
        requeue=job.rerunnable and (not job.rerunnable_by_queue or _reruns(there)),
        array_tasks=tasks,
        array_at_once=job.array_at_once,
        whole_nodes=job.exclusive,
        node_processors=asked.node_processors,
        licenses=short_text(asked.licenses),
        gres=short_text(asked.gres or job.gpus),
        reservation=_RESERVATION if job.reserved else None,
        dependency=None if _is_fulfilled(job, site) else short_text(job.dependency),
        node_list=short_text(",".join(job.asked_hosts)) or short_text(chosen),
        interactive=job.interactive,
        deferred=job.deferred,
    )


def _reruns(queue: Queue | None) -> bool:
    return queue is not None and queue.is_rerunnable


def _asked_about(job: LiveJob) -> str:
    """Why a job is not touched: an esub has asked about it, or an unknown change was made."""
    if job.is_changed:
        return _CHANGED
    return job.description if token_of(job.description) else ""


def _is_fulfilled(job: LiveJob, site: LsfSite) -> bool:
    """Whether LSF says that a job with a dependency waits for something else; lsb.events does not."""
    return not site.reasons.get((job.job_id, job.array_index), _DEPENDENCY).startswith(_DEPENDENCY)


def _reason(job: LiveJob, queue: Queue | None, now: float, said: str | None) -> str:
    """Why a job waits, in Slurm's words; `said` is what LSF says; None: nothing."""
    if job.state == "PSUSP":
        return "JobHeldUser"
    if job.state != "PEND":
        return ""
    if job.begin_time > now:
        return "BeginTime"
    if said or (said is None and job.dependency):
        return said or _DEPENDENCY
    return "Priority" if queue is None or queue.starts else "PartitionInactive"
