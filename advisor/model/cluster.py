"""The state of the cluster and its nodes at one moment, as a poll finds it and decisions read it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from advisor.model.job import Job

_BUSY: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_UNUSABLE: Final = frozenset({"DOWN", "FAIL", "ERROR"})


class ClusterState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Queue and running jobs at a submission.

    Source: Cunha et al. 2017, Table I.

    Attributes:
        time: Seconds.
        queued_work_core_seconds: Sum over waiting jobs of processors x requested time.
        remaining_work_core_seconds: Sum over running jobs of processors x remaining requested time (at least
            0).
        free_processors: Idle processors.
        total_processors: Processors of the fixed (on-premise and reserved) partition.
    """

    time: float
    queue_size: int
    queued_work_core_seconds: float
    remaining_work_core_seconds: float
    free_processors: int
    total_processors: int
    running_jobs: int

    def without(self, job: Job) -> ClusterState:
        """The state without a job, or an array's tasks, that wait in it: they do not wait for themselves."""
        asked = job.array_tasks * job.processors * (job.requested_time or 0.0)
        return replace(
            self,
            queue_size=max(0, self.queue_size - job.array_tasks),
            queued_work_core_seconds=max(0.0, self.queued_work_core_seconds - asked),
        )


class Limit(NamedTuple):
    """A limit that keeps at least one job pending.

    Attributes:
        user, account, qos: Whose jobs it counts; None: anybody's. All None: everybody's.
        other: The array, or the licences, whose jobs it counts; empty for none.
        unit: What of a job it counts: ``jobs``, ``nodes``, ``memory``, ``gpus`` or ``processors``.
        reason: Slurm's word.
    """

    user: str | None = None
    account: str | None = None
    qos: str | None = None
    other: str = ""
    unit: str = "jobs"
    reason: str = ""

    def counts(self, job: Job) -> bool:
        """Whether it counts a job that is submitted, and so keeps it pending, too."""
        if self.other or (self.unit == "gpus" and not job.gres):
            return False
        asked = ((self.user, job.user), (self.account, job.account), (self.qos, job.qos))
        return all(own is None or own == said for own, said in asked)


class NodePower(enum.StrEnum):
    """Power state of a cloud node, from Slurm's state flags."""

    DOWN = "powered_down"
    POWERING_UP = "powering_up"
    UP = "up"
    POWERING_DOWN = "powering_down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node as Slurm shows it.

    ``states`` are Slurm's words (``IDLE``, ``ALLOCATED``, ``CLOUD``, ``POWERED_DOWN``, ...). Unknown words
    are kept; policy uses the predicates below and ignores the rest (docs/faults.md, F16). Jobs are matched
    with ``active_features``, a subset of ``features``. Slurm fills nodes of low ``weight`` first. None: not
    known. ``gpus``: The number of its GPUs, of any type; ``gpu_types``: Those that have a name.
    ``threads``: Processors of a core.
    """

    name: str
    states: frozenset[str]
    processors: int
    memory_mb: int
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    address: str | None = None
    reason: str | None = None
    active_features: tuple[str, ...] | None = None
    weight: int | None = None
    gpus: int = 0
    gpu_types: tuple[str, ...] = ()
    threads: int = 1

    @property
    def is_cloud(self) -> bool:
        """True for a node with Slurm's state flag CLOUD."""
        return "CLOUD" in self.states

    @property
    def is_down(self) -> bool:
        """True when Slurm starts no job on the node: it is DOWN, FAIL or ERROR."""
        return is_down(self.states)

    @property
    def is_draining(self) -> bool:
        """True when no new job will start on the node."""
        return is_draining(self.states)

    @property
    def is_busy(self) -> bool:
        """True when a job holds the node."""
        return not self.states.isdisjoint(_BUSY)

    @property
    def power(self) -> NodePower:
        """Power state; nothing is done about ``UNKNOWN``."""
        return _power_of(self.states)


def is_down(states: frozenset[str]) -> bool:
    """Whether Slurm's words for a node's state say that it is not used until an admin acts."""
    return not states.isdisjoint(_UNUSABLE)


def is_draining(states: frozenset[str]) -> bool:
    """Whether Slurm's words for a node's state say that no new job starts there."""
    return "DRAIN" in states


@lru_cache(maxsize=4096)
def _power_of(states: frozenset[str]) -> NodePower:
    """Power state by Slurm's words; a poll asks for each of thousands of nodes many times."""
    if "POWERING_DOWN" in states:
        return NodePower.POWERING_DOWN
    if "POWERING_UP" in states:
        return NodePower.POWERING_UP
    if "POWERED_DOWN" in states or ("POWER_DOWN" in states and not states & _BUSY):
        return NodePower.DOWN  # a busy node with POWER_DOWN stays up until its job ends
    if states & {"IDLE", "ALLOCATED", "MIXED", "COMPLETING"}:
        return NodePower.UP
    return NodePower.UNKNOWN
