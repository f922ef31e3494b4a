"""The state that `advisor control` publishes, and by which `serve` decides: cluster, cloud, money."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from advisor.model.advice import Capacity
from advisor.model.burst_limits import BurstLimits
from advisor.model.cluster import ClusterState, Limit
from advisor.model.job import Job
from advisor.model.node_classes import ClosedCapacity, NodeClassState, ReservedUntil, class_for, less_reserved
from advisor.model.periods import any_of
from advisor.model.spot_pools import SpotPool
from advisor.model.submit_limits import SubmitKey

_NOTHING: Final = MappingProxyType[str, float]({})


class Room(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When cloud nodes of one kind have room for jobs of one size, after all jobs that already wait there.

    Attributes:
        processors: Size of one place: processors on one node.
        free: Places that are free now, on nodes that are up or powered down.
        up: Those of them on nodes that are up: a job starts there without a boot.
        later: Expected times at which further places become free, seconds on the clock of ``SiteState.time``,
            ascending; the first few hundred.
        total: All places, free and taken.
    """

    processors: int
    free: int
    up: int = 0
    later: tuple[float, ...] = ()
    total: int = 0


ROOM_KINDS: Final = ("", *(capacity.value for capacity in Capacity))
"""The kinds of nodes by which ``CloudState.rooms`` are counted, of all nodes and of each class."""


def class_kind(name: str, kind: str = "") -> str:
    """The key of ``CloudState.rooms`` of a class of nodes, or of those of a kind in it."""
    return f"{kind} class {name}".lstrip()


class CloudState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The cloud side at one moment, as `advisor control` last saw it.

    Attributes:
        boot_seconds: Learned boot time; None, and the setting is used, until enough boots were seen.
        staging_mb_per_second: Learned speed of the stage-in command; None, and the setting is used, until it
            was measured often enough.
        reserved_free_nodes: Nodes of ``ec2.instance_type`` without a job that are paid for already.
        reserved_until: The same for capacity that ends, such as a capacity block: no job that runs longer
            uses it.
        spot_open, on_demand_open: False while the circuit breakers of all pools of that option are open.
        spot_closed, on_demand_closed: Until when, and why, those pools are closed; None where one is open.
        closings: From when, epoch seconds, reservations that are not the advisor's leave fewer nodes open
            than before, and how many; no job is sent that needs more and may run into them.
        denied_accounts: Those that the burst partition denies, and from Slurm 23.02 on those below them, in
            lower case. The hook knows only those that are named.
        drawn: Reservation to which jobs of an account or a user (`Job.payers`) are drawn without naming it.
        protected: Why no job is sent to the cloud (ten failed boots, EC2 cannot be read); empty when all is
            well.
        spent_usd, promised_usd: Cost of nodes since the budget's period began, and the expected cost of
            launched nodes and of moved jobs that still wait. The budget limits the sum.
        spent_by_account, promised_by_account: The same per account and per user, in their own periods
            (:attr:`~advisor.model.job.Job.payers`).
        spot_usd_per_core_hour, on_demand_usd_per_core_hour: Last known prices; None, and the settings are
            used, until there are any.
        nodes_up: Cloud nodes running or booting.
        nodes_total: Cloud nodes of the burst partition; 0 when unknown.
        processors_per_node: Processors of the smallest cloud node; 0 when unknown.
        memory_mb_per_node: Memory of the smallest cloud node in MiB; 0 when unknown.
        features: Features that every cloud node has. A job that asks for another feature would never start
            there.
        nodes_with: Number of usable cloud nodes by feature. slurmctld refuses a job that requires or prefers
            a feature of fewer nodes than the job needs.
        steady_free_nodes: Idle cloud nodes marked as likely to survive (``matching.long_lived_feature``).
        rooms: The cloud's queue: by kind of node (``""``: any; ``spot``: those that may be spot;
            ``on-demand``, ``reserved``: those with that feature; `class_kind`: those of a class) its rooms,
            from small places to whole nodes. A kind that is not named is as ``""``; none at all: nothing is
            known of the queue.
        classes: Classes of the nodes; empty where the site has none (``ec2.classes``).
        node_class: The class of which this is the state (:meth:`for_job`); None: all nodes.
        spot_pools: How long instances of each spot pool last; empty until enough of them were seen.
        default_memory: What the burst partition gives a job that asks for no memory, MiB: of a node, else of
            a processor; 0: nothing, or jobs do not wait for memory.
        taken_processors: Processors taken by jobs moved since the last poll; a job on several nodes takes
            whole nodes.
    """

    boot_seconds: float | None = None
    staging_mb_per_second: float | None = None
    reserved_free_nodes: int = 0
    reserved_until: tuple[ReservedUntil, ...] = ()
    spot_open: bool = True
    on_demand_open: bool = True
    spot_closed: ClosedCapacity | None = None
    on_demand_closed: ClosedCapacity | None = None
    closings: tuple[tuple[float, int], ...] = ()
    denied_accounts: frozenset[str] = frozenset()
    drawn: dict[str, str] = {}
    protected: str = ""
    spent_usd: float = 0.0
    spent_by_account: MappingProxyType[str, float] = msgspec.field(default_factory=lambda: _NOTHING)
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
    spot_pools: tuple[SpotPool, ...] = ()
    classes: tuple[NodeClassState, ...] = ()
    node_class: NodeClassState | None = None
    default_memory: tuple[int, int] = (0, 0)

    def for_job(self, job: Job) -> CloudState:
        """Return the state of the nodes that a job would get: those of the cheapest class that it fits."""
        if not self.classes or self.node_class is not None:
            return self
        found = class_for(job, self.classes)
        rooms = {kind: self.rooms.get(class_kind(found.name, kind), ()) for kind in ROOM_KINDS}
        return replace(
            self,
            node_class=found,
            boot_seconds=self.boot_seconds if found.boot_seconds is None else found.boot_seconds,
            nodes_total=found.nodes_total,
            processors_per_node=found.processors_per_node,
            memory_mb_per_node=found.memory_mb_per_node,
            features=found.features,
            nodes_with=MappingProxyType(found.nodes_with),
            spot_usd_per_core_hour=found.spot_usd_per_hour / found.processors_per_node,
            on_demand_usd_per_core_hour=found.on_demand_usd_per_hour / found.processors_per_node,
            spot_open=found.spot_open,
            on_demand_open=found.on_demand_open,
            on_demand_closed=found.on_demand_closed,
            reserved_free_nodes=found.reserved_free_nodes,
            reserved_until=found.reserved_until,
            rooms={kind: each for kind, each in rooms.items() if each} or self.rooms,
            spot_pools=tuple(pool for pool in self.spot_pools if found.name in pool.classes),
        )

    def as_there(self, job: Job) -> Job:
        """The job as the burst partition takes it: with the memory that it gives one that asks for none."""
        of_node, of_processor = self.default_memory
        if job.memory_mb is not None or not (of_node or of_processor):
            return job
        if of_node:
            return replace(job, memory_mb=of_node * (job.nodes or 1), memory_mb_per_node=of_node)
        return replace(job, memory_mb=of_processor * job.processors)

    @property
    def class_name(self) -> str:
        """The class of which this is the state; empty where there is none or it has no name."""
        return "" if self.node_class is None else self.node_class.name

    def nodes_needed(self, job: Job) -> int | None:
        """Cloud nodes that one task of a job needs, at least one.

        None while the size of a node is unknown and the job requests no number of nodes (0 is no request).
        """
        if not self.processors_per_node:
            return job.most_nodes or job.nodes or None
        return job.nodes_of_size(self.processors_per_node, self.memory_mb_per_node)

    def nodes_at_most(self, job: Job) -> int:
        """Like `nodes_needed`; where that is unknown, one node for each core, the worst case."""
        return self.nodes_needed(job) or max(1, job.processors)

    def closes_for(self, job: Job) -> float:
        """From when reservations leave a job too few nodes, epoch seconds; infinite: they do not."""
        needed = self.nodes_at_most(job) if self.closings else 0
        return next((at for at, left in self.closings if left < needed), math.inf)

    def processors_taken_by(self, job: Job) -> int:
        """Processors that all tasks of a job take; whole nodes where one task needs several."""
        nodes = self.nodes_at_most(job)
        return job.array_tasks * (nodes * (self.processors_per_node or 1) if nodes > 1 else job.processors)

    def committed(
        self, usd: float, by_account: Mapping[str, float], reserved: Mapping[str, int], processors: int = 0
    ) -> CloudState:
        """Return the state after a move: more dollars promised, reserved nodes and processors taken.

        ``reserved``: the nodes by class; the empty name where there are none.
        """
        by_account_now = self.promised_by_account
        if by_account:
            promised = dict(by_account_now)
            for account, more in by_account.items():
                promised[account] = promised.get(account, 0.0) + more
            by_account_now = MappingProxyType(promised)
        free, until = less_reserved(self.reserved_free_nodes, self.reserved_until, reserved.get("", 0))
        return replace(
            self,
            promised_usd=self.promised_usd + usd,
            promised_by_account=by_account_now,
            reserved_free_nodes=free,
            reserved_until=until,
            classes=tuple(each.with_reserved_taken(reserved.get(each.name, 0)) for each in self.classes),
            taken_processors=self.taken_processors + processors,
        )


class Cutoff(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """a and b of the published rule's cutoff C = a*exp(-b*o*c).

    Attributes:
        scale: a, seconds squared: tolerated variance of the wait where the cloud costs nothing.
        decay: b, dimensionless.
    """

    scale: float
    decay: float


class Ratio(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The learned performance ratio of one partition or application.

    Attributes:
        factor: Multiplies the site's s(c).
        deviation: Standard deviation of the logarithm of a job's ratio: 0.1 is about 10 %.
        jobs: Cloud runs it was learned from.
    """

    factor: float
    deviation: float
    jobs: int


class PerformanceRatios(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """s(c) = o*c + i as learned from jobs that ran on both sides.

    Attributes:
        overhead, baseline: o and i of the site.
        deviation: Standard deviation of the logarithm of the ratio of any job.
        jobs: Cloud runs it was learned from.
        partitions, applications: Those with enough runs, by the partition of submission and by the job name
            without counters.
    """

    overhead: float
    baseline: float
    deviation: float
    jobs: int
    partitions: dict[str, Ratio] = {}
    applications: dict[str, Ratio] = {}

    def of(self, processors: int, partition: str | None, application: str | None) -> Ratio:
        """The ratio of one job: ``factor`` is s(c) itself, ``jobs`` the runs of its closest group."""
        line = self.overhead * processors + self.baseline
        nearest = (line, self.deviation, self.jobs)
        for kept, name in ((self.partitions, partition), (self.applications, application)):
            if name is not None and (one := kept.get(name)) is not None:
                nearest = (nearest[0] * one.factor, one.deviation, one.jobs)
        factor, deviation, jobs = nearest
        return Ratio(factor=factor, deviation=deviation, jobs=jobs)


class Refill(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How the site's money that may be committed grows, while nothing else is.

    Attributes:
        usd_per_second, most_usd: It grows so fast, and by so much, in the present period.
        period_ends: Epoch seconds.
        next_usd: It has grown by so much, US dollars, when the next period begins.
    """

    usd_per_second: float
    most_usd: float
    period_ends: float
    next_usd: float

    def seconds_until(self, more_usd: float, now: float) -> float | None:
        """When there is so much more than now, in seconds at the latest; None: that is not known."""
        left = self.period_ends - now
        if more_usd <= 0.0:
            return 0.0
        if more_usd <= self.most_usd and more_usd <= left * self.usd_per_second:
            return more_usd / self.usd_per_second
        return left if more_usd <= self.next_usd and left > 0.0 else None


class Price(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The time that a dollar must save now, and the dollars that may be spent.

    Attributes:
        seconds_per_usd: Seconds of turnaround that a dollar must save.
        tokens_usd: Dollars that further jobs may commit; infinite without a budget.
        tokens_by_account: The same for accounts and users with a budget of their own; ``*`` stands for any
            other (:mod:`advisor.model.periods`).
        refill: How ``tokens_usd`` grows; None where that is unknown or no budget limits them.
        share_by_account: The share of ``seconds_per_usd`` that holds for their jobs; 1 where there is none.
    """

    seconds_per_usd: float
    tokens_usd: float
    tokens_by_account: MappingProxyType[str, float] = msgspec.field(default_factory=lambda: _NOTHING)
    share_by_account: MappingProxyType[str, float] = msgspec.field(default_factory=lambda: _NOTHING)
    refill: Refill | None = None

    def enough_in(self, usd: float, now: float) -> float | None:
        """When the site may commit so many dollars if nothing else is, in seconds at the latest."""
        return None if self.refill is None else self.refill.seconds_until(usd - self.tokens_usd, now)

    def seconds_of(self, payers: Iterable[str]) -> float:
        """Seconds of turnaround that a dollar must save for a job: of its payers the largest share holds."""
        return self.seconds_per_usd * self.share_of(payers)

    def share_of(self, payers: Iterable[str]) -> float:
        """The share of the price that holds for a job."""
        if not self.share_by_account:
            return 1.0
        shares = (_of_payer(self.share_by_account, payer) for payer in payers)
        return max((one for one in shares if one is not None), default=1.0)

    def tokens_of(self, payers: Iterable[str]) -> tuple[float, str]:
        """Dollars that a job may commit, and the payer who has no more; ``""``: the site."""
        found = self.tokens_usd, ""
        if self.tokens_by_account:
            for payer in payers:
                if (left := _of_payer(self.tokens_by_account, payer)) is not None and left < found[0]:
                    found = left, payer
        return found

    def committed(self, usd: float, by_payer: Mapping[str, float]) -> Price:
        """Return the price after starts that may cost so many dollars at worst."""
        tokens = self.tokens_by_account
        if tokens:
            new = dict(tokens)
            for payer, more in by_payer.items():
                if (left := _of_payer(tokens, payer)) is not None:
                    new[payer] = left - more
            tokens = MappingProxyType(new)
        return replace(self, tokens_usd=self.tokens_usd - usd, tokens_by_account=tokens)


def _of_payer(by_payer: Mapping[str, float], payer: str) -> float | None:
    return by_payer.get(payer, by_payer.get(any_of(payer)))


ANY_QOS: Final = ""


class SiteState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Cluster and cloud at one submission.

    Attributes:
        time: Now, seconds since the epoch (in a replay: since the log's start).
        cluster: None when there is no snapshot or it is too old; jobs then stay on-premise.
        cutoff: The published rule's cutoff chosen by a backtest on the site's jobs; None: no backtest yet.
        ratios: The learned s(c); None, and the settings are used, until jobs ran on both sides.
        price: The price of time; None while unknown: policy "price" then moves no job.
        fallen_back: Partitions whose jobs stay on-premise, and why, in words for an admin: their forecasts do
            not hold.
        promised_jobs: Jobs in the queue whose users name a time by which they are to be done, by user.
        limits: Limits of users, accounts and QOS that hold waiting jobs.
        preemptable: By partition and QOS (`ANY_QOS`: jobs of all), the processors that new jobs may take from
            running ones, idle ones included.
        kept_out: Users, with an account, whose associations leave out the burst partition.
        burst_limits: Limits that hold in the burst partition alone; None: there are none.
        full: Limits of jobs in the queue that leave no room for placeholders.
        node_memory_mb: Memory of the smallest usable on-premise node, MiB; 0 when unknown.
    """

    time: float
    cluster: ClusterState | None
    cloud: CloudState = CloudState()
    cutoff: Cutoff | None = None
    ratios: PerformanceRatios | None = None
    price: Price | None = None
    fallen_back: dict[str, str] = {}
    promised_jobs: dict[str, int] = {}
    limits: tuple[Limit, ...] = ()
    preemptable: dict[str, dict[str, int]] = {}
    kept_out: frozenset[tuple[str, str]] = frozenset()
    burst_limits: BurstLimits | None = None
    full: frozenset[SubmitKey] = frozenset()
    node_memory_mb: int = 0

    def sending_none(self, why: str) -> SiteState:
        """The same, and no job is sent to the cloud; an older reason stays."""
        return replace(self, cloud=replace(self.cloud, protected=self.cloud.protected or why))
