"""Read the columns of squeue and sinfo, and what scontrol shows, into typed records."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ClusterShell.RangeSet import RangeSet, RangeSetException

from advisor.model.cluster import Node
from advisor.model.job import Job
from advisor.slurm import records
from advisor.slurm.protocol import PENDING, Partition, QueuedJob
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
    "Dependency",
    "Feature",
    "admin_comment",
    "Comment",
    "Name",
    "UserID",  # last: a number
)
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
    "Weight",  # last: a number
)
_ALTERNATIVES: Final = re.compile(r"[^\w.&-]", re.ASCII)  # a constraint of words joined by & has none
_MAX_TASKS: Final = 4_000_001  # Slurm's own limit of MaxArraySize
_STATE: Final = re.compile(r"[A-Z_]{1,40}")
_NODE_STATE: Final = re.compile(r"[A-Z_]{1,40}(\+[A-Z_]{1,40})*")
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def queued_jobs(rows: Iterable[Mapping[str, str]], report: Unread) -> tuple[QueuedJob, ...]:
    """Jobs of squeue's records; a record that cannot be read is counted in `report` and left out (F28)."""
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
    state = row["State"].strip()
    partitions = tuple(name for name in row["Partition"].strip().split(",") if name)
    if job_id is None or submit is None or not partitions or not _STATE.fullmatch(state):
        return None
    if records.whole(row["UserID"]) is None:
        return None
    start = records.whole(row["StartTime"])
    return QueuedJob(
        job=_job(row, job_id, float(submit), partitions[0]),
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
    )


def _job(row: Mapping[str, str], job_id: int, submit: float, partition: str) -> Job:
    processors = max(1, records.leading(row["NumCPUs"]) or 1)
    nodes = records.leading(row["NumNodes"])
    constraint = records.text(row["Feature"]) or ""
    return Job(
        job_id=job_id,
        submit_time=submit,
        processors=processors,
        user=records.text(row["UserName"]) or records.text(row["UserID"]),
        group=records.text(row["GroupName"]),
        queue=partition,
        requested_time=records.seconds(row["TimeLimit"]),
        nodes=nodes if nodes is not None and nodes > 1 else None,
        name=records.text(row["Name"]),
        account=records.text(row["Account"]),
        qos=records.text(row["QOS"]),
        comment=records.text(row["Comment"]),
        features=tuple(word for word in re.split(r"[&|,\[\]()]", constraint) if word),
        requeue={"0": False, "1": True}.get(row["Requeue"].strip()),
        array_tasks=array_tasks(row["ArrayTaskID"]),
        licenses=records.text(row["Licenses"]),
        reservation=records.text(row["Reservation"]),
        dependency=records.text(row["Dependency"]),
        gres=records.text(row["tres-per-node"]),
        node_list=records.text(row["ReqNodes"], 65536),
        interactive=row["BatchFlag"].strip() == "0",
        heterogeneous=(records.whole(row["HetJobID"]) or 0) > 0,
        plain_constraint=not _ALTERNATIVES.search(constraint),
    )


def array_tasks(expression: str) -> int:
    """Number of tasks of an index expression such as ``3-19%3``, ``1,5-9:2`` or ``7``; 1 for a plain job."""
    indices = expression.strip().partition("%")[0]
    if not re.fullmatch(r"[0-9,:-]{1,65536}", indices):
        return 1
    if (
        sum(int(end) - int(begin) for begin, end in re.findall(r"(\d{1,12})-(\d{1,12})", indices))
        > _MAX_TASKS
    ):
        return 1
    try:
        # Slurm writes steps as 1-9:2, clustershell as 1-9/2
        return max(1, len(RangeSet(indices.replace(":", "/"))))
    except (RangeSetException, ValueError):
        return 1


def nodes(rows: Iterable[Mapping[str, str]], report: Unread) -> tuple[Node, ...]:
    """Nodes of sinfo's records, of which there is one for each node and partition."""
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
                max_minutes=_minutes(pairs.get("MaxTime", "")),
                suspend_seconds=suspend_seconds(pairs.get("SuspendTime", "")),
            )
        )
    return tuple(found)


def suspend_seconds(text: str) -> float | None:
    """Seconds of a ``SuspendTime`` such as ``60``, ``60 sec`` or ``INFINITE``; None for ``NONE``."""
    word = text.strip().partition(" ")[0].upper()
    if word in {"INFINITE", "-1"}:
        return math.inf
    return float(word) if word.isdigit() else None


def _minutes(text: str) -> int | None:
    limit = records.seconds(text)
    return None if limit is None else int(limit // 60)


def config(text: str) -> dict[str, str]:
    """Values of ``scontrol show config`` by name; of several lines with one name, the first."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, found, value = line.partition("=")
        if found and re.fullmatch(r"[A-Za-z0-9_/]+", name.strip()):
            values.setdefault(name.strip(), value.strip())
    return values


def version(text: str) -> tuple[int, ...]:
    """Release numbers in a text such as ``slurm-wlm 22.05.8``; empty when there are none."""
    match = re.search(r"\b(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups() if part) if match else ()
