"""slurmctld in memory: a `MemoryCluster` that is asked and told like `advisor.slurm.protocol.SlurmBackend`.

It refuses fields, states and changes that Slurm would refuse, so that a misspelt one fails a test.
`tests/slurm/test_contract.py` runs the same cases against it and against a real slurmctld.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar, Unpack

from advisor.model.cluster import Node, NodePower
from advisor.model.errors import RetryLater
from advisor.model.node_sets import fold
from advisor.model.scheduler import NodeChange
from advisor.model.snapshot import PENDING, ClusterSnapshot, Partition, QueuedJob, Reservation, SubmittedJob
from advisor.slurm.protocol import AccountingExport
from advisor.slurm.running_jobs import JobEnd, NodeConstraints
from advisor.testing.memory_cluster import MemoryCluster
from advisor.testing.memory_slurm_records import (
    BURST,
    ENDED,
    ON_PREMISE,
    MemoryJob,
    MemoryNode,
    SlurmTimes,
    as_node,
    as_queued,
)

__all__ = ["BURST", "ENDED", "ON_PREMISE", "MemoryJob", "MemoryNode", "MemorySlurm", "SlurmTimes"]

_T = TypeVar("_T")
_folded = lru_cache(maxsize=8)(fold)


@dataclass
class MemorySlurm(MemoryCluster):
    """Takes the place of `SlurmBackend` and of `advisor.slurm.running_jobs.RunningJobs` before the loops.

    Attributes:
        observe: Called with each call as ``(name, stage)``, stage ``before`` or ``after``; it may raise.
        powered_down: Called with each node that is forced down, before it is; it may raise.
        told: Each change that was carried out: ``node``, ``job``, ``requeue``, ``release`` or ``warn``; names
            or ids; what was set.
    """

    observe: Callable[[str, str], None] = lambda _name, _stage: None
    powered_down: Callable[[MemoryNode], None] = lambda _node: None
    told: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._faults: deque[tuple[str, str]] = deque()

    def fail(self, how: str, times: int = 1, *, call: str = "") -> None:
        """Let the next calls, or those of one name, fail.

        ``never-arrives``, or ``answer-lost``: the call is carried out, and its answer is lost.
        """
        self._faults.extend([(how, call)] * times)

    def heal(self) -> None:
        """Answer again."""
        self._faults.clear()
        self.is_away = False

    def _call(self, name: str, do: Callable[[], _T]) -> _T:
        self.observe(name, "before")
        how = self._fault(name)
        if self.is_away or how == "never-arrives":
            raise RetryLater("slurmctld does not answer", code="slurm.command_failed")
        answer = do()
        self.observe(name, "after")
        if how:
            raise RetryLater("slurmctld's answer was lost", code="slurm.timeout")
        return answer

    def _fault(self, name: str) -> str:
        found = next((fault for fault in self._faults if fault[1] in ("", name)), None)
        if found is None:
            return ""
        self._faults.remove(found)
        return found[0]

    def snapshot(self, now: float) -> ClusterSnapshot:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""

        def look() -> ClusterSnapshot:
            free = 1 if self.on_premise is None else self.on_premise.free
            fixed = Node(
                name="fixed1",
                states=frozenset({"MIXED" if free else "ALLOCATED"}),
                processors=self.processors or 4096,
                memory_mb=1 << 20,
                partitions=(ON_PREMISE,),
            )
            cloud = tuple([node.shown or self._as_node(node) for node in self.nodes.values()])
            jobs = tuple(self._as_queued(job) for job in self.jobs.values() if job.state not in ENDED)
            return ClusterSnapshot(time=now, jobs=jobs, nodes=(fixed, *cloud))

        return self._call("snapshot", look)

    def waiting(self, known: Container[int]) -> Mapping[int, SubmittedJob | None]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""

        def look() -> dict[int, SubmittedJob | None]:
            return {
                job.job_id: None if job.job_id in known else self._as_submitted(job)
                for job in self.jobs.values()
                if job.state == PENDING
            }

        return self._call("waiting", look)

    def _as_submitted(self, job: MemoryJob) -> SubmittedJob:
        return SubmittedJob(
            queued=self._as_queued(job),
            nice=max(0, -job.priority_offset),
            prefer=job.prefer,
            eligible_time=job.begin_time or job.queued_at,
        )

    def update_node(self, nodes: Collection[str], **change: Unpack[NodeChange]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`; one field more is one that is not known here."""

        def update() -> None:
            self.cloud_changes += not {"state", "features", "weight"}.isdisjoint(change)
            for node in self._known(nodes):
                node.weight = change.get("weight", node.weight)
                if "features" in change:
                    if not set(change["features"]) <= set(node.features):
                        raise RetryLater("Invalid feature specification", code="slurm.command_failed")
                    node.active = tuple(change["features"])
                node.address = change.get("address") or node.address
                node.reason = change.get("reason") or node.reason
                if "state" in change:
                    self._set_state(node, change["state"])
            self.told.append(("node", tuple(nodes), dict(change)))

        if "hostname" in change and {change["hostname"]} != set(nodes):
            msg = f"{change['hostname']} is not the name of {nodes}"
            raise ValueError(msg)
        self._call("update_node", update)

    def _known(self, names: Iterable[str]) -> list[MemoryNode]:
        if unknown := set(names) - self.nodes.keys():
            raise RetryLater(f"Invalid node name {sorted(unknown)}", code="slurm.command_failed")
        return [self.nodes[name] for name in names]

    def _set_state(self, node: MemoryNode, state: str) -> None:
        match state:
            case "POWER_DOWN_FORCE":
                self.powered_down(node)
                self._free(node)
                if node.power in (NodePower.UP, NodePower.POWERING_UP):
                    self._power_down(node)
            case "POWER_UP":
                if node.power is NodePower.DOWN and not node.is_down:
                    node.power, node.since = NodePower.POWERING_UP, self.now()
                    self.program("resume", (node.name,), {})
            case "POWER_DOWN_ASAP":
                if node.power in (NodePower.UP, NodePower.POWERING_UP):
                    node.powers_down_after_job = True
            case "RESUME":
                node.is_down = node.is_draining = node.powers_down_after_job = False
            case _:
                msg = f"no node state {state!r}"
                raise ValueError(msg)

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""

        def update(job: MemoryJob) -> None:
            job.set(changes, self.now())
            self.queue_anew(job)

        self._change("job", job_ids, update, changes, call="update_job")

    def update_jobs(self, changes: Mapping[int, Mapping[str, str]]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        refusal: RetryLater | None = None
        for job_id, fields in changes.items():
            try:
                self.update_job([job_id], fields)
            except RetryLater as error:
                refusal = error
        if refusal is not None:
            raise refusal

    def _change(
        self,
        verb: str,
        job_ids: Collection[int],
        change: Callable[[MemoryJob], None],
        said: Mapping[str, str] = MappingProxyType({}),
        *,
        call: str = "",
    ) -> None:
        """Change jobs one by one, as scontrol does: the refusal of one keeps no other from being changed."""

        def each() -> None:
            self.cloud_changes += 1
            done, refusal = list[int](), None
            for job_id in job_ids:
                try:
                    change(self._job(job_id))
                except RetryLater as error:
                    refusal = error
                else:
                    done.append(job_id)
            if done:
                self.told.append((verb, tuple(done), dict(said)))
            if refusal is not None:
                raise refusal

        self._call(call or verb, each)

    def _job(self, job_id: int) -> MemoryJob:
        if job_id not in self.jobs:
            raise RetryLater("Invalid job id specified", code="slurm.command_failed")
        return self.jobs[job_id]

    def requeue(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""

        def again(job: MemoryJob) -> None:
            if job.state not in {PENDING, *ENDED}:
                self._requeue_if_allowed(job)

        self._change("requeue", job_ids, again)

    def requeue_ended(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""

        def again(job: MemoryJob) -> None:
            if job.state == PENDING:
                raise RetryLater("Job is pending execution", code="slurm.command_failed")
            self._requeue_if_allowed(job)

        self._change("requeue_ended", job_ids, again)

    def _requeue_if_allowed(self, job: MemoryJob) -> None:
        if not job.may_requeue:
            raise RetryLater("Requested operation is presently disabled", code="slurm.command_failed")
        self._requeue(job)

    def cancel(self, job_ids: Collection[int]) -> None:
        """End jobs, as scancel does; those that have ended are left alone."""

        def end() -> None:
            self.cloud_changes += 1
            for job in (self.jobs[job_id] for job_id in job_ids if job_id in self.jobs):
                if job.state not in ENDED:
                    self._end_early(job, "CANCELLED")
            self.told.append(("cancel", tuple(job_ids), {}))

        self._call("cancel", end)

    def hold(self, job_ids: Collection[int]) -> None:
        """What an admin does."""

        def keep(job: MemoryJob) -> None:
            job.check_not_ended()
            job.is_held = True
            self.queue_anew(job)

        self._change("hold", job_ids, keep)

    def release(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""

        def let_go(job: MemoryJob) -> None:
            job.check_not_ended()
            job.is_held = False

        self._change("release", job_ids, let_go)

    def accounting(
        self, since: float, until: float | None = None
    ) -> AbstractContextManager[AccountingExport]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`; times are in whole seconds there."""
        return self._call("accounting", lambda: self.ended_runs.accounting(since, until))

    def reservations(self) -> tuple[Reservation, ...]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`; it has none."""
        return self._call("reservations", tuple)

    def partitions(self) -> tuple[Partition, ...]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""

        def look() -> tuple[Partition, ...]:
            processors = self.node_processors * len(self.nodes)
            return (
                Partition(
                    name=ON_PREMISE,
                    is_up=True,
                    nodes="fixed1",
                    total_processors=self.processors or 4096,
                    is_default=True,
                ),
                Partition(
                    name=BURST,
                    is_up=True,
                    nodes=_folded(tuple(self.nodes)),
                    total_processors=processors,
                    suspend_seconds=self.times.idle,
                    resume_seconds=round(self.times.resume),
                ),
            )

        return self._call("partitions", look)

    def config(self) -> Mapping[str, str]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        return self._call("config", lambda: {"JobRequeue": "1"})

    def ping(self) -> bool:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        return not self.is_away

    def is_administrator(self, user: str) -> bool:  # noqa: ARG002
        """See :class:`~advisor.slurm.protocol.SlurmBackend`; everybody is one."""
        return True

    def version(self) -> tuple[int, ...]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        return (22, 5, 8)

    # ------------------------------------------------------------------ single jobs

    def warn(self, job_id: int) -> str:
        """See :class:`~advisor.slurm.running_jobs.RunningJobs`."""

        def send() -> str:
            job = self._job(job_id)
            job.check_not_ended()
            self.told.append(("warn", (job_id,), {}))
            return job.signal

        return self._call("warn", send)

    def node_constraints(self, job_id: int) -> NodeConstraints:
        """See :class:`~advisor.slurm.running_jobs.RunningJobs`."""

        def look() -> NodeConstraints:
            job = self._job(job_id)
            features = "&".join(job.wanted_features)
            return NodeConstraints(features=features, prefer=job.prefer, excluded=job.excluded)

        return self._call("node_constraints", look)

    def end_of(self, job_id: int) -> JobEnd | None:
        """See :class:`~advisor.slurm.running_jobs.RunningJobs`."""

        def look() -> JobEnd | None:
            job = self.jobs.get(job_id)
            if job is None:
                return None
            return JobEnd(state=job.state, end_time=job.end_time, may_requeue=job.may_requeue)

        return self._call("end_of", look)

    def failed_on(self, nodes: Sequence[str]) -> dict[int, tuple[str, ...]]:
        """See :class:`~advisor.slurm.running_jobs.RunningJobs`."""

        def look() -> dict[int, tuple[str, ...]]:
            failed = (job for job in self.jobs.values() if job.state == "FAILED")
            return {job.job_id: job.had for job in failed if set(job.had) & set(nodes)}

        return self._call("failed_on", look)

    def _as_node(self, node: MemoryNode) -> Node:
        """A node as sinfo says it; the same record as long as nothing has changed."""
        if node.shown is None:
            node.shown = as_node(node, self.node_processors)
        return node.shown

    def _as_queued(self, job: MemoryJob) -> QueuedJob:
        """A job as squeue says it; the same record as long as nothing has changed."""
        reason = job.reason
        if reason and (job.begin_time or job.after or job.after_ok or job.array_limit):
            reason = self.obstacle(job, self.now()) or reason
        if job.shown is None or job.shown.reason != reason:
            job.shown = as_queued(job, reason)
        return job.shown
