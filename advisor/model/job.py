"""A job as known at its submission, and its outcome."""

from __future__ import annotations

import enum
import re
from functools import lru_cache
from typing import Final

import msgspec

from advisor.model.checkpoint_word import NO_CHECKPOINT, at_risk_seconds
from advisor.model.periods import USER

PLACEHOLDER_PREFIX: Final = "place-of-"
"""Prefix of a placeholder's name; the id of the job it stands for follows."""
PLACEHOLDER_COMMENT: Final = "Burst Advisor keeps the place of a job that runs in the cloud"
"""Comment of a placeholder."""
_COUNTER: Final = re.compile(r"\d+")
_PLACEHOLDER: Final = re.compile(re.escape(PLACEHOLDER_PREFIX) + r"(\d{1,10})")


@lru_cache(maxsize=65_536)
def family(name: str | None) -> str | None:
    """A job name without its counters: ``run_017`` and ``run_018`` are one application."""
    if name is None or name.isdecimal():
        return name
    return _COUNTER.sub("#", name)


def placeholder_target(name: str | None) -> int | None:
    """The id of the job a placeholder stands for, from its name; None for any other job."""
    if not name or not name.startswith(PLACEHOLDER_PREFIX):
        return None
    match = _PLACEHOLDER.fullmatch(name)
    return int(match[1]) if match else None


ANYBODY: Final = ""
"""The priority key of users who are not known."""


def payers_of(account: str | None, user: str | None) -> tuple[str, ...]:
    """Who pays for a job beside the site: its account and its user."""
    accounts = (account,) if account else ()
    return (*accounts, USER + user) if user else accounts


class JobState(enum.StrEnum):
    """How a job ended, in Slurm's words."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    UNKNOWN = "UNKNOWN"


CUT_SHORT: Final = frozenset({JobState.NODE_FAIL, JobState.PREEMPTED})
"""Ends that the job did not cause: its full run time is unknown, and Slurm usually requeues it."""


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One submission: everything that is known before the job has an outcome.

    ``None`` always means unknown or not asked for; HEOM counts an unknown as distance 1 (Cunha et al.,
    section IV-A).

    Attributes:
        job_id: The scheduler's id; 0 while it has none yet (inside ``sbatch``).
        submit_time: Seconds since the epoch (in a replay: since the log's start).
        user, group, queue: Nominal features of Cunha's Table I. ``queue`` is Slurm's partition.
        processors: Requested processors of the whole job, at least 1 (for an array: of one task).
        requested_time: The user's time limit in seconds.
        nodes: Requested nodes, where the user asked for a number.
        memory_mb: Requested memory of the whole job in MiB.
        name, account, qos, comment: The values that the user submitted. Data from outside: never interpreted
            beyond the documented opt-out words.
        features: Constraint expression split at ``&``, ``|`` and ``,``.
        requeue: Whether the job may be requeued; None when the site's default holds.
        array_tasks: Number of tasks of a job array; 1 for a plain job.
        array_job_id: Of one task of an array that has ended: the array's id. None: it is none, or an earlier
            release has read it.
        licenses, reservation, dependency: The user's values; each keeps a job on-premise by rule.
        gres: Generic resources (GPUs, ...) as submitted, from any of Slurm's ``tres_per_*`` fields; keeps a
            job on-premise.
        node_list: Nodes named by the user (``--nodelist``; under LSF ``-m``, else a request that
            chooses hosts); keeps a job on-premise.
        interactive: True for srun and salloc (no batch script).
        explicit_partition: True when the user named a partition; the advisor never overrides it.
        heterogeneous: True for a component of a heterogeneous job.
        memory_mb_per_node: Memory each of its nodes must have in MiB, where the user asked for it so
            (``--mem``). 0: all memory of a node (``--mem=0``), until :meth:`with_whole_memory`.
        explicit_time_limit: True when the user requested the time, False for the partition's default.
        interruptions: Spot interruptions so far; 0 at its submission.
        deferred: True for a job submitted held, or to begin later.
        burst_buffer: The user's value, which keeps a job on-premise.
        plain_constraint: True when a feature can be added to its constraint: it is empty or joined by ``&``
            only, and short.
        whole_nodes: True when it asks for whole nodes (``--exclusive``).
        node_processors: Processors that one of its nodes must have: those of a task, or more, where its user
            has said how tasks are spread. None: any node will do.
        layout: True when it asks how its nodes are built (sockets, cores of each, threads); keeps a job
            on-premise.
        array_at_once: How many tasks of its array may run at a time; None: all.
        whole_cores: True when a core must not be shared by two of its processors
            (``--hint=nomultithread``).
        prefer: Features named in ``--prefer``; slurmctld refuses a job that prefers what no node has.
        task_processors: Processors that each of its tasks has on one node (``--cpus-per-task``).
        tmp_disk: Temporary disk that each of its nodes must have, MiB; keeps a job on-premise.
        most_nodes: Nodes that it takes where so many are free, as cloud nodes mostly are (``--nodes=1-3``,
            ``--spread-job``); None: those that it needs.
    """

    job_id: int
    submit_time: float
    processors: int
    user: str | None = None
    group: str | None = None
    queue: str | None = None
    requested_time: float | None = None
    nodes: int | None = None
    memory_mb: int | None = None
    name: str | None = None
    account: str | None = None
    qos: str | None = None
    comment: str | None = None
    features: tuple[str, ...] = ()
    requeue: bool | None = None
    array_tasks: int = 1
    licenses: str | None = None
    reservation: str | None = None
    dependency: str | None = None
    gres: str | None = None
    node_list: str | None = None
    interactive: bool = False
    explicit_partition: bool = False
    heterogeneous: bool = False
    memory_mb_per_node: int | None = None
    explicit_time_limit: bool = False
    interruptions: int = 0
    deferred: bool = False
    burst_buffer: str | None = None
    plain_constraint: bool = True
    array_job_id: int | None = None
    whole_nodes: bool = False
    node_processors: int | None = None
    tmp_disk: int | None = None
    array_at_once: int | None = None
    layout: bool = False
    task_processors: int = 1
    prefer: tuple[str, ...] = ()
    whole_cores: bool = False
    most_nodes: int | None = None

    @property
    def payers(self) -> tuple[str, ...]:
        """Whose budgets pay for it beside the site's (:mod:`advisor.model.periods`)."""
        return payers_of(self.account, self.user)

    @property
    def priority_keys(self) -> tuple[str, str, str]:
        """By what the priority with which it begins is known: account and QOS as well, user, queue alone."""
        queue = self.queue or ""
        of_queue = f"\n{queue.partition(',')[0] if ',' in queue else queue}"
        own = f"{self.user}{of_queue}"
        return f"{own}\n{self.account}\n{self.qos}", own, of_queue

    def node_memory_mb(self, processors: int = 0) -> int:
        """Memory in MiB that one of its nodes must have at least, if that has so many processors; 0: any."""
        if self.memory_mb_per_node is not None or not self.memory_mb:
            return self.memory_mb_per_node or 0
        least = self.node_processors or self.task_processors
        return self.memory_mb * max(least, processors if self.whole_nodes else 0) // self.processors

    @property
    def processors_of_one(self) -> int:
        """Processors that one cloud node must have at least; they may be threads, of which a core has two."""
        return (self.node_processors or 1) * (2 if self.whole_cores else 1)

    def with_whole_memory(self, node_memory_mb: int) -> Job:
        """The job that, with ``--mem=0``, asks for the memory of such nodes, MiB; 0: that is unknown."""
        if self.memory_mb_per_node != 0:
            return self
        whole = node_memory_mb or None
        total = whole and whole * (self.nodes or 1)
        return msgspec.structs.replace(self, memory_mb_per_node=whole, memory_mb=total)

    def nodes_of_size(self, processors: int, memory_mb: int) -> int:
        """Cloud nodes of one size that it takes, at least one (for an array: one task of it).

        A task has its processors on one node, and there the memory of each of these as well where the user
        has asked for memory by processors (``--mem-per-cpu``). Where a node has no room for a single task,
        memory and tasks do not count.

        Args:
            processors: Of one node.
            memory_mb: Of one node, MiB; 0 where it is unknown.
        """
        if self.whole_cores:
            processors = max(1, processors // 2)
        least = max(self.nodes or 1, self.most_nodes or 1)
        nodes, task = max(least, -(-self.processors // processors)), self.task_processors
        of_all = self.memory_mb if memory_mb and self.memory_mb_per_node is None else None
        if task == 1 and not of_all:
            return nodes
        at_once = processors // task
        if of_all:
            at_once = min(at_once, memory_mb * self.processors // (of_all * task))
        return nodes if at_once < 1 else max(nodes, -(-self.processors // (task * at_once)))

    @property
    def at_risk_seconds(self) -> float:
        """Run time that it loses at most when it is stopped and started again; infinite: all of it."""
        return at_risk_seconds(self.comment) if self.comment else NO_CHECKPOINT

    @property
    def placeholder_for(self) -> int | None:
        """The job for which this one is the placeholder; None for any other job."""
        return placeholder_target(self.name)


NO_LIMIT_SECONDS: Final = 365.0 * 86_400.0
"""The time limit that forecasts of the queue assume for a job without one."""


def limit_seconds(job: Job) -> float:
    """A job's time limit, seconds: at least 1, and `NO_LIMIT_SECONDS` for a job without one."""
    return NO_LIMIT_SECONDS if job.requested_time is None else max(1.0, job.requested_time)


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A finished job: its submission and its outcome.

    Attributes:
        job: The job as its user submitted it.
        start_time, end_time: Seconds, same clock as ``job.submit_time``. ``start_time`` is the *last* start
            of a requeued job. Time in which Slurm had suspended it is left out: ``end_time`` is that much
            sooner.
        processors_used: Processors it held; the requested number where the log does not say.
        memory_held_mb, gpus_held: What it held on all its nodes, memory in MiB; 0 where the log does not say.
        ineligible_seconds: Of its wait the time in which it might not start: it was held, deferred, or waited
            for another job or for its array's limit. 0 where the log does not say.
        first_start_time: First start of a requeued job in the partition in which it ended; None where
            unknown. Time in another partition before that, while a placeholder stood for it, counts as
            waiting.
        nodes: Node list expression.
        advice_id: The advice the job was submitted under, where the scheduler kept it (Slurm: AdminComment).
        goes_on: Whether the last run went on from a checkpoint of an earlier one.
    """

    job: Job
    start_time: float
    end_time: float
    state: JobState = JobState.COMPLETED
    processors_used: int = 1
    memory_held_mb: int = 0
    gpus_held: int = 0
    ineligible_seconds: float = 0.0
    restarts: int = 0
    partition: str | None = None
    nodes: str | None = None
    advice_id: str | None = None
    first_start_time: float | None = None
    goes_on: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether its last run was the whole job's; else its run time is only a lower bound."""
        return self.state not in CUT_SHORT and not self.goes_on

    @property
    def first_wait_seconds(self) -> float | None:
        """Seconds from submission to the first start; None where unknown, or it might not start at once."""
        if self.ineligible_seconds:
            return None
        first = self.first_start_time if self.restarts else self.start_time
        return None if first is None else first - self.job.submit_time

    @property
    def wait_seconds(self) -> float:
        """Seconds from submission to the last start."""
        return self.start_time - self.job.submit_time

    @property
    def run_seconds(self) -> float:
        """Seconds from the last start to the end."""
        return self.end_time - self.start_time
