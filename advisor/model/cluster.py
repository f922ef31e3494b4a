"""The cluster at one moment, as a submission meets it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec


class ClusterState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the queue looks like at a submission.

    The first four numbers are Cunha et al. Table I, the rest Ambati et al. Table 1.

    Attributes
    ----------
    time : float
        When it was true, seconds.
    queue_size : int
        Jobs waiting.
    queued_work_core_seconds : float
        Sum over waiting jobs of processors x requested time.
    remaining_work_core_seconds : float
        Sum over running jobs of processors x what is left of the requested time (never below 0).
    free_processors : int
        Processors nobody holds.
    total_processors : int
        Processors of the fixed (on-premise and reserved) partition.
    running_jobs : int
        Jobs running.
    running_mean_processors, running_mean_age_seconds : float
        Mean processors of running jobs; mean time they have been running. 0 when nothing runs.
    waiting_mean_processors, waiting_mean_age_seconds : float
        The same of waiting jobs; the age is the time waited so far. 0 when nothing waits.
    """

    time: float
    queue_size: int
    queued_work_core_seconds: float
    remaining_work_core_seconds: float
    free_processors: int
    total_processors: int
    running_jobs: int
    running_mean_processors: float
    running_mean_age_seconds: float
    waiting_mean_processors: float
    waiting_mean_age_seconds: float

    @property
    def utilisation(self) -> float:
        """Share of the fixed processors that is busy, 0 to 1."""
        if self.total_processors <= 0:
            return 0.0
        return 1.0 - max(0, self.free_processors) / self.total_processors


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

    ``states`` are Slurm's own words (``IDLE``, ``ALLOCATED``, ``CLOUD``, ``POWERED_DOWN``, ...). Words nobody
    here knows are kept: policy asks the named predicates and does nothing about what it does not know
    (docs/faults.md, F16).

    ``features`` are those the node may have, ``active_features`` those it has now (None: not told); jobs are
    matched with the active ones. ``weight``: Slurm fills nodes of low weight first (None: not told).
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

    @property
    def is_cloud(self) -> bool:
        """True for a node that exists only while it is paid for."""
        return "CLOUD" in self.states

    @property
    def is_down(self) -> bool:
        """True when Slurm will not use the node before somebody acts."""
        return bool(self.states & {"DOWN", "FAIL", "ERROR"})

    @property
    def is_draining(self) -> bool:
        """True when no new job will start on the node."""
        return "DRAIN" in self.states

    @property
    def is_busy(self) -> bool:
        """True when a job holds the node."""
        return bool(self.states & {"ALLOCATED", "MIXED", "COMPLETING"})

    @property
    def power(self) -> NodePower:
        """Power state; ``UNKNOWN`` is answered by doing nothing."""
        if "POWERING_DOWN" in self.states:
            return NodePower.POWERING_DOWN
        if "POWERING_UP" in self.states:
            return NodePower.POWERING_UP
        if "POWERED_DOWN" in self.states or ("POWER_DOWN" in self.states and not self.is_busy):
            return NodePower.DOWN  # marked to go down after its job, it is up until then
        if self.states & {"IDLE", "ALLOCATED", "MIXED", "COMPLETING"}:
            return NodePower.UP
        return NodePower.UNKNOWN
