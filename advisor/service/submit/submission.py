"""A hook's request becomes a :class:`~advisor.model.job.Job`, and an advised job a `Submission`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from msgspec.structs import replace

from advisor.model.advice import Advice, Capacity, Mode
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.job_words import array_at_once, count_array_tasks, feature_words, is_plain
from advisor.model.machine import Asked
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.service.exchange.protocol import AdviseRequest
from advisor.service.submit.recent import Submission

_ACT: Final = Mode.ACT
_RESERVED: Final = Capacity.RESERVED
_MAX_PROCESSORS: Final = 2**31 - 1
_MAX_MEMORY_MB: Final = 2**63 - 1
"""The largest number that MessagePack and the database hold."""
_DEFAULT_QOS: Final = "normal"
_AS_SAID: Final = ("comment", "licenses", "reservation", "dependency", "burst_buffer", "tmp_disk")
"""Rare fields that a job has as its request has them."""
_said: Final = attrgetter(*_AS_SAID)
_NOTHING_SAID: Final = (None,) * len(_AS_SAID)


def processors_of(request: AdviseRequest) -> int:
    """Processors of the whole job: the largest of what the user's options imply, at least 1."""
    per_task = request.cpus_per_task or 1
    nodes = request.min_nodes or 1
    return min(
        _MAX_PROCESSORS,
        max(
            1,
            request.min_cpus or 0,
            (request.num_tasks or 0) * per_task,
            nodes * (request.ntasks_per_node or 1) * per_task,
        ),
    )


def nodes_of(request: AdviseRequest) -> int | None:
    """Nodes that the user asked for, or that ``--ntasks-per-node`` makes of the tasks; None: any number."""
    nodes, tasks, of_node = request.min_nodes, request.num_tasks, request.ntasks_per_node
    if not (tasks and of_node):
        return nodes
    return max(nodes or 1, -(-tasks // of_node))


def node_processors_of(request: AdviseRequest, processors: int) -> int | None:
    """Processors that one node must have, else slurmctld refuses the job; None: any node will do."""
    per_task = request.cpus_per_task or 1
    tasks = min(request.ntasks_per_node or 1, request.num_tasks or _MAX_PROCESSORS)
    of_fewest = -(-processors // request.max_nodes) if request.max_nodes else 1
    found = max(tasks * per_task, request.min_cpus_per_node or 1, of_fewest)
    return min(found, _MAX_PROCESSORS) if found > 1 else None


def memory_of(request: AdviseRequest, processors: int) -> int | None:
    """Memory of the whole job in MiB; None when the user did not ask, or with ``--mem=0``."""
    if request.memory_per_cpu:
        return min(_MAX_MEMORY_MB, request.memory_per_cpu * processors)
    if request.memory_per_node:
        return min(_MAX_MEMORY_MB, request.memory_per_node * (nodes_of(request) or 1))
    return None


def requested_seconds(request: AdviseRequest) -> float | None:
    """Time limit in seconds; without a limit of the user it is the partition's, which Slurm will apply."""
    minutes = request.time_limit if request.time_limit is not None else request.partition_time_limit
    return None if minutes is None else 60.0 * minutes


def job_of(
    request: AdviseRequest,
    *,
    now: float,
    default_queue: str,
    group_names: Mapping[int, str],
    is_slurm: bool = True,
) -> Job:
    """Build the job a request describes.

    Args:
        is_slurm: Whether Slurm schedules it. slurmctld writes accounts and QOS in lower case, once the hook
            has seen them as they were typed, and gives QOS normal to a job that has none.
        now: Time of submission, seconds since the epoch.
        default_queue: Partition of a job that names none, when the hook does not know it either.
        group_names: Names of group ids; an unknown one is None in the job.
    """
    account, qos = request.account, request.qos
    if is_slurm:
        account, qos = account and account.lower(), (qos or _DEFAULT_QOS).lower()
    # Fifteen keywords: of more CPython makes a dictionary first, which costs seven times as much.
    job = Job(
        job_id=0,
        submit_time=now,
        processors=processors_of(request),
        user=request.user or None,
        group=None if request.gid is None else group_names.get(request.gid),
        queue=request.partition or request.default_partition or default_queue,
        requested_time=requested_seconds(request),
        nodes=nodes_of(request),
        name=request.name,
        account=account,
        qos=qos,
        requeue=request.requeue,
        explicit_partition=request.partition is not None,
        explicit_time_limit=request.time_limit is not None,
        deferred=request.held or (request.begin_time or 0) > now,
    )
    return _with_rest(job, request)


def _with_rest(job: Job, request: AdviseRequest) -> Job:
    """Return the job with the fields that few requests have."""
    rest: dict[str, Any] = {}
    said = _said(request)
    if said != _NOTHING_SAID:
        rest = {name: text for name, text in zip(_AS_SAID, said, strict=True) if text is not None}
    if request.generic_resources is not None:
        rest["gres"] = request.generic_resources
    if request.req_nodes is not None:
        rest["node_list"] = request.req_nodes
    if request.interactive:
        rest["interactive"] = True
    if request.whole_nodes:
        rest["whole_nodes"] = True
    if request.layout:
        rest["layout"] = True
    if request.whole_cores:
        rest["whole_cores"] = True
    if request.prefer:
        rest["prefer"] = feature_words(request.prefer)
    if request.features:
        rest["features"] = feature_words(request.features)
        rest["plain_constraint"] = is_plain(request.features)
    rest |= _sizes_of(job, request)
    return replace(job, **rest) if rest else job


def _sizes_of(job: Job, request: AdviseRequest) -> dict[str, Any]:
    """Its array, its memory, its tasks, and what one node must have, where the user has asked for any."""
    sizes: dict[str, Any] = {}
    if request.cpus_per_task and request.cpus_per_task > 1:
        sizes["task_processors"] = min(request.cpus_per_task, job.processors)
    if request.array:
        sizes["array_tasks"] = count_array_tasks(request.array)
        sizes["array_at_once"] = array_at_once(request.array)
    if request.memory_per_cpu or request.memory_per_node is not None:
        sizes["memory_mb"] = memory_of(request, job.processors)
        if request.memory_per_node is not None:
            sizes["memory_mb_per_node"] = min(_MAX_MEMORY_MB, request.memory_per_node)
    if request.max_nodes and request.max_nodes > (job.nodes or 1):
        sizes["most_nodes"] = min(request.max_nodes, _MAX_PROCESSORS)
    if (on_one := node_processors_of(request, job.processors)) is not None:
        sizes["node_processors"] = on_one
    return sizes


def submission_of(
    job: Job,
    advice: Advice,
    values: Mapping[str, float],
    estimates: Estimates,
    cloud: CloudState,
    settings: Settings,
) -> Submission:
    """The effect of an advised job on the site. In shadow mode the job goes where its user has sent it.

    `values` are the advice's numbers, here and in :func:`reply_to`: taken out of it once.
    """
    tasks, seconds, there = job.array_tasks, job.requested_time or 0.0, cloud.as_there(job)
    promised_to = job.user if "deadline_in" in values else None
    if advice.mode is _ACT and advice.partition is not None:
        return Submission(
            time=advice.time,
            processors=job.processors,
            tasks=tasks,
            requested_seconds=seconds,
            on_premise=False,
            committed_usd=_known(values.get("predicted_cost")),
            worst_usd=_known(values.get("worst_cost", values.get("predicted_cost"))),
            payers=job.payers,
            reserved_nodes=tasks * cloud.nodes_at_most(there) if advice.capacity is _RESERVED else 0,
            node_class=cloud.class_name,
            cloud_processors=cloud.processors_taken_by(there),
            promised_to=promised_to,
        )
    queue, ours = job.queue or "", settings.cluster.on_premise_partitions
    burst_by_hand = queue == settings.cluster.burst_partition
    # a job for any other partition uses neither the on-premise nor the cloud's nodes
    counts = burst_by_hand or queue in ours or any(name in ours for name in queue.split(","))
    return Submission(
        time=advice.time,
        processors=job.processors,
        tasks=tasks if counts else 0,
        at_once=job.array_at_once or 0,
        requested_seconds=seconds,
        expected_seconds=_known(estimates.run.seconds),
        on_premise=not burst_by_hand,
        queue=queue,
        is_small=advice.priority_offset > 0,
        keys=job.priority_keys,
        asked=Asked.by(job),
        cloud_processors=cloud.processors_taken_by(there) if burst_by_hand else 0,
        payers=job.payers,
        promised_to=promised_to,
    )


def _known(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0
