"""Everything outside the job itself that a decision may look at."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from advisor.model.cluster import ClusterState
from advisor.model.job import Job

_NOTHING: Final = MappingProxyType[str, float]({})


class Room(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When cloud nodes of one kind have room for jobs of one size, behind all that wait there already.

    Attributes
    ----------
    processors : int
        Size of a place: so many processors on one node.
    free : int
        Places that are free now, on nodes that are up or powered down.
    later : tuple of float
        When further places are expected to come free, seconds on the clock of ``SiteState.time``, ascending;
        the first hundreds of them.
    total : int
        All places, free and taken.
    """

    processors: int
    free: int
    later: tuple[float, ...] = ()
    total: int = 0


class CloudState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The cloud side at one moment, as `advisor control` last saw it.

    Attributes
    ----------
    boot_seconds : float or None
        Learned boot time; None until enough boots were seen (the setting holds then).
    reserved_free_nodes : int
        Reserved instances nobody uses.
    spot_open, on_demand_open : bool
        False while every pool of that option is closed by its breaker.
    protected : str
        Why nothing is sent to the cloud at all (ten boot failures, unreadable API); empty when all is well.
    spent_today_usd, promised_usd : float
        What nodes have cost since midnight UTC, and what launched nodes and moved jobs that still wait are
        expected to cost. Caps hold for both together.
    spent_today_by_account, promised_by_account : mapping
        The same per account.
    spot_usd_per_core_hour, on_demand_usd_per_core_hour : float or None
        Last good prices; None until known (the settings hold then).
    nodes_up : int
        Cloud nodes running or booting.
    nodes_total : int
        Cloud nodes the burst partition has; 0 when unknown.
    processors_per_node : int
        Processors of the smallest cloud node; 0 when unknown.
    memory_mb_per_node : int
        Memory of the smallest cloud node in MiB; 0 when unknown.
    features : tuple of str
        Node features every cloud node has: a job that asks for another one would never start there.
    nodes_with : mapping
        How many usable cloud nodes have each feature. slurmctld refuses a job that asks for, or prefers, a
        feature of fewer nodes than it needs.
    steady_free_nodes : int
        Idle cloud nodes that are marked as expected to stay (``matching.steady_feature``).
    rooms : dict
        The cloud's queue: by kind of node (``""``: any; ``spot``: those that may be spot; ``on-demand``,
        ``reserved``: those with that feature) its rooms, from small places to whole nodes. A kind that is not
        named is as ``""``; none at all: nothing is known of the queue.
    taken_processors : int
        What jobs moved since the look have taken of them; a job on several nodes takes whole ones.
    """

    boot_seconds: float | None = None
    reserved_free_nodes: int = 0
    spot_open: bool = True
    on_demand_open: bool = True
    protected: str = ""
    spent_today_usd: float = 0.0
    spent_today_by_account: MappingProxyType[str, float] = msgspec.field(default_factory=lambda: _NOTHING)
    promised_usd: float = 0.0
    promised_by_account: MappingProxyType[str, float] = msgspec.field(default_factory=lambda: _NOTHING)
    spot_usd_per_core_hour: float | None = None
    on_demand_usd_per_core_hour: float | None = None
    nodes_up: int = 0
    nodes_total: int = 0
    processors_per_node: int = 0
    memory_mb_per_node: int = 0
    features: tuple[str, ...] = ()
    nodes_with: MappingProxyType[str, float] = msgspec.field(default_factory=lambda: _NOTHING)
    steady_free_nodes: int = 0
    rooms: dict[str, tuple[Room, ...]] = {}
    taken_processors: int = 0

    def nodes_needed(self, job: Job) -> int | None:
        """Cloud nodes that one task of a job needs, at least one; None where nobody can tell.

        That is while the size of a node is unknown and the job names no number. A job that asks for 0 nodes
        asks for none in particular.
        """
        if not self.processors_per_node:
            return job.nodes or None
        return max(job.nodes or 1, -(-job.processors // self.processors_per_node))

    def nodes_at_most(self, job: Job) -> int:
        """The same, where nobody can tell one core to a node: nothing is promised that is not there."""
        return self.nodes_needed(job) or max(1, job.processors)

    def processors_taken_by(self, job: Job) -> int:
        """What all tasks of a job take of the cloud: its processors, or whole nodes if it needs several."""
        nodes = self.nodes_at_most(job)
        return job.array_tasks * (nodes * (self.processors_per_node or 1) if nodes > 1 else job.processors)

    def committed(
        self, usd: float, by_account: Mapping[str, float], reserved_nodes: int, processors: int = 0
    ) -> CloudState:
        """The cloud with so many dollars more promised today, so many reserved nodes and processors taken."""
        by_account_now = self.promised_by_account
        if by_account:
            promised = dict(by_account_now)
            for account, more in by_account.items():
                promised[account] = promised.get(account, 0.0) + more
            by_account_now = MappingProxyType(promised)
        return replace(
            self,
            promised_usd=self.promised_usd + usd,
            promised_by_account=by_account_now,
            reserved_free_nodes=max(0, self.reserved_free_nodes - reserved_nodes),
            taken_processors=self.taken_processors + processors,
        )


class Earned(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What some moves brought, counted when the jobs had ended.

    Attributes
    ----------
    saved_seconds : float
        Sum of what the moves saved (negative: lost).
    absolute_seconds, squared_seconds : float
        Sums of the absolute values, and of the squares.
    """

    saved_seconds: float = 0.0
    absolute_seconds: float = 0.0
    squared_seconds: float = 0.0

    def __add__(self, other: Earned) -> Earned:
        """Both together."""
        return Earned(
            saved_seconds=self.saved_seconds + other.saved_seconds,
            absolute_seconds=self.absolute_seconds + other.absolute_seconds,
            squared_seconds=self.squared_seconds + other.squared_seconds,
        )


class TrackRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What moving jobs has brought so far: the right to risk anything.

    Every job whose expected gain is large enough counts, moved or not.

    Attributes
    ----------
    bands : tuple of Earned
        By the probability of being faster that was forecast (`advisor.decide.submission.record.bands`),
        least likely first; empty: nothing yet.
    at_risk_seconds : float
        What jobs in the cloud now could lose at worst.
    may_lose_seconds : float or None
        What they may lose: what moves have won and lost so far, and ``placement.loss_share`` of what a
        clairvoyant would have saved. None where nobody counts it.
    """

    bands: tuple[Earned, ...] = ()
    at_risk_seconds: float = 0.0
    may_lose_seconds: float | None = None


class Cutoff(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """a and b of the published rule's cutoff C = a*exp(-b*o*c).

    Attributes
    ----------
    scale : float
        a, seconds squared: variance of the wait tolerated where the cloud costs nothing.
    decay : float
        b, without a unit.
    """

    scale: float
    decay: float


class FreeNodes(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """On-premise nodes on which jobs may start, alike in what they have to give.

    Attributes
    ----------
    nodes : int
        How many are alike.
    processors : int
        Processors of each that no job holds, at least 1.
    memory_mb : int
        Memory of each in MiB; 0 on nodes that run jobs, for what those use is not known.
    features : tuple of str
        Features that each has now.
    partitions : tuple of str
        On-premise partitions that each is in.
    """

    nodes: int
    processors: int
    memory_mb: int = 0
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


class Ratio(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was learned of the performance ratio of one partition or application.

    Attributes
    ----------
    factor : float
        Times the site's s(c).
    deviation : float
        Standard deviation of the logarithm of the ratio of a job there: 0.1 is give or take 10 %.
    jobs : int
        Cloud runs it rests on.
    """

    factor: float
    deviation: float
    jobs: int


class PerformanceRatios(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """s(c) = o*c + i as learned from jobs that ran on both sides.

    Attributes
    ----------
    overhead, baseline : float
        o and i of the site.
    deviation : float
        Of the logarithm of the ratio of a job of which nothing more is known.
    jobs : int
        Cloud runs it rests on.
    partitions, applications : dict of str to Ratio
        Those seen often enough: by the partition a job was submitted to, and by its name without counters.
    """

    overhead: float
    baseline: float
    deviation: float
    jobs: int
    partitions: dict[str, Ratio] = {}
    applications: dict[str, Ratio] = {}

    def of(self, processors: int, partition: str | None, application: str | None) -> Ratio:
        """The ratio of one job; its ``factor`` is the whole of s(c), and ``jobs`` those nearest to it."""
        line = self.overhead * processors + self.baseline
        nearest = (line, self.deviation, self.jobs)
        for kept, name in ((self.partitions, partition), (self.applications, application)):
            if name is not None and (one := kept.get(name)) is not None:
                nearest = (nearest[0] * one.factor, one.deviation, one.jobs)
        factor, deviation, jobs = nearest
        return Ratio(factor=factor, deviation=deviation, jobs=jobs)


class SiteState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Cluster and cloud as one submission meets them.

    Attributes
    ----------
    time : float
        Now, seconds since the epoch (in a replay: since the log's start).
    cluster : ClusterState or None
        None when there is no snapshot or it is too old to be believed: doubt means on-premise.
    cloud : CloudState
        The cloud side.
    record : TrackRecord or None
        None where nobody keeps one: the advisor's own rule then asks for no record.
    hedge_price : float or None
        Seconds of turnaround that a core-second of a hedge must bring; None where none is known.
    hedge_left_core_seconds : float or None
        Core-seconds that hedges may still reserve; None where there is no budget.
    cutoff : Cutoff or None
        The published rule's cutoff as a backtest on the site's jobs has chosen it; None: none has.
    waiting_price : float or None
        Core-seconds worth paying to save a job one second of waiting; None where none is known.
    free_nodes : tuple of FreeNodes, or None
        Nodes with free processors at the last look; None where only their sum is known.
    ratios : PerformanceRatios or None
        s(c) as learned; None: nothing ran on both sides yet, the settings say it.
    """

    time: float
    cluster: ClusterState | None
    cloud: CloudState = CloudState()
    record: TrackRecord | None = None
    hedge_price: float | None = None
    hedge_left_core_seconds: float | None = None
    cutoff: Cutoff | None = None
    waiting_price: float | None = None
    free_nodes: tuple[FreeNodes, ...] | None = None
    ratios: PerformanceRatios | None = None
