"""What the control loops ask of Slurm, and what they are told. Back ends differ, this does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from advisor.model.cluster import Node
from advisor.model.job import Job

PENDING: Final = "PENDING"
RUNNING: Final = "RUNNING"
CONFIGURING: Final = "CONFIGURING"
_HOLDS_PROCESSORS: Final = frozenset(
    {"RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
# pending for a reason that is not the queue's: such a job competes for no processor now
_NOT_QUEUED: Final = frozenset(
    {"JobHeldUser", "JobHeldAdmin", "BeginTime", "Dependency", "DependencyNeverSatisfied", "DeadLine"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """One row of squeue: a job, an array task, or an array's tasks that still wait.

    Attributes
    ----------
    job : Job
        As submitted; ``job.queue`` is the first partition, ``job.array_tasks`` how many tasks this row
        stands for.
    state : str
        Slurm's own word; one that nobody here knows is kept, and nothing is done about it (F16).
    partitions : tuple of str
        All partitions it waits for.
    array_job_id : int
        The array's id; the job's own for a plain job.
    start_time : float or None
        Epoch seconds of the last start; None while it waits.
    restarts : int
        How often it was requeued.
    reason : str
        Why it waits, Slurm's own word.
    nodes : str
        Node list expression; empty while it waits.
    admin_comment : str
        Where our hook left the advice; text from outside.
    """

    job: Job
    state: str
    partitions: tuple[str, ...]
    array_job_id: int
    start_time: float | None = None
    restarts: int = 0
    reason: str = ""
    nodes: str = ""
    admin_comment: str = ""

    @property
    def holds_processors(self) -> bool:
        """True while processors are taken by it."""
        return self.state in _HOLDS_PROCESSORS

    @property
    def is_queued(self) -> bool:
        """True when it waits for processors now: neither held nor waiting for a time or another job."""
        return self.state == PENDING and self.reason not in _NOT_QUEUED

    @property
    def is_held(self) -> bool:
        """True when somebody holds it back."""
        return self.state == PENDING and self.reason in {"JobHeldUser", "JobHeldAdmin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job as slurmctld says it is now.

    Attributes
    ----------
    job_id : int
        Slurm's id.
    state, reason, partition : str
        Slurm's own words.
    priority : int
        As it is now.
    start_time : float or None
        Epoch seconds: of its start, or when slurmctld expects it to; None when it does not.
    submit_time : float
        Epoch seconds; a requeue sets it anew.
    ages_since : float
        Epoch seconds from which its age counts. A requeue sets it to when the job may first start again, two
        minutes later, and leaves it there when that is brought forward.
    restarts : int
        How often it was requeued.
    limit_seconds : float or None
        Time limit.
    processors, nodes : int
        What it has, or, while it waits, asks for at least (nodes: slurmctld's estimate).
    processors_asked : int
        Processors by its tasks alone.
    name : str
        Given by whoever submitted it.
    advice_id : str or None
        The advice it was submitted under.
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
        """Whether it waits."""
        return self.state == PENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSnapshot:
    """Jobs and nodes at one moment, from one query each, shared by all loops (F29).

    Attributes
    ----------
    time : float
        When the query began, epoch seconds.
    jobs : tuple of QueuedJob
        Everything in the queue.
    nodes : tuple of Node
        Every node of every partition, powered down or not.
    seconds : float
        How long the two queries took.
    malformed : int
        Records that were not understood and left out.
    """

    time: float
    jobs: tuple[QueuedJob, ...]
    nodes: tuple[Node, ...]
    seconds: float = 0.0
    malformed: int = 0

    def node(self, name: str) -> Node | None:
        """A node by its name."""
        return next((node for node in self.nodes if node.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition as Slurm shows it; ``suspend_seconds``: idle nodes go after so long (None: not told)."""

    name: str
    is_default: bool
    is_up: bool
    nodes: str
    total_processors: int
    total_nodes: int
    default_minutes: int | None = None
    max_minutes: int | None = None
    suspend_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingExport:
    """What ``advisor.history.ingest.ingest_sacct`` takes."""

    fields: tuple[str, ...]
    delimited_by: str
    lines: Iterator[str]


class SlurmBackend(Protocol):
    """Everything this program asks of Slurm or tells it.

    Every method raises RetryLater when Slurm does not answer, answers nonsense or refuses (codes
    ``slurm.timeout``, ``slurm.command_failed``, ``slurm.unreadable``, ``slurm.too_long``), and the caller
    then does nothing; BadInput (``slurm.no_command``) when its commands are not there.
    """

    def snapshot(self, now: float) -> SlurmSnapshot:
        """Jobs and nodes, one query each; ``now`` is the epoch time at which it begins."""
        ...

    def accounting(
        self, since: float, until: float | None = None
    ) -> AbstractContextManager[AccountingExport]:
        """Ended jobs, for ``advisor.history.ingest.ingest_sacct``; times are epoch seconds."""
        ...

    def update_node(
        self,
        nodes: Collection[str],
        *,
        state: str | None = None,
        reason: str | None = None,
        address: str | None = None,
        hostname: str | None = None,
        weight: int | None = None,
        features: Sequence[str] | None = None,
    ) -> None:
        """Change nodes."""
        ...

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        """Change jobs: ``scontrol update job``'s own names and values."""
        ...

    def requeue(self, job_ids: Collection[int], *, hold: bool = False) -> None:
        """Back into the queue, same job id."""
        ...

    def hold(self, job_ids: Collection[int]) -> None:
        """Keep from starting."""
        ...

    def release(self, job_ids: Collection[int]) -> None:
        """May start again."""
        ...

    def ping(self) -> bool:
        """Whether a slurmctld answers."""
        ...

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions."""
        ...

    def config(self) -> Mapping[str, str]:
        """The configuration in force, by name."""
        ...

    def is_administrator(self, user: str) -> bool:
        """Whether accounting lets a user change nodes and other users' jobs (Operator or Administrator)."""
        ...

    def version(self) -> tuple[int, ...]:
        """Release, e.g. ``(22, 5, 8)``."""
        ...
