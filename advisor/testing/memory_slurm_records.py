"""Nodes and jobs of `advisor.testing.memory_slurm`, and Slurm's waits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from msgspec.structs import replace

from advisor.model.cluster import Node, NodePower
from advisor.model.errors import RetryLater
from advisor.model.job import Job
from advisor.model.job_words import feature_words
from advisor.model.node_sets import expand
from advisor.model.snapshot import PENDING, QueuedJob

BURST: Final = "burst"
ON_PREMISE: Final = "onprem"
ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"})
_PENDING_FIELDS: Final = frozenset({"partition", "starttime", "features", "excnodelist", "prefer"})
"""Only those of a waiting job can be changed."""
_JOB_FIELDS: Final = _PENDING_FIELDS | {"timelimit", "admincomment", "requeue", "nice", "sitefactor"}
_POWER_WORD: Final = {
    NodePower.DOWN: {"POWERED_DOWN"},
    NodePower.POWERING_UP: {"POWERING_UP"},
    NodePower.UP: set[str](),
    NodePower.POWERING_DOWN: {"POWERING_DOWN"},
    NodePower.UNKNOWN: set[str](),
}


@dataclass(slots=True)
class SlurmTimes:
    """Slurm's own time-outs and waits, seconds.

    Attributes:
        resume, suspend: ResumeTimeout, SuspendTimeout.
        idle: SuspendTime.
        silent: SlurmdTimeout.
        requeue: How long a requeued job waits (reason BeginTime).
        forget: MinJobAge: how long an ended job stays known.
    """

    resume: float = 300.0
    suspend: float = 30.0
    idle: float = 60.0
    silent: float = 120.0
    requeue: float = 121.0
    forget: float = math.inf


class _Shown:
    """A record of which Slurm shows a copy; a change of any attribute makes the copy out of date."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        if name != "shown":
            object.__setattr__(self, "shown", None)


@dataclass(slots=True)
class MemoryNode(_Shown):
    """A node of the burst partition.

    Attributes:
        jobs: The processors that each job has of it, by job id.
        shown: As Slurm last showed it, if nothing has changed since.
    """

    name: str
    power: NodePower = NodePower.DOWN
    since: float = 0.0
    address: str = ""
    is_down: bool = False
    is_draining: bool = False
    powers_down_after_job: bool = False
    silent_since: float | None = None
    jobs: Mapping[int, int] = field(default_factory=dict)
    reason: str | None = None
    weight: int = 100
    features: tuple[str, ...] = ("cloud",)
    active: tuple[str, ...] = ("cloud",)
    shown: Node | None = None

    @classmethod
    def of(cls, node: Node) -> Self:
        """A node as a snapshot has it."""
        return cls(
            node.name,
            power=node.power,
            address=node.address or "",
            is_down=node.is_down,
            is_draining="DRAIN" in node.states,
            reason=node.reason,
            weight=100 if node.weight is None else node.weight,
            features=node.features,
            active=node.active_features or node.features,
        )

    @property
    def job_id(self) -> int | None:
        """The first of its jobs; None: it has none."""
        return next(iter(self.jobs), None)

    @property
    def words(self) -> frozenset[str]:
        """Slurm's words for its state."""
        used = "ALLOCATED" if self.jobs else "IDLE"
        base = "DOWN" if self.is_down else "UNKNOWN" if self.power is NodePower.UNKNOWN else used
        words = {base, "CLOUD"} | _POWER_WORD[self.power]
        if self.is_draining:
            words.add("DRAIN")
        if self.powers_down_after_job:
            words |= {"DRAIN", "POWER_DOWN"}
        if self.silent_since is not None:
            words.add("NOT_RESPONDING")
        return frozenset(words)


@dataclass(slots=True, kw_only=True)
class MemoryJob(_Shown):
    """A job: what was asked for, and how it is.

    Attributes:
        job_id, nodes_wanted: Slurm's id; nodes of its own.
        processors: Processors; 0: four on each node wanted.
        seconds, cloud_seconds: How long it really runs on-premise and, where that differs, in the cloud.
        submit_time, queued_at: Epoch seconds; the second is of its last requeue, which Slurm shows as its
            submission.
        partition, account, admin_comment: As in Slurm; of a list of partitions the one where it starts.
        fails: Whether it ends with an exit code of its own that is not 0.
        signal: The signal it asked to be warned by (``--signal``); empty for none.
        may_requeue: False for ``--no-requeue``.
        is_held: By its user or an admin.
        priority_offset: Site factor less nice value: larger ones start first.
        ages_since: From when it ages: its submission, or the end of a requeue's delay.
        after, after_ok: Jobs that have to end, and to end well, before it starts (``afterany``, ``afterok``).
        array_job_id: Id of its array's first task; 0: it is no array's.
        array_limit: Tasks of its array that may run at a time; 0: all.
        described: What else its user said.
        features: Its constraint, where that was changed since.
        cloud_core_seconds: Processors times seconds of its runs in the burst partition.
        interruptions, lost_seconds: How often a node was lost under it, and its time on those until then.
        shown: As Slurm last showed it, if nothing has changed since.
        runs: How often it has begun to run.
        ends: Every state it has ended in: a job ends once.
        nodes, had: Nodes it has now; nodes it had last.
    """

    job_id: int
    seconds: float
    submit_time: float
    nodes_wanted: int = 1
    processors: int = 0
    cloud_seconds: float | None = None
    partition: str = BURST
    account: str = ""
    admin_comment: str = ""
    limit_seconds: float = 7200.0
    fails: bool = False
    signal: str = ""
    may_requeue: bool = True
    state: str = PENDING
    begin_time: float = 0.0
    start_time: float | None = None
    end_time: float = 0.0
    nodes: tuple[str, ...] = ()
    had: tuple[str, ...] = ()
    excluded: str = ""
    prefer: str = ""
    features: str | None = None
    restarts: int = 0
    runs: int = 0
    ends: list[str] = field(default_factory=list)
    is_held: bool = False
    priority_offset: int = 0
    queued_at: float = math.nan
    ages_since: float = math.nan
    after: tuple[int, ...] = ()
    after_ok: tuple[int, ...] = ()
    array_job_id: int = 0
    array_limit: int = 0
    described: Job | None = None
    cloud_core_seconds: float = 0.0
    interruptions: int = 0
    lost_seconds: float = 0.0
    shown: QueuedJob | None = None

    def __post_init__(self) -> None:
        if self.described is not None and self.described.requeue is False:
            self.may_requeue = False
        if math.isnan(self.queued_at):
            self.queued_at = self.submit_time
        if math.isnan(self.ages_since):
            self.ages_since = self.submit_time

    @property
    def size(self) -> int:
        """Processors."""
        return self.processors or 4 * self.nodes_wanted

    @property
    def run_seconds(self) -> float:
        """How long it runs where it is, if its limit does not kill it."""
        if self.partition == BURST and self.cloud_seconds is not None:
            return self.cloud_seconds
        return self.seconds

    @property
    def wanted_features(self) -> tuple[str, ...]:
        """Features that its nodes must have."""
        if self.features is not None:
            return feature_words(self.features)
        return () if self.described is None else self.described.features

    def check_not_ended(self) -> None:
        """Refuse what Slurm refuses of a job that has ended."""
        if self.state in ENDED:
            raise RetryLater("Job has already finished", code="slurm.command_failed")

    def set(self, changes: Mapping[str, str], now: float) -> None:
        """Set fields as ``scontrol update job`` does, at ``now`` in epoch seconds.

        Raises:
            RetryLater: Slurm would refuse it.
            ValueError: It is not known here.
        """
        if unknown := changes.keys() - _JOB_FIELDS:
            msg = f"scontrol update job knows no {sorted(unknown)} here"
            raise ValueError(msg)
        self.check_not_ended()
        if self.state != PENDING and changes.keys() & _PENDING_FIELDS:
            raise RetryLater("Job is no longer pending execution", code="slurm.command_failed")
        self.partition = changes.get("partition", self.partition)
        self.excluded = changes.get("excnodelist", self.excluded)
        self.prefer = changes.get("prefer", self.prefer)
        self.features = changes.get("features", self.features)
        self.admin_comment = changes.get("admincomment", self.admin_comment)
        self.may_requeue = {"0": False, "1": True}.get(changes.get("requeue", ""), self.may_requeue)
        raised, lowered = max(0, self.priority_offset), max(0, -self.priority_offset)
        raised = int(changes.get("sitefactor", raised))
        self.priority_offset = raised - int(changes.get("nice", lowered))
        if (limit := changes.get("timelimit")) is not None:
            self.limit_seconds = 60.0 * float(limit)
        if (start := changes.get("starttime")) is not None:
            self.begin_time = now + float(start.removeprefix("now") or 0)

    @property
    def reason(self) -> str:
        """Why it waits; empty when it does not."""
        return "" if self.state != PENDING else "JobHeldUser" if self.is_held else "Resources"

    @classmethod
    def of(cls, queued: QueuedJob, known: MemoryJob | None = None) -> Self:
        """A job as a snapshot has it; ``known``: the same job before, for what a snapshot does not show."""
        nodes = tuple(expand(queued.nodes)) if queued.nodes else ()
        return cls(
            job_id=queued.job.job_id,
            seconds=queued.job.requested_time or 3600.0,
            submit_time=queued.job.submit_time,
            nodes_wanted=queued.job.nodes or 1,
            partition=queued.partitions[0],
            account=queued.job.account or "",
            admin_comment=queued.admin_comment,
            signal="" if known is None else known.signal,
            excluded="" if known is None else known.excluded,
            may_requeue=queued.job.requeue is not False,
            state=queued.state,
            start_time=queued.start_time,
            nodes=nodes,
            had=nodes,
            restarts=queued.restarts,
        )


def as_queued(job: MemoryJob, reason: str) -> QueuedJob:
    """A job as squeue says it; ``reason`` says why it waits."""
    said = job.described or Job(job_id=0, submit_time=0.0, processors=job.size)
    return QueuedJob(
        job=replace(
            said,
            job_id=job.job_id,
            submit_time=job.queued_at,
            processors=job.size,
            queue=job.partition,
            account=job.account or said.account,
            requeue=job.may_requeue,
            requested_time=job.limit_seconds,
            features=job.wanted_features,
            nodes=job.nodes_wanted if job.nodes_wanted > 1 else said.nodes,
        ),
        state=job.state,
        partitions=tuple(job.partition.split(",")),
        array_job_id=job.array_job_id or job.job_id,
        start_time=job.start_time,
        restarts=job.restarts,
        reason=reason,
        nodes=",".join(job.nodes),
        admin_comment=job.admin_comment,
        is_of_array=bool(job.array_job_id) or said.array_tasks > 1,
    )


def as_node(node: MemoryNode, processors: int = 4) -> Node:
    """A node as sinfo says it."""
    is_full = not node.jobs or sum(node.jobs.values()) >= processors
    return Node(
        name=node.name,
        states=node.words if is_full else node.words - {"ALLOCATED"} | {"MIXED"},
        processors=processors,
        memory_mb=8000,
        partitions=(BURST,),
        features=node.features,
        address=node.address or node.name,
        reason=node.reason,
        active_features=node.active,
        weight=node.weight,
    )
