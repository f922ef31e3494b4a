"""Slurm and EC2 as a test wants them, and what was asked of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.ec2.errors import Failure
from advisor.ec2.fleet import Launched, LaunchReport, Refuse
from advisor.ec2.instances import Instance
from advisor.ec2.pools import Pool, Rounds
from advisor.model.advice import Capacity
from advisor.model.cluster import Node
from advisor.model.errors import AdvisorError
from advisor.model.job import Job
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.running.clock import Clock
from advisor.testing.memory_slurm import MemorySlurm

POOL = Pool(option=Capacity.SPOT, instance_type="c5.xlarge", subnet_id=None)


@dataclass
class Hands:
    """Clocks that a test sets."""

    wall: float = 1_800_000_000.0
    monotonic: float = 100.0

    @property
    def clock(self) -> Clock:
        return Clock(wall=lambda: self.wall, monotonic=lambda: self.monotonic)

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def states_told(slurm: MemorySlurm) -> dict[str, str]:
    """The last state that each node was told to go to."""
    return {
        name: changes["state"]
        for verb, names, changes in slurm.told
        if verb == "node" and "state" in changes
        for name in names
    }


@dataclass
class FakeFleet:
    """An EC2 that does what a test says."""

    refusals: dict[str, Failure] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    listed: list[Instance] = field(default_factory=list)
    error: AdvisorError | None = None
    asked: list[tuple[str, Any]] = field(default_factory=list)
    unlisted: frozenset[str] = frozenset()
    jobs_of_several: list[tuple[str, ...]] = field(default_factory=list)
    ends: dict[str, float] = field(default_factory=dict)
    taken_back: set[str] = field(default_factory=set)

    def resume(
        self,
        nodes: Sequence[str],
        *,
        capacity_of: Mapping[str, Capacity] | None = None,
        refuse: Refuse | None = None,
        jobs: Iterable[Sequence[str]] = (),
        pools_of: Mapping[str, Rounds] | None = None,
        ends: Mapping[str, float] | None = None,
    ) -> LaunchReport:
        report = LaunchReport(taken_back=self.taken_back)
        self.pools_of = dict(pools_of or {})
        self.ends = dict(ends or {})
        self.jobs_of_several = [tuple(job) for job in jobs]
        report.failed.update(refuse(nodes, self.listed) if refuse is not None else {})
        nodes = [node for node in nodes if node not in report.failed]
        self.asked.append(("resume", (tuple(nodes), dict(capacity_of or {}))))
        for node in nodes:
            if node in self.refusals:
                report.failed[node] = self.refusals[node]
            else:
                address = self.addresses.get(node, "10.0.0.9")
                report.launched.append(
                    Launched(node=node, instance_id=f"i-{node}", private_ip=address, pool=POOL)
                )
        return report

    def mark_requested(self, nodes: Iterable[str]) -> None:
        self.asked.append(("asked_for", tuple(nodes)))

    def suspend(self, nodes: Sequence[str]) -> list[str]:
        self.asked.append(("suspend", tuple(nodes)))
        if self.error is not None:
            raise self.error
        return [f"i-{node}" for node in nodes]

    def terminate_orphans(self, orphans: Sequence[Instance], _looked: float) -> list[str]:
        self.asked.append(("terminate", tuple(item.instance_id for item in orphans)))
        return [item.instance_id for item in orphans]

    def recover(self, wanted: Collection[str]) -> list[Launched]:
        self.asked.append(("recover", tuple(sorted(wanted))))
        return []

    def tell_refused(self) -> None:
        pass

    def tag_unnamed(self) -> int:
        return 0

    def instances(self) -> list[Instance]:
        if self.error is not None:
            raise self.error
        return self.listed

    def in_blocks(self) -> dict[str, set[str]]:
        return {}

    def unlisted_nodes(self, _listed: Sequence[Instance]) -> frozenset[str]:
        return self.unlisted

    def of(self, verb: str) -> list[Any]:
        return [what for said, what in self.asked if said == verb]


def make_instance(
    node: str | None, *, state: str = "running", instance_id: str = "", **changes: Any
) -> Instance:
    values: dict[str, Any] = {
        "instance_id": instance_id or f"i-{node}",
        "state": state,
        "state_reason": "",
        "node": node,
        "has_node_tag": True,
        "option": Capacity.SPOT,
        "instance_type": "c5.xlarge",
        "zone": "us-east-1a",
        "subnet_id": None,
        "private_ip": "10.0.0.9",
        "launch_index": 0,
        "launch_time": 0.0,
    }
    return Instance(**(values | changes))


def make_node(name: str, *states: str, **changes: Any) -> Node:
    cloud = name.startswith("burst")
    values: dict[str, Any] = {
        "name": name,
        "states": frozenset(states or ("IDLE",)) | ({"CLOUD"} if cloud else frozenset()),
        "processors": 4,
        "memory_mb": 4000,
        "partitions": ("burst",) if cloud else ("onprem",),
        "features": ("cloud",) if cloud else ("onprem",),
        "address": name,
    }
    return Node(**(values | changes))


def make_queued(job_id: int, state: str = "PENDING", **changes: Any) -> QueuedJob:
    of_queued = {"nodes", "array_job_id"}  # fields that a job has as well
    of_job = set(Job.__struct_fields__) - of_queued
    job_changes = {name: changes.pop(name) for name in list(changes) if name in of_job}
    job = {"job_id": job_id, "submit_time": 1_799_999_000.0, "processors": 2, "queue": "onprem"} | job_changes
    values: dict[str, Any] = {
        "job": Job(**job),
        "state": state,
        "partitions": (str(job["queue"]),),
        "array_job_id": job_id,
    }
    return QueuedJob(**(values | changes))


def make_look(time: float, nodes: Sequence[Node] = (), jobs: Sequence[QueuedJob] = ()) -> ClusterSnapshot:
    return ClusterSnapshot(time=time, jobs=tuple(jobs), nodes=tuple(nodes))
