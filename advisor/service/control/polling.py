"""The look loop: one query of Slurm, seen by all loops, handed to `advisor serve` and `advisor status`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from msgspec import structs

from advisor.decide.submission.capacity import is_never_spot
from advisor.ec2.prices import Prices
from advisor.model.advice import Capacity
from advisor.model.cluster import ClusterState, Node, NodePower
from advisor.model.settings import Settings
from advisor.model.site import CloudState, Cutoff, PerformanceRatios, SiteState
from advisor.service.cloud.launch_record import AskWhetherOpen, CloudRecord
from advisor.service.cloud.money import reserved_free, reserved_in_force
from advisor.service.cloud.pricing import AskPrices
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.exchange.status_file import write as write_status
from advisor.service.learn.placement_loop import PlacementLoop
from advisor.service.observation.cloud_rooms import NO_ROOM, cloud_rooms
from advisor.service.observation.committed import with_committed
from advisor.service.observation.hedge_budget import HedgeBudget
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import (
    active_features,
    burst_nodes,
    cluster_state,
    free_nodes,
    is_paid_for,
    without_doubles,
)
from advisor.service.running.clock import Clock
from advisor.service.running.loops import Step
from advisor.slurm.protocol import SlurmBackend, SlurmSnapshot

_CONFIG_SECONDS: Final = 60.0
_JOB_REQUEUE: Final = {"0": False, "1": True}  # scontrol's words for it


class PollLoop:
    """Looks at Slurm and publishes what it sees.

    Parameters
    ----------
    settings : Settings
        In force.
    slurm : SlurmBackend
        Asked.
    view : SharedView
        Told.
    cloud : CloudRecord
        What is known of the cloud.
    is_open : callable
        Whether spot and on-demand capacity can be had.
    status : callable
        What else `advisor status` shows.
    clock : Clock
        Time.
    prices : callable, optional
        Prices in force; the settings' own without it.
    placement : PlacementLoop, optional
        Told what was seen; knows the record of the advisor's own placement rule.
    hedges : HedgeBudget, optional
        Told what was seen; knows what is left for hedges.
    cutoff : callable, optional
        The published rule's cutoff that a backtest has chosen.
    ratios : callable, optional
        s(c) as learned.
    looked : callable, optional
        Called after each look that succeeded.
    spot_nodes : callable, optional
        Cloud nodes known to be spot: they use up no reserved instance.
    mean_processors : callable, optional
        Of the site's finished jobs; None while there are none.
    """

    name = "look"

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: SlurmBackend,
        view: SharedView,
        cloud: CloudRecord,
        is_open: AskWhetherOpen,
        status: Callable[[], Mapping[str, Any]],
        clock: Clock,
        prices: AskPrices | None = None,
        placement: PlacementLoop | None = None,
        hedges: HedgeBudget | None = None,
        cutoff: Callable[[], Cutoff | None] = lambda: None,
        ratios: Callable[[], PerformanceRatios | None] = lambda: None,
        looked: Callable[[], None] = lambda: None,
        spot_nodes: Callable[[], Collection[str]] = frozenset,
        mean_processors: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._slurm = slurm
        self._view = view
        self._cloud = cloud
        self._is_open = is_open
        self._status = status
        self._clock = clock
        self._prices = prices or (lambda: Prices.of_settings(settings.ec2))
        self._placement = placement
        self._hedges = hedges
        self._cutoff = cutoff
        self._ratios = ratios
        self._looked = looked
        self._spot_nodes = spot_nodes
        self._mean_processors = mean_processors
        self._seen: tuple[SlurmSnapshot, ClusterState] | None = None
        self._next_config = -math.inf  # monotonic seconds
        self.job_requeue: bool | None = None

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return self._settings.loops.snapshot_seconds

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            Step("look at Slurm", self.look),
            Step("read slurm.conf", self.read_config),
            Step("hand over the queue", self.hand_over),
            Step("publish snapshot", self.publish),
            Step("write status", self.write_status),
        )

    def look(self) -> None:
        """One query; when it fails, what was seen before grows old and is not believed for long."""
        self._seen = None
        snapshot = self._slurm.snapshot(self._clock.wall())
        state = cluster_state(snapshot, self._settings)
        self._view.update(snapshot, state)
        self._seen = snapshot, state
        self._looked()

    def read_config(self) -> None:
        """Once a minute: an admin may change slurm.conf and reconfigure at any time."""
        now = self._clock.monotonic()
        if now < self._next_config:
            return
        said = self._slurm.config().get("JobRequeue")
        if said in _JOB_REQUEUE:
            self.job_requeue = _JOB_REQUEUE[said]
        self._next_config = now + _CONFIG_SECONDS

    def hand_over(self) -> None:
        """Say what has happened to the queue, for the forecasts of the advisor's own placement rule."""
        if self._seen is not None and self._placement is not None:
            snapshot, state = self._seen
            usable = _usable(burst_nodes(snapshot, self._settings))
            queue = replace(snapshot, jobs=tuple(without_doubles(snapshot.jobs)))
            self._placement.saw(queue, state, self._boot_seconds(usable))

    def publish(self) -> None:
        """Replace the file that the submit server reads; only with something new."""
        if self._seen is None:
            return
        snapshot, state = self._seen
        nodes = burst_nodes(snapshot, self._settings)
        cloud = with_committed(self.cloud_state(nodes), snapshot.jobs, self._settings)
        if self._hedges is not None:
            self._hedges.saw(snapshot, cloud)
        usable = _usable(nodes)
        rooms = cloud_rooms(usable, snapshot, self._settings.cluster.burst_partition)
        if nodes and not usable:
            rooms = dict(NO_ROOM)
        snapshots.write(
            self._settings.paths.snapshot,
            Snapshot(
                state=SiteState(
                    time=snapshot.time,
                    cluster=state,
                    cloud=structs.replace(cloud, rooms=rooms),
                    record=None if self._placement is None else self._placement.record,
                    hedge_price=None if self._placement is None else self._placement.hedge_price,
                    hedge_left_core_seconds=None if self._hedges is None else self._hedges.left_core_seconds,
                    cutoff=self._cutoff(),
                    waiting_price=self._waiting_price(),
                    free_nodes=free_nodes(snapshot, self._settings),
                    ratios=self._ratios(),
                ),
                job_requeue=self.job_requeue,
                counters={
                    "look_seconds": snapshot.seconds,
                    "jobs": float(len(snapshot.jobs)),
                    "malformed_records": float(snapshot.malformed),
                },
            ),
        )

    def cloud_state(self, nodes: Sequence[Node]) -> CloudState:
        """The cloud side, from the burst partition's nodes and what was learned."""
        usable = _usable(nodes)
        up = sum(is_paid_for(node) for node in usable)
        (spent, spent_by_account), (promised, promised_by_account) = self._cloud.budget.exposure_today()
        _, on_demand_open = self._is_open()
        common = set(usable[0].features).intersection(*(n.features for n in usable)) if usable else set[str]()
        processors = min((node.processors for node in usable), default=0)
        prices = self._prices()
        return CloudState(
            boot_seconds=self._boot_seconds(usable),
            reserved_free_nodes=reserved_free(
                # one that is drained uses its instance up as long as it has a job
                reserved_in_force(self._settings.capacity, prices),
                nodes,
                self._spot_nodes(),
            ),
            spot_open=self._is_spot_open(usable),
            on_demand_open=on_demand_open,
            protected=self._cloud.protected,
            spent_today_usd=spent,
            spent_today_by_account=spent_by_account,
            promised_usd=promised,
            promised_by_account=promised_by_account,
            spot_usd_per_core_hour=prices.spot.usd_per_hour / processors if processors else None,
            on_demand_usd_per_core_hour=prices.on_demand.usd_per_hour / processors if processors else None,
            nodes_up=up,
            nodes_total=len(usable),
            processors_per_node=processors,
            memory_mb_per_node=min((node.memory_mb for node in usable), default=0),
            features=tuple(sorted(common)),
            # slurmctld matches submissions with the active features
            nodes_with=MappingProxyType(
                Counter(feature for node in usable for feature in set(active_features(node)))
            ),
            steady_free_nodes=self._steady_free(usable),
        )

    def _waiting_price(self) -> float | None:
        mean = self._mean_processors()
        return None if mean is None else self._settings.waiting.price_of_waiting(mean)

    def _is_spot_open(self, usable: Sequence[Node]) -> bool:
        is_open, _ = self._is_open()
        return is_open and not all(is_never_spot(node.features) for node in usable)

    def _boot_seconds(self, usable: Sequence[Node]) -> float | None:
        """Of the option that is tried first; None while too few boots have been seen."""
        is_spot = self._settings.capacity.use_spot and self._is_spot_open(usable)
        return self._cloud.boot_seconds_of((Capacity.SPOT if is_spot else Capacity.ON_DEMAND).value)

    def _steady_free(self, usable: Sequence[Node]) -> int:
        """Idle nodes that the match loop has marked; while it is off the feature means nothing."""
        matching = self._settings.matching
        if not matching.enabled:
            return 0
        return sum(
            node.power is NodePower.UP
            and not node.is_busy
            and matching.steady_feature in active_features(node)
            for node in usable
        )

    def write_status(self) -> None:
        """Replace the file that `advisor status` reads, also when Slurm was not to be seen."""
        content: dict[str, Any] = {"time": self._clock.wall(), **self._status()}
        if self._seen is not None:
            snapshot, state = self._seen
            nodes = burst_nodes(snapshot, self._settings)
            content |= {
                "cluster": state,
                "cloud": with_committed(self.cloud_state(nodes), snapshot.jobs, self._settings),
                "cloud_nodes": dict(Counter(node.power.value for node in nodes)),
                "jobs": dict(Counter(job.state for job in snapshot.jobs)),
                "look_seconds": snapshot.seconds,
                "malformed_records": snapshot.malformed,
            }
        write_status(self._settings.paths.run, content)


def _usable(nodes: Sequence[Node]) -> list[Node]:
    """A node that is down or drained takes no job; one that waits to be powered up does."""
    return [node for node in nodes if not (node.is_down or node.is_draining)]
