"""What the features of `advisor control` are connected to, and what they share.

The process makes the connections; a rehearsal and tests make others, to a simulated site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from advisor.ec2.account import Account
from advisor.ec2.fleet import Fleet
from advisor.ec2.pools import UnavailablePools
from advisor.ec2.prices import PriceCache, Prices
from advisor.ec2.reading_account import AccountCache
from advisor.history.models import ModelStore
from advisor.history.store import HistoryStore
from advisor.model.burst_limits import BurstLimits
from advisor.model.job import Job
from advisor.model.scheduler import Scheduler
from advisor.service.cloud.interrupting import SpotParts
from advisor.service.exchange.handover import HandoverFolder
from advisor.service.exchange.protocol import AdviseReply
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.running.metrics import ControlMetrics
from advisor.service.stability.outlook import PoolOrder
from advisor.service.stability.steering import NodeConstraintSource
from advisor.service.state.cloud_record import CloudRecord
from advisor.slurm.block_ends import BlockEnds
from advisor.slurm.placeholders import Placeholders
from advisor.slurm.steering import BurstSteering


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """The connections to Slurm and EC2. A part that is None switches off the features that need it.

    Attributes:
        fleet: Launches and ends instances; None where ``ec2.image_id`` is empty.
        breakers: Which pools the fleet leaves alone.
        prices: What nodes cost; None: what the settings say.
        account: What the AWS account has paid for already, others' instances, quotas.
        block_ends: Keeps jobs from running past the end of a capacity block.
        spot: What EC2 says about the end of instances, and the jobs that are warned.
        places: Submits and follows placeholders.
        steering: Closes nodes and orders jobs for the portfolio loop.
        pool_order: The order in which the fleet tries pools.
        preempting_qos: Which QOS preempt which; None where no such thing is known.
        partitions_of_users: Of a cluster, by user and account: the partitions to which their associations
            are confined.
        limits_in_partition: Limits of a partition and its QOS, by ``(cluster, partition, qos, home)``.
        nodes_in_topology: The nodes that topology.conf names.
        nodes_asked: The features and nodes that a waiting job prefers or excludes.
        has_deadline: Whether the job of an id has one (``sbatch --deadline``).
        ask_again: Asks about a job that waits, with its forecast wait and the one by limits, seconds, where
            they are known; None: by the submit server's socket.
        models: The store of models; None: that in ``paths.models``.
    """

    slurm: Scheduler
    fleet: Fleet | None = None
    breakers: UnavailablePools | None = None
    prices: PriceCache | None = None
    account: AccountCache | None = None
    block_ends: BlockEnds | None = None
    spot: SpotParts | None = None
    places: Placeholders | None = None
    steering: BurstSteering | None = None
    pool_order: PoolOrder | None = None
    preempting_qos: Callable[[], Mapping[str, frozenset[str]]] | None = None
    partitions_of_users: Callable[[str], Mapping[tuple[str, str], frozenset[str]]] | None = None
    limits_in_partition: Callable[[str, str, str, Mapping[str, str]], BurstLimits] | None = None
    nodes_in_topology: Callable[[], frozenset[str]] | None = None
    nodes_asked: NodeConstraintSource | None = None
    has_deadline: Callable[[int], bool] | None = None
    ask_again: Callable[[Job, float | None, float | None], AdviseReply] | None = None
    models: ModelStore | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The objects that the features share."""

    clock: Clock
    store: HistoryStore
    models: ModelStore
    view: SharedView
    cloud: CloudRecord
    folder: HandoverFolder
    metrics: ControlMetrics
    prices: Callable[[], Prices]
    account: Callable[[], Account]
    wake_poll: Callable[[], None]
