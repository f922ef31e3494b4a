"""Read the columns of squeue and sinfo, and what scontrol shows, into typed records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from advisor.model.cluster import Node
from advisor.model.job import Job
from advisor.model.job_words import (
    array_at_once,
    besides_processors,
    count_array_tasks,
    feature_words,
    is_plain,
    mebibytes,
)
from advisor.model.node_classes import NOT_BY_NODE, OF_ALL_NODES, gpu_count, gpu_types
from advisor.model.snapshot import PENDING, Partition, QueuedJob, SubmittedJob
from advisor.slurm import records
from advisor.slurm.protocol import state_of
from advisor.slurm.records import Unread

JOB_COLUMNS: Final = (
    "JobID",  # first: a number
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "State",
    "Reason",
    "NumCPUs",
    "NumNodes",
    "NumTasks",
    "Threads",
    "MinMemory",
    "TimeLimit",
    "SubmitTime",
    "StartTime",
    "Requeue",
    "RestartCnt",
    "PriorityLong",
    "BatchFlag",
    "Partition",
    "UserName",
    "GroupName",
    "Account",
    "QOS",
    "NodeList",
    "ReqNodes",
    "Reservation",
    "Licenses",
    "tres-per-node",
    "tres-alloc",
    "cpus-per-tres",
    "OverSubscribe",
    "Dependency",
    "Feature",
    "admin_comment",
    "Comment",
    "Name",
    "UserID",  # last: a number
)
SUBMITTED_COLUMNS: Final = (
    *JOB_COLUMNS[:-1],
    "tres-per-job",
    "tres-per-task",
    "tres-per-socket",
    "mem-per-tres",
    "MinCpus",
    "MinTmpDisk",
    "cpus-per-task",
    "burstbuffer",
    "MaxNodes",
    "EligibleTime",
    "Nice",
    "Prefer",
    JOB_COLUMNS[-1],
)
"""Columns that are read for a waiting job that is new."""
NODE_COLUMNS: Final = (
    "NodeList",
    "StateComplete",
    "CPUs",
    "Memory",
    "PartitionName",
    "NodeAddr",
    "Features",
    "Reason",
    "features_act",
    "Gres",
    "SocketCoreThread",
    "Weight",  # last: a number
)
_TELLS_EXCLUSIVE: Final = (26, 5)
_STATE: Final = re.compile(r"[A-Z_]{1,40}")
_NODE_STATE: Final = re.compile(r"[A-Z_]{1,40}(\+[A-Z_]{1,40})*")
_GPUS: Final = "gres/gpu"
_PAIR: Final = re.compile(r"([A-Za-z]+)=(\S*)")
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def columns_of(columns: Sequence[str], release: tuple[int, ...]) -> tuple[str, ...]:
    """The columns of squeue for a release of Slurm.

    In ``OverSubscribe`` NO means whole nodes; from 26.05 on it only means processors of its own, and
    ``Exclusive`` tells of whole nodes, a column that earlier releases do not know.
    """
    old, new = ("OverSubscribe", "Exclusive")
    return tuple(new if name == old and release >= _TELLS_EXCLUSIVE else name for name in columns)


def asks_whole_nodes(row: Mapping[str, str]) -> bool:
    """Whether a job asks for whole nodes, or its partition gives it these."""
    if "Exclusive" in row:
        return row["Exclusive"].strip() == "NODE"
    return row["OverSubscribe"].strip() == "NO"


def queued_jobs(rows: Iterable[Mapping[str, str]], report: Unread) -> tuple[QueuedJob, ...]:
    """Jobs of squeue's records; a record that cannot be read is counted in `report` and left out."""
    jobs = []
    for row in rows:
        job = _queued_job(row)
        if job is None:
            report.malformed += 1
        else:
            jobs.append(job)
    return tuple(jobs)


def _queued_job(row: Mapping[str, str]) -> QueuedJob | None:
    job_id, submit = records.whole(row["JobID"]), records.whole(row["SubmitTime"])
    state = state_of(row["State"])
    partitions = tuple(name for name in row["Partition"].strip().split(",") if name)
    if job_id is None or submit is None or not partitions or not _STATE.fullmatch(state):
        return None
    if records.user_id(row["UserID"]) is None:
        return None
    start = records.whole(row["StartTime"])
    job, tres = _job(row, job_id, float(submit), partitions[0]), tres_of(row)
    memory, of_node = mebibytes(tres.get("mem", "")) or 0, 0
    if state == PENDING and _is_of_nodes(row, tres):  # slurmctld adds up those of the fewest nodes
        of_node = mebibytes(row["MinMemory"]) or 0
        memory = of_node * (job.nodes or 1)
    return QueuedJob(
        job=job,
        state=state,
        partitions=partitions,
        array_job_id=records.whole(row["ArrayJobID"]) or job_id,
        # a pending job's StartTime is slurmctld's estimate
        start_time=float(start) if start is not None and state != PENDING else None,
        restarts=records.whole(row["RestartCnt"]) or 0,
        priority=records.whole(row["PriorityLong"]) or 0,
        reason=records.text(row["Reason"], 100) or "",
        nodes=records.text(row["NodeList"], 65536) or "",
        admin_comment=records.text(row["admin_comment"], 4096) or "",
        memory_mb=memory,
        node_memory_mb=of_node,
        gpus=_gpus(row, job.nodes),
        is_of_array=records.text(row["ArrayTaskID"]) is not None,
    )


def tres_of(row: Mapping[str, str]) -> dict[str, str]:
    """What a job has, or asks for while it waits, such as ``cpu=4,mem=400M,node=1,gres/gpu=1``."""
    return dict(part.split("=", 1) for part in row["tres-alloc"].strip().split(",") if "=" in part)


def _is_of_nodes(row: Mapping[str, str], tres: Mapping[str, str]) -> bool:
    """Whether a waiting job asks for memory by nodes; not by processors, nor for all (``--mem=0``)."""
    least = mebibytes(row["MinMemory"]) or 0
    return least > 0 and least * _least_nodes(tres) == mebibytes(tres.get("mem", ""))


def _least_nodes(tres: Mapping[str, str]) -> int:
    return records.leading(tres.get("node", "")) or 1


def _nodes(row: Mapping[str, str]) -> int | None:
    """Nodes that a job has, or that slurmctld expects it to get: without ``--nodes`` no more than its tasks.

    Where a core has two threads, slurmctld 22.05 expects two nodes for ``-n1 -c8``, which gets one.
    """
    nodes, tasks = records.leading(row["NumNodes"]), records.leading(row["NumTasks"])
    if nodes is None or not tasks or state_of(row["State"]) != PENDING:
        return nodes
    return max(_least_nodes(tres_of(row)), min(nodes, tasks))


def _processors(row: Mapping[str, str], nodes: int | None) -> int:
    """Processors that a job has, or that a waiting one will get at least.

    slurmctld shows one of ``--gpus=4 --cpus-per-gpu=8`` and of ``--nodes=2-4`` until the job starts.
    """
    shown = records.leading(row["NumCPUs"]) or 1
    if state_of(row["State"]) != PENDING:
        return max(1, shown)
    return max(1, shown, _least_nodes(tres_of(row)), gpu_count(row["cpus-per-tres"]) * _gpus(row, nodes))


def _gpus(row: Mapping[str, str], nodes: int | None) -> int:
    """GPUs on all nodes; a site whose ``AccountingStorageTRES`` does not name them shows those of a node."""
    counted = records.leading(tres_of(row).get(_GPUS, ""))
    return gpu_count(row["tres-per-node"]) * (nodes or 1) if counted is None else counted


def _job(row: Mapping[str, str], job_id: int, submit: float, partition: str) -> Job:
    nodes = _nodes(row)
    constraint = records.text(row["Feature"], 65536)
    return Job(
        job_id=job_id,
        submit_time=submit,
        processors=_processors(row, nodes),
        user=records.text(row["UserName"]) or f"{records.user_id(row['UserID'])}",
        group=records.text(row["GroupName"]),
        queue=partition,
        requested_time=records.seconds(row["TimeLimit"]),
        nodes=nodes if nodes is not None and nodes > 1 else None,
        name=records.text(row["Name"]),
        account=records.text(row["Account"]),
        qos=records.text(row["QOS"]),
        comment=records.text(row["Comment"], 65536),
        features=feature_words(constraint),
        requeue={"0": False, "1": True}.get(row["Requeue"].strip()),
        array_tasks=count_array_tasks(row["ArrayTaskID"]),
        array_at_once=array_at_once(row["ArrayTaskID"]),
        licenses=records.text(row["Licenses"]),
        reservation=records.text(row["Reservation"]),
        dependency=records.text(row["Dependency"]),
        gres=records.text(row["tres-per-node"]),
        node_list=records.text(row["ReqNodes"], 65536),
        interactive=row["BatchFlag"].strip() == "0",
        heterogeneous=(records.whole(row["HetJobID"]) or 0) > 0,
        plain_constraint=is_plain(constraint),
        whole_nodes=asks_whole_nodes(row),
        whole_cores=row["Threads"].strip() == "1",
    )


def submitted_job(row: Mapping[str, str]) -> SubmittedJob | None:
    """A job of a record with `SUBMITTED_COLUMNS`; None where it cannot be read."""
    queued = _queued_job(row)
    if queued is None:
        return None
    tres = tres_of(row)
    memory, min_memory = mebibytes(tres.get("mem", "")), mebibytes(row["MinMemory"])
    nodes = _least_nodes(tres)  # NumNodes is estimated
    most = records.leading(row["MaxNodes"]) or 0  # as NumNodes where its user gave none
    job = structs.replace(
        queued.job,
        queue=",".join(queued.partitions),
        nodes=nodes if nodes > 1 else None,
        most_nodes=most if most > (records.leading(row["NumNodes"]) or 0) else None,
        memory_mb=(memory or None) if min_memory else None,
        memory_mb_per_node=min_memory if min_memory == 0 or _is_of_nodes(row, tres) else None,
        gres=_resources(row, nodes),
        node_processors=of_node if (of_node := records.leading(row["MinCpus"]) or 0) > 1 else None,
        tmp_disk=mebibytes(row["MinTmpDisk"]) or None,
        task_processors=max(1, records.leading(row["cpus-per-task"]) or 1),
        burst_buffer=records.text(row["burstbuffer"]),
    )
    eligible = records.whole(row["EligibleTime"])
    nice = row["Nice"].strip()
    return SubmittedJob(
        queued=replace(queued, job=job),
        nice=int(nice) if re.fullmatch(r"-?[0-9]{1,10}", nice) else 0,
        prefer=records.text(row["Prefer"]) or "",
        eligible_time=None if eligible is None else float(eligible),
    )


def _resources(row: Mapping[str, str], nodes: int) -> str | None:
    """The generic resources of a new job; see ``generic_resources`` of the hook."""
    of_nodes = _besides(row["tres-per-node"])
    if of_nodes is None and (of_nodes := _besides(row["tres-per-job"])) and nodes > 1:
        of_nodes = f"{OF_ALL_NODES}{of_nodes}"
    if of_nodes and not (records.text(row["cpus-per-tres"]) or records.text(row["mem-per-tres"])):
        return of_nodes
    of_parts = _besides(row["tres-per-task"], row["tres-per-socket"]) or of_nodes
    return f"{NOT_BY_NODE}{of_parts}" if of_parts else None


def _besides(*asked: str) -> str | None:
    return next((found for one in asked if (found := besides_processors(records.text(one)))), None)


def nodes(rows: Iterable[Mapping[str, str]], report: Unread) -> tuple[Node, ...]:
    """Nodes of sinfo's records, one for each node and partition; unreadable ones are counted in `report`."""
    found: dict[str, Node] = {}
    for row in rows:
        node = _node(row)
        if node is None:
            report.malformed += 1
        elif node.name in found:
            known = found[node.name]
            joined = tuple(dict.fromkeys(known.partitions + node.partitions))
            found[node.name] = replace(known, partitions=joined)
        else:
            found[node.name] = node
    return tuple(found.values())


def _node(row: Mapping[str, str]) -> Node | None:
    name, states = row["NodeList"].strip(), row["StateComplete"].strip().upper()
    # remove the marks of the short form ("idle*")
    states = re.sub(r"[*~#!%$@^-]+", "", states)
    processors, memory = records.leading(row["CPUs"]), records.leading(row["Memory"])
    if not _NODE_NAME.fullmatch(name) or not _NODE_STATE.fullmatch(states):
        return None
    if processors is None or memory is None:
        return None
    return Node(
        name=name,
        states=frozenset(states.split("+")),
        processors=processors,
        memory_mb=memory,
        partitions=tuple(part for part in (row["PartitionName"].strip(),) if part),
        features=tuple(word for word in (records.text(row["Features"]) or "").split(",") if word),
        address=records.text(row["NodeAddr"], 255),
        reason=records.text(row["Reason"]) if row["Reason"].strip().lower() != "none" else None,
        active_features=tuple(word for word in (records.text(row["features_act"]) or "").split(",") if word),
        weight=records.whole(row["Weight"]),
        gpus=gpu_count(records.text(row["Gres"]) or ""),
        gpu_types=gpu_types(records.text(row["Gres"]) or ""),
        threads=max(1, processors // cores) if (cores := records.cores(row["SocketCoreThread"])) else 1,
    )


def partitions(text: str) -> tuple[Partition, ...]:
    """Partitions of ``scontrol -o show partitions``; users type none of its values."""
    found = []
    for line in text.splitlines():
        pairs = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if not pairs.get("PartitionName"):
            continue
        found.append(
            Partition(
                name=pairs["PartitionName"],
                is_up=pairs.get("State") == "UP",
                nodes=records.text(pairs.get("Nodes", ""), 65536) or "",
                total_processors=records.leading(pairs.get("TotalCPUs", "")) or 0,
                max_minutes=records.minutes(pairs.get("MaxTime", "")),
                suspend_seconds=records.suspend_seconds(pairs.get("SuspendTime", "")),
                resume_seconds=records.leading(pairs.get("ResumeTimeout", "")),
                is_default=pairs.get("Default") == "YES",
                default_minutes=records.minutes(pairs.get("DefaultTime", "")),
                total_nodes=records.whole(pairs.get("TotalNodes", "")),
                min_nodes=records.whole(pairs.get("MinNodes", "")) or 0,
                max_nodes=records.whole(pairs.get("MaxNodes", "")),
                max_processors_per_node=records.whole(pairs.get("MaxCPUsPerNode", "")),
                max_memory_per_node_mb=records.whole(pairs.get("MaxMemPerNode", "")),
                max_memory_per_processor_mb=records.whole(pairs.get("MaxMemPerCPU", "")),
                default_memory=default_memory(pairs),
                whole_nodes=pairs.get("OverSubscribe") == "EXCLUSIVE" or pairs.get("Exclusive") == "NODE",
                forced=records.whole(pairs.get("OverSubscribe", "").removeprefix("FORCE:")) or 1,
                qos=records.text(pairs.get("QoS", "")) or "",
                tier=records.whole(pairs.get("PriorityTier", "1")) or 0,
                is_preempted=pairs.get("PreemptMode", "OFF") != "OFF",
                allowed=_lists(pairs, "Allow"),
                denied=_lists(pairs, "Deny"),
            )
        )
    return tuple(found)


def pairs_of(line: str) -> dict[str, str]:
    """Names and values of a line of ``scontrol --oneliner``; a value ends at a space."""
    return dict(_PAIR.findall(line))


def default_memory(values: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Memory of a node and of a processor that a partition, or slurm.conf, gives jobs that ask for none."""
    return records.whole(values.get("DefMemPerNode", "")), records.whole(values.get("DefMemPerCPU", ""))


def _lists(pairs: Mapping[str, str], verb: str) -> dict[str, frozenset[str]]:
    said = {"accounts": pairs.get(f"{verb}Accounts", "ALL"), "qos": pairs.get(f"{verb}Qos", "ALL")}
    return {
        what: frozenset(names.lower().split(","))
        for what, names in said.items()
        if names.upper() not in {"ALL", "(NULL)", "N/A", "NONE"}
    }


def config(text: str) -> dict[str, str]:
    """Values of ``scontrol show config`` by name; the first of several, ``NAME[0]``, also as ``NAME``."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        match = re.match(r"\s*([A-Za-z0-9_/]+)(\[[0-9]+\])?\s*=(.*)", line)
        if match:
            for name in (match[1], match[1] + (match[2] or "")):
                values.setdefault(name, match[3].strip())
    return values
