"""The poll loop: one query of Slurm, shared by all loops, handed to `advisor serve` and `advisor status`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from advisor.decide.submission.capacity import is_never_spot
from advisor.decide.submission.cloud_terms import boot_seconds
from advisor.decide.submission.policy import QUEUE_POLICIES
from advisor.ec2.account import Account
from advisor.ec2.classes import class_of_nodes
from advisor.ec2.instances import Instance
from advisor.ec2.prices import Prices
from advisor.model.advice import Capacity
from advisor.model.cluster import Limit, Node, NodePower
from advisor.model.errors import TellAdmin
from advisor.model.limits import limits_there
from advisor.model.machine import NOT_KNOWN, PartitionTerms
from advisor.model.scheduler import Scheduler
from advisor.model.settings import Settings
from advisor.model.site import CloudState, SiteState
from advisor.model.snapshot import ClusterSnapshot, QueuedJob, Reservation
from advisor.service.cloud.node_classes import class_states
from advisor.service.cloud.paid_now import AskAccount, PaidNow
from advisor.service.cloud.pricing import AskPrices
from advisor.service.cloud.startable import startable, without_room
from advisor.service.control.first_priorities import FirstPriorities
from advisor.service.control.small_first import rows_before_small
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.exchange.status_file import write as write_status
from advisor.service.observation.cloud_rooms import NO_ROOM, cloud_rooms
from advisor.service.observation.committed import with_committed
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.reserved_nodes import drawn_to, open_cloud_nodes
from advisor.service.observation.sharing import sharing_of
from advisor.service.observation.site_view import (
    PAID_FOR,
    active_features,
    burst_nodes,
    cluster_state,
    nodes_with,
    smallest_memory_mb,
    within_limits,
)
from advisor.service.price.partition_tiers import of_new_jobs
from advisor.service.price.queue_view import (
    AskRuns,
    OnPremiseQueue,
    on_premise_queue,
    run_to_limits,
    seen_queues,
)
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Poll
from advisor.service.running.isolating import for_each
from advisor.service.running.loops import Step
from advisor.service.state.cloud_record import AskClosedOptions, CloudRecord
from advisor.service.waiting.unadvised import before_unadvised
from advisor.slurm.steering import Ageing

_CONFIG_SECONDS: Final = 60.0
_RESERVED_AHEAD_SECONDS: Final = 86_400.0
"""Nodes that are reserved so soon count as having no room: a job that is sent there may run that long."""
_NAMED_IN: Final = {"slurm": ("partition", "slurm.conf"), "lsf": ("queue", "lsb.queues")}
_JOB_REQUEUE: Final = {"0": False, "1": True}  # scontrol's words for it


class PollLoop:
    """Polls Slurm, hands the poll to the features, and publishes the site's state.

    Args:
        status: The fields of status.json that no poll shows.
        features: Take in each poll and add to the state that is published.
        prices: Prices in force; the settings' own without it.
        stop_of: The stop of a job that keeps a place.
        renew: Promises nodes the money of jobs that have begun on them since the poll before.
        foreseen: Returns a queue as it is once the moves under way are made.
    """

    name = "poll"

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: Scheduler,
        view: SharedView,
        cloud: CloudRecord,
        closings: AskClosedOptions,
        status: Callable[[], Mapping[str, Any]],
        clock: Clock,
        features: Sequence[Feature] = (),
        runs: AskRuns = run_to_limits,
        prices: AskPrices | None = None,
        instances: Callable[[], Sequence[Instance]] = tuple,
        account: AskAccount = Account,
        stop_of: Callable[[int], float | None] = lambda _: None,
        renew: Callable[[], object] = lambda: None,
        foreseen: Callable[[Sequence[QueuedJob]], Sequence[QueuedJob]] = lambda jobs: jobs,
    ) -> None:
        self._settings = settings
        self.period_seconds = settings.loops.snapshot_seconds
        self._slurm = slurm
        self._view = view
        self._cloud = cloud
        self._closings = closings
        self._status = status
        self._clock = clock
        self._features = features
        self._runs = runs
        self._prices = prices or (lambda: Prices.of_settings(settings.ec2))
        self._instances = instances
        self._account = account
        self._stop_of = stop_of
        self._renew = renew
        self._foreseen = foreseen
        self._paid = PaidNow(settings, account, self._prices)
        self._class_of = class_of_nodes(settings.ec2)
        self._last: Poll | None = None
        self._next_config = -math.inf  # monotonic seconds
        self.job_requeue: bool | None = None
        self._sharing = NOT_KNOWN
        self._reservations: tuple[Reservation, ...] = ()
        self._ageing: Ageing | None = None
        self._priorities = FirstPriorities()

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            Step("read slurm.conf", self.read_config),
            Step("poll Slurm", self.poll),
            Step("hand over the poll", self.hand_over),
            Step("publish snapshot", self.publish),
            Step("write status", self.write_status),
            Step("find all partitions", self.tell_missing),
        )

    def poll(self) -> None:
        """Query Slurm once; when that fails, the former snapshot ages and is soon not believed any more."""
        self._last = None
        found = self._slurm.snapshot(self._clock.wall())
        snapshot = replace(found, sharing=self._sharing, reservations=self._reservations)
        cluster = cluster_state(self._met(snapshot), self._settings)
        self._view.update(snapshot, cluster)
        self._renew()
        cloud = self.cloud_state(burst_nodes(snapshot, self._settings), snapshot.reservations)
        cloud = with_committed(cloud, self._foreseen(snapshot.jobs), self._settings, self._stop_of)
        self._last = Poll(snapshot=snapshot, cluster=cluster, cloud=cloud)

    def hand_over(self) -> None:
        """Give the poll to each feature, whatever happens in the others."""
        poll = self._last
        if poll is not None:
            for_each(self._features, lambda feature: feature.polled(poll))

    def read_config(self) -> None:
        """Once a minute: an admin may change slurm.conf and reconfigure at any time."""
        now = self._clock.monotonic()
        if now < self._next_config:
            return
        config = self._slurm.config()
        said = config.get("JobRequeue")
        if said in _JOB_REQUEUE:
            self.job_requeue = _JOB_REQUEUE[said]
        self._sharing = sharing_of(config, self._slurm.partitions())
        self._reservations = self._slurm.reservations()
        self._ageing = Ageing.of(config)
        self._next_config = now + _CONFIG_SECONDS

    def tell_missing(self) -> None:
        """Say which partition of the settings is not there; without a cloud only shadow mode may begin.

        Raises:
            TellAdmin: There is one: it was renamed or removed, and no job moves from or to it.
        """
        cluster, existing = self._settings.cluster, self._sharing.partitions
        named = {"on_premise_partitions": cluster.on_premise_partitions}
        named["burst_partition"] = (cluster.burst_partition,) if cluster.moves_jobs else ()
        for setting, names in named.items():
            gone = [name for name in names if existing and name not in existing]
            if gone:
                what, file = _NAMED_IN[cluster.scheduler]
                raise TellAdmin(
                    f"the cluster has no {what} {', '.join(gone)}: no job moves from or to it. Correct "
                    f"cluster.{setting} or {file}",
                    code="cluster.no_partition",
                )

    def publish(self) -> None:
        """Replace the file that the submit server reads, where there is a new poll."""
        if self._last is None:
            return
        snapshot = self._last.snapshot
        queue = self._queue(self._met(snapshot))
        site = SiteState(
            time=snapshot.time,
            cluster=self._last.cluster,
            cloud=self._with_rooms(self._last),
            node_memory_mb=smallest_memory_mb(snapshot, self._settings),
            limits=self._limits(snapshot),
        )
        for feature in self._features:
            site = feature.publish(site)
        snapshots.write(
            self._settings.paths.snapshot,
            Snapshot(
                state=site,
                job_requeue=self.job_requeue,
                queues=() if queue is None else self._queues(queue),
                first_priorities={} if queue is None else self._first_priorities(queue),
                counters={
                    "look_seconds": snapshot.seconds,
                    "jobs": float(len(snapshot.jobs)),
                    "malformed_records": float(snapshot.malformed),
                },
            ),
        )

    def _limits(self, snapshot: ClusterSnapshot) -> tuple[Limit, ...]:
        """Those that hold jobs in the burst partition."""
        cluster = self._settings.cluster
        qos_of = {name: terms.qos for name, terms in snapshot.sharing.partitions.items() if terms.qos}
        return limits_there(snapshot.jobs, cluster.on_premise_partitions, cluster.burst_partition, qos_of)

    def _met(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """The queue for a new job: without the jobs that are advised after it was submitted."""
        return snapshot if self._settings.cluster.hook else before_unadvised(snapshot)

    def _queue(self, snapshot: ClusterSnapshot) -> OnPremiseQueue | None:
        """None where no decision asks for it."""
        asks = self._settings.cluster.policy in QUEUE_POLICIES
        return on_premise_queue(snapshot, self._settings) if asks else None

    def _queues(self, queue: OnPremiseQueue) -> tuple[SeenQueue, ...]:
        return tuple(
            structs.replace(seen, before_small=rows)
            for seen, rows in zip(
                seen_queues(queue, self._runs), rows_before_small(queue, self._settings), strict=True
            )
        )

    def _first_priorities(self, queue: OnPremiseQueue) -> dict[str, float]:
        offset = self._settings.size.small_priority_offset
        known = self._priorities.update(queue.waiting, self._ageing, offset, queue.time)
        return of_new_jobs(known, queue.first_priorities)

    def _with_rooms(self, poll: Poll) -> CloudState:
        """The cloud, and when its nodes have room for further jobs."""
        nodes = burst_nodes(poll.snapshot, self._settings)
        found = poll.snapshot
        usable, _ = open_cloud_nodes(nodes, found.reservations, found.time, _RESERVED_AHEAD_SECONDS)
        listed = self._instances()
        able = startable(
            usable,
            self._paid.types_of,
            self._account(),
            listed,
            self._paid.at_poll(nodes, listed),
            use_spot=self._settings.capacity.use_spot,
        )
        boot = boot_seconds(poll.cloud, self._settings)
        burst = self._settings.cluster.burst_partition
        rooms = cloud_rooms(able, poll.snapshot, burst, self._class_of, boot)
        rooms = without_room(rooms, usable, able, self._class_of)
        return structs.replace(poll.cloud, rooms=dict(NO_ROOM) if nodes and not able else rooms)

    def cloud_state(self, nodes: Sequence[Node], reservations: Sequence[Reservation] = ()) -> CloudState:
        """The cloud side, from the burst partition's nodes and what was learned."""
        terms = self._sharing.partitions.get(self._settings.cluster.burst_partition, PartitionTerms())
        usable, reserved = open_cloud_nodes(within_limits(nodes, terms), reservations, self._clock.wall())
        powers = Counter(node.power for node in usable)
        budget = self._settings.budget
        (spent, spent_by_account), (promised, promised_by_account) = self._cloud.budget.exposure(
            budget.period, budget.account_period, budget.user_period
        )
        closings = self._closings()
        of_all = {node.features for node in usable}
        common = set[str].intersection(*map(set, of_all)) if of_all else set[str]()
        processors = min((node.processors for node in usable), default=0)
        prices = self._prices()
        # a node that is drained uses its instance up as long as it has a job
        paid = self._paid.at_poll(nodes, self._instances())
        reserved_free, reserved_until = paid.free((self._settings.ec2.instance_type,))
        return CloudState(
            boot_seconds=self._boot_seconds(usable),
            staging_mb_per_second=self._cloud.staging_mb_per_second,
            reserved_free_nodes=reserved_free,
            reserved_until=reserved_until,
            spot_open=self._is_spot_open(usable),
            on_demand_open=closings.on_demand is None,
            spot_closed=closings.spot,
            on_demand_closed=closings.on_demand,
            closings=reserved,
            denied_accounts=terms.denied_accounts,
            drawn=drawn_to(reservations, self._clock.wall()),
            protected=self._cloud.protected,
            spent_usd=spent,
            spent_by_account=spent_by_account,
            promised_usd=promised,
            promised_by_account=promised_by_account,
            spot_usd_per_core_hour=prices.spot.usd_per_hour / processors if processors else None,
            on_demand_usd_per_core_hour=prices.on_demand.usd_per_hour / processors if processors else None,
            nodes_up=sum(powers[power] for power in PAID_FOR),
            nodes_total=min(len(usable), terms.max_nodes or len(usable)),
            processors_per_node=processors,
            memory_mb_per_node=min((node.memory_mb for node in usable), default=0),
            features=tuple(sorted(common)),
            # slurmctld matches submissions with the active features
            nodes_with=nodes_with(usable),
            steady_free_nodes=self._steady_free(usable),
            default_memory=(terms.memory_per_node, terms.memory_per_processor)
            if self._sharing.memory
            else (0, 0),
            classes=class_states(
                usable,
                self._class_of,
                self._settings.ec2,
                prices,
                self._closings,
                self._boot_seconds,
                paid.free,
                terms.max_nodes,
            ),
        )

    def _is_spot_open(self, usable: Sequence[Node]) -> bool:
        return self._closings().spot is None and not all(is_never_spot(node.features) for node in usable)

    def _boot_seconds(self, usable: Sequence[Node], types: Sequence[str] = ()) -> float | None:
        """Of the option that is tried first; None while too few boots have been seen."""
        is_spot = self._settings.capacity.use_spot and self._is_spot_open(usable)
        return self._cloud.boot_seconds_of((Capacity.SPOT if is_spot else Capacity.ON_DEMAND).value, types)

    def _steady_free(self, usable: Sequence[Node]) -> int:
        """Idle nodes that the match loop has marked; while it is off the feature means nothing."""
        matching = self._settings.matching
        if not matching.enabled:
            return 0
        return sum(
            node.power is NodePower.UP
            and not node.is_busy
            and matching.long_lived_feature in active_features(node)
            for node in usable
        )

    def write_status(self) -> None:
        """Replace the file that `advisor status` reads, also when Slurm did not answer."""
        content: dict[str, Any] = {"time": self._clock.wall(), **self._status()}
        if self._last is not None:
            snapshot = self._last.snapshot
            nodes = burst_nodes(snapshot, self._settings)
            content |= {
                "cluster": self._last.cluster,
                "cloud": self._last.cloud,
                "cloud_nodes": dict(Counter(node.power.value for node in nodes)),
                "jobs": dict(Counter(job.state for job in snapshot.jobs)),
                "look_seconds": snapshot.seconds,
                "malformed_records": snapshot.malformed,
            }
        write_status(self._settings.paths.published, content)
