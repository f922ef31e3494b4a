"""The records that a snapshot of a scheduler consists of: jobs, nodes, partitions.

The words are Slurm's: a queue of LSF is a partition, a host a node, and states are translated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from advisor.model.cluster import Node
from advisor.model.errors import BadInput
from advisor.model.job import Job
from advisor.model.machine import NOT_KNOWN, Asked, Sharing, words_of
from advisor.model.node_sets import expand
from advisor.model.queue_order import QueueOrder

PENDING: Final = "PENDING"
RUNNING: Final = "RUNNING"
CONFIGURING: Final = "CONFIGURING"
SUSPENDED: Final = "SUSPENDED"
STOPPED: Final = "STOPPED"
_HOLDS_PROCESSORS: Final = frozenset(
    {"RUNNING", "CONFIGURING", "COMPLETING", SUSPENDED, STOPPED, "SIGNALING", "STAGE_OUT", "RESIZING"}
)
_HELD: Final = frozenset(
    {
        "JobHeldUser",
        "JobHeldAdmin",
        "JobHoldMaxRequeue",
        "job requeued in held state",
        "job_requeued_in_held_state",  # some releases write underscores
        "job requeued in special exit state",
        "launch failed requeued held",
        "launch_failed_requeued_held",
    }
)
_MISFIT: Final = frozenset(
    {
        "AccountNotAllowed",
        "BadConstraints",
        "InvalidAccount",
        "InvalidQOS",
        "PartitionConfig",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSNotAllowed",
    }
)
_NOT_LET_IN: Final = ("Job's account not ", "Job's_account_not_", "Job's QOS not ", "Job's_QOS_not_")
PARTITION_CLOSED: Final = frozenset({"PartitionDown", "PartitionInactive"})
"""Reasons of pending jobs whose partition an admin has closed."""
# pending jobs with these reasons do not wait for processors
_NOT_QUEUED: Final = (
    _HELD | _MISFIT | PARTITION_CLOSED | {"BeginTime", "Dependency", "DependencyNeverSatisfied", "DeadLine"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """One row of squeue: a job, an array task, or an array's tasks that still wait.

    Attributes:
        job: The job as submitted; ``job.queue`` is its first partition, ``job.array_tasks`` the tasks in this
            row.
        state: State as Slurm writes it; an unknown one is kept, and no loop acts on it (F16 in
            docs/faults.md).
        partitions: All partitions for which the job waits.
        array_job_id: The array's id; the job's own for a plain job.
        start_time: Epoch seconds of the last start; None while it waits.
        priority: Slurm's; among waiting jobs of one partition the largest is first. 0: not known, or held.
        reason: Slurm's reason why it waits.
        nodes: Node list expression; empty while it waits.
        admin_comment: Slurm's AdminComment, in which the hook records the advice; it is not trusted.
        memory_mb, gpus: What it asks for, or has, on all nodes together; memory in MiB. 0: not known.
        node_memory_mb: What a waiting job asks for on each node, MiB; 0: not by nodes, or not known.
        is_of_array: Whether Slurm says that it is one task, or some, of an array; also if no other is left.
    """

    job: Job
    state: str
    partitions: tuple[str, ...]
    array_job_id: int
    start_time: float | None = None
    restarts: int = 0
    priority: int = 0
    reason: str = ""
    nodes: str = ""
    admin_comment: str = ""
    memory_mb: int = 0
    node_memory_mb: int = 0
    gpus: int = 0
    is_of_array: bool = False

    @property
    def asked(self) -> Asked:
        """What it, or one task of an array, takes of a machine."""
        job, memory, gpus = self.job, self.memory_mb, self.gpus
        first, several = self.partitions[0], self.partitions if len(self.partitions) > 1 else ()
        # more processors may be on several nodes
        of_node = self.node_memory_mb or (memory if job.processors == 1 else 0)
        return Asked(
            job.processors,
            job.nodes or 1,
            memory,
            gpus,
            first,
            job.whole_nodes,
            several,
            words_of(job),
            node_memory_mb=of_node,
            whole_cores=job.whole_cores,
        )

    @property
    def is_array_or_task(self) -> bool:
        """Whether it is an array, or any part of one; the last task that is left has the array's own id."""
        return self.is_of_array or self.job.array_tasks > 1 or self.array_job_id != self.job.job_id

    @property
    def holds_processors(self) -> bool:
        """True while the job has nodes."""
        return self.state in _HOLDS_PROCESSORS

    @property
    def uses_processors(self) -> bool:
        """The same of its processors: Slurm gives those of a suspended job to others."""
        return self.holds_processors and self.state != SUSPENDED

    @property
    def is_queued(self) -> bool:
        """True when it waits for processors: not for a time or another job, nor held, nor misfit."""
        if self.state != PENDING or self.reason in _NOT_QUEUED:
            return False
        return not self.reason.startswith(_NOT_LET_IN)

    @property
    def is_misfit(self) -> bool:
        """True when its partition never starts it as it is; ``EnforcePartLimits=NO`` accepts such a job."""
        return self.state == PENDING and (self.reason in _MISFIT or self.reason.startswith(_NOT_LET_IN))

    @property
    def is_held(self) -> bool:
        """True when it is held: a pending job does not start, and a running one not again once requeued."""
        return self.reason in _HELD


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJob:
    """A job that waits, with what else its user said.

    Attributes:
        queued: Its row of squeue; ``queued.job`` also has its memory, generic resources and burst buffer.
        nice: Slurm's nice value; 0: the user set none.
        prefer: ``--prefer``; empty for none.
        eligible_time: Epoch seconds from which it may start; None while it is held or depends on others.
    """

    queued: QueuedJob
    nice: int = 0
    prefer: str = ""
    eligible_time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job as slurmctld shows it now.

    Attributes:
        start_time: Epoch seconds of its start, or of the start that slurmctld expects; None when it expects
            none.
        submit_time: Epoch seconds; a requeue sets it anew.
        ages_since: Epoch seconds from which Slurm counts its age for the priority (AccrueTime). A requeue
            sets it to two minutes after the requeue, the job's earliest restart. It stays there if the job
            restarts sooner.
        limit_seconds: Time limit; None: without limit.
        processors, nodes: What the job has; while it waits, what it asks for at least (nodes: slurmctld's
            estimate).
        processors_asked: Tasks times processors per task.
    """

    job_id: int
    state: str
    reason: str
    partition: str
    priority: int
    start_time: float | None
    submit_time: float
    restarts: int
    limit_seconds: float | None
    name: str = ""
    advice_id: str | None = None
    ages_since: float = 0.0
    processors: int = 0
    nodes: int = 0
    processors_asked: int = 0

    @property
    def is_pending(self) -> bool:
        """Whether the job waits."""
        return self.state == PENDING

    @property
    def is_held(self) -> bool:
        """Whether it is held, see :attr:`QueuedJob.is_held`."""
        return self.reason in _HELD


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes that are kept for certain jobs, or for maintenance, for a time.

    Attributes:
        name: The advisor's own begin with ``advisor_``.
        begin, end: Epoch seconds.
        nodes: Names of its nodes.
        processors: How many it has on them; None: not known, and taken to be all.
        draws: Accounts and users (`Job.payers`) whose jobs start there without naming it (``MAGNETIC``).
    """

    name: str
    begin: float
    end: float
    nodes: frozenset[str]
    processors: int | None = None
    draws: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class ClusterSnapshot:
    """All jobs and nodes at one moment, from one query each, shared by all loops (F29 in docs/faults.md).

    Attributes:
        time: When the query began, epoch seconds.
        nodes: Every node of every partition, powered down or not.
        seconds: How long the two queries took.
        malformed: Records that could not be read and were left out.
        sharing: How nodes are shared among jobs, as far as it is known.
        reservations: Those that have not ended, as they were known at most a minute ago.
        queue_orders: How LSF orders the jobs of each queue; empty: as their priorities say.
    """

    time: float
    jobs: tuple[QueuedJob, ...]
    nodes: tuple[Node, ...]
    seconds: float = 0.0
    malformed: int = 0
    sharing: Sharing = NOT_KNOWN
    reservations: tuple[Reservation, ...] = ()
    queue_orders: Mapping[str, QueueOrder] = field(default_factory=dict)

    def node(self, name: str) -> Node | None:
        """The node with this name."""
        return next((node for node in self.nodes if node.name == name), None)

    def nodes_of(self, partition: str) -> tuple[Node, ...]:
        """Nodes of a partition."""
        return self._by_partition.get(partition, ())

    @cached_property
    def _by_partition(self) -> Mapping[str, tuple[Node, ...]]:
        """Every loop asks for them, some for several thousand nodes."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.partitions:
                found.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def jobs_on(self) -> Mapping[str, list[QueuedJob]]:
        """Jobs that hold processors, by node name; a list of nodes that cannot be read is left out."""
        found: dict[str, list[QueuedJob]] = {}
        for queued in self.jobs:
            if not (queued.holds_processors and queued.nodes):
                continue
            try:
                names = expand(queued.nodes)
            except BadInput:  # text from outside
                continue
            for name in names:
                found.setdefault(name, []).append(queued)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition as Slurm shows it; None: without limit, or not set.

    Attributes:
        is_default: Whether jobs that name no partition go there.
        default_minutes: Time limit of a job that gives none; None: ``max_minutes``.
        default_memory: Memory of a job that asks for none, MiB: of a node and of a processor.
        whole_nodes: Whether jobs get whole nodes (``OverSubscribe=EXCLUSIVE``).
        forced: How many jobs share each processor (``OverSubscribe=FORCE:2``).
        qos: The partition's own QOS; empty for none.
        tier, is_preempted: Jobs of a higher tier are tried first, and may preempt those of a lower one.
        allowed, denied: Lists of ``accounts`` and ``qos`` in lower case; one that is not there lets all in.
    """

    name: str
    is_up: bool
    nodes: str
    total_processors: int
    max_minutes: int | None = None
    suspend_seconds: float | None = None
    resume_seconds: int | None = None
    is_default: bool = False
    default_minutes: int | None = None
    total_nodes: int | None = None
    min_nodes: int = 0
    max_nodes: int | None = None
    max_processors_per_node: int | None = None
    max_memory_per_node_mb: int | None = None
    max_memory_per_processor_mb: int | None = None
    default_memory: tuple[int | None, int | None] = (None, None)
    whole_nodes: bool = False
    forced: int = 1
    qos: str = ""
    tier: int = 1
    is_preempted: bool = False
    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    denied: Mapping[str, frozenset[str]] = field(default_factory=dict)


def is_partition_up(partitions: Iterable[Partition], name: str) -> bool:
    """Whether a partition starts jobs; an admin who sets it down wants no node in it started either."""
    return any(one.is_up for one in partitions if one.name == name)
