"""Read the jobs and nodes of pyslurm (their properties as documented for 22.5) into typed records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from advisor.files.owners import group_name, user_name
from advisor.model.cluster import Node
from advisor.model.job import Job
from advisor.model.job_words import count_array_tasks, feature_words, is_plain
from advisor.model.node_classes import gpu_types
from advisor.model.snapshot import PENDING, QueuedJob
from advisor.slurm.protocol import state_of

_user_name = lru_cache(maxsize=65_536)(user_name)
_group_name = lru_cache(maxsize=65_536)(group_name)


def queued_job(job: Any) -> QueuedJob:
    """The queued job that a job of `pyslurm.Jobs` describes, equal to that of squeue's columns.

    Raises:
        ValueError: It has no partition or no submission time.
    """
    state = state_of(str(job.state))
    partitions = tuple(name for name in (job.partition or "").split(",") if name)
    if not partitions or job.submit_time is None:
        message = f"job {job.id} has no partition or no submission time"
        raise ValueError(message)
    return QueuedJob(
        job=_submitted(job, partitions[0]),
        state=state,
        partitions=partitions,
        array_job_id=int(job.array_id or job.id),
        # a pending job's start time is slurmctld's estimate
        start_time=float(job.start_time) if job.start_time is not None and state != PENDING else None,
        restarts=int(job.requeue_count or 0),
        priority=int(job.priority or 0),
        reason="" if job.state_reason in (None, "None") else job.state_reason,
        nodes=job.allocated_nodes or "",
        admin_comment=(job.admin_comment or "")[:4096],
        memory_mb=_memory(job),
        node_memory_mb=int(job.memory_per_node or 0) if state == PENDING else 0,
        gpus=_gpus(job.gres_per_node) * int(job.num_nodes or 1),
        is_of_array=bool(job.array_id),
    )


def _memory(job: Any) -> int:
    """MiB; pyslurm 22.5 sums memory of processors only."""
    if job.memory_per_cpu is not None:
        return int(job.memory_per_cpu) * int(job.cpus or 1)
    return int(job.memory_per_node or 0) * int(job.num_nodes or 1)


def _gpus(resources: Mapping[str, int] | None) -> int:
    """GPUs among generic resources, such as ``{"gpu:a100": 2}``."""
    return sum(count for name, count in (resources or {}).items() if name.partition(":")[0] == "gpu")


def _submitted(job: Any, partition: str) -> Job:
    """The job as its user has submitted it."""
    constraint = ",".join(_words(job.constraints)) or None
    minutes, nodes = job.time_limit, job.num_nodes
    gres = ",".join(f"gres:{name}:{count}" for name, count in (job.gres_per_node or {}).items())
    return Job(
        job_id=int(job.id),
        submit_time=float(job.submit_time),
        processors=max(1, int(job.cpus or 1)),
        user=_user_name(job.user_id),
        group=_group_name(job.group_id),
        queue=partition,
        requested_time=None if minutes is None else 60.0 * minutes,
        nodes=nodes if nodes is not None and nodes > 1 else None,
        name=job.name,
        account=job.account,
        qos=job.qos,
        comment=job.comment,
        features=feature_words(constraint),
        requeue=job.is_requeueable,
        array_tasks=count_array_tasks(job.array_tasks_waiting or ""),
        array_at_once=job.array_tasks_parallel or None,
        licenses=",".join(_words(job.licenses)) or None,
        reservation=job.reservation,
        dependency=_dependency(job.dependencies),
        gres=gres or None,
        node_list=job.required_nodes,
        interactive=not job.is_batch_job,
        heterogeneous=bool(job.heterogeneous_id),
        plain_constraint=is_plain(constraint),
        whole_nodes=job.resource_sharing == "NO",
    )


def node_of(node: Any) -> Node:
    """A node of `pyslurm.Nodes`, as sinfo says it."""
    states = frozenset(str(node.state).upper().split("+"))
    if 0 < node.allocated_cpus < node.total_cpus:  # as sinfo says it; slurmctld calls it allocated
        states = states - {"ALLOCATED", "IDLE"} | {"MIXED"}
    return Node(
        name=str(node.name),
        states=states,
        processors=int(node.total_cpus),
        memory_mb=int(node.real_memory),
        partitions=tuple(_words(node.partitions)),
        features=tuple(_words(node.available_features)),
        address=node.address,
        reason=node.reason,
        active_features=tuple(_words(node.active_features)),
        weight=int(node.weight or 0),
        gpus=_gpus(node.configured_gres),
        gpu_types=gpu_types(",".join(node.configured_gres or ())),
    )


def _words(said: Iterable[str] | Mapping[str, Any] | None) -> list[str]:
    return [str(word) for word in said or ()]


def _dependency(said: Mapping[str, Any] | None) -> str | None:
    """Dependencies as Slurm writes them, such as ``afterok:12:13``; their order is lost.

    pyslurm 22.5 does not know ``singleton(unfulfilled)``, as slurmctld 22.05 has it: it shows dependencies
    of no kind then.
    """
    if said is None:
        return None
    parts = []
    for kind, jobs in said.items():
        if isinstance(jobs, list) and jobs:
            parts.append(":".join([kind, *map(str, jobs)]))
        elif jobs is True:
            parts.append(kind)
    return ("?" if said.get("satisfy") == "any" else ",").join(parts) or "singleton"
