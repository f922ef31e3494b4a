"""The features of `advisor control` at this site, in one list.

A feature that is off is not constructed, and the modules that only it needs are not imported.
"""

# ruff: noqa: PLC0415 - a feature's modules are imported where it is on

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from advisor.decide.submission.waiting import has_gate
from advisor.lsf.backend import LsfBackend
from advisor.lsf.cloud_hosts import CloudHosts
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.service.control.connections import Connections, Shared
from advisor.service.exchange import spool
from advisor.service.learn.learning import LearnLoop
from advisor.service.observation.accounting import SOURCE
from advisor.service.price.queue_view import AskRuns, run_to_limits
from advisor.service.running.feature import Feature
from advisor.service.state.state_files import (
    HEDGE_ENTRIES,
    INTERRUPTIONS,
    MOVES,
    PORTFOLIO,
    PRICE,
    SMALL_JOBS,
)

if TYPE_CHECKING:
    from advisor.service.cloud.feature import CloudFeature
    from advisor.service.cloud.resource_connector import ResourceConnector
    from advisor.service.control.preempting import PreemptingFeature
    from advisor.service.hedge.feature import HedgeFeature
    from advisor.service.price.price_loop import PriceLoop
    from advisor.service.stability.feature import StabilityFeature
    from advisor.service.waiting.asking import Asking
    from advisor.service.waiting.moving import Moves


class Features:
    """Constructs the features that are on.

    Attributes:
        all: The features, in the order in which they start and get each poll. Learning is the last: it reads
            the history first.
        reading: Those of them that start before the first poll: jobs would move without what they read.
    """

    def __init__(self, settings: Settings, connections: Connections, shared: Shared) -> None:
        self._settings = settings
        self._connections = connections
        self._shared = shared
        self.learn = self._learn()
        self.expected_runs = self._expected_runs()
        self.moves: Moves | None = None  # of waiting jobs, by whichever feature makes them
        self.price: PriceLoop | None = None  # made below, of the hedges, which ask it later
        self.preempting = self._preempting()
        self.hedge = self._hedge()
        self.cloud = self._cloud()
        self.connector = self._connector()
        self.stability = self._stability()
        self.price = self._price()
        self.reading = tuple(self._reading())
        features = (
            self.hedge,
            self._portfolio(),
            self._advising(),
            self._waiting() if self.price is None else self.price,
            self._raising(),
            *self.reading,
            self.cloud,
            self.stability,
            self._take_back(),
            self.learn,
        )
        self.all: tuple[Feature, ...] = tuple(feature for feature in features if feature is not None)

    @property
    def _common(self) -> Mapping[str, Any]:
        shared = self._shared
        return {"slurm": self._connections.slurm, "view": shared.view, "clock": shared.clock}

    def _learn(self) -> LearnLoop:
        shared = self._shared
        return LearnLoop(
            self._settings,
            **self._common,
            store=shared.store,
            models=shared.models,
            metrics=shared.metrics,
            meter=None if self._connections.fleet is None else shared.cloud.budget,
        )

    def _hedge(self) -> HedgeFeature | None:
        """On also where an earlier process has kept places or requeued small jobs: it follows them up."""
        settings, places = self._settings, self._connections.places
        state = settings.paths.state
        is_on = (
            settings.hedge.enabled
            or settings.speculates
            or (settings.size.enabled and settings.size.safeguard)
            or HEDGE_ENTRIES.at(state).path.exists()
            or SMALL_JOBS.at(state).path.exists()
        )
        if places is None or not is_on:
            return None
        from advisor.service.hedge.feature import HedgeFeature
        from advisor.service.hedge.watch_context import WatchContext
        from advisor.service.state.hedge_entries import HedgeRecord

        def divider(job_id: int) -> float:
            record = self._shared.store.advice_of(job_id, source=SOURCE)
            return math.nan if record is None else record.estimates.size.divider_seconds

        context = WatchContext(
            settings=settings,
            **self._common,
            places=places,
            record=HedgeRecord(HEDGE_ENTRIES.at(state)),
            divider=divider,
            slowdown=self.learn.slowdown,
            slices=lambda: None if self.price is None else self.price.slices,
            may_preempt=lambda job, home: (
                self.preempting is not None and self.preempting.may_preempt(job, home)
            ),
        )
        return HedgeFeature(context, wake_poll=self._shared.wake_poll)

    def _portfolio(self) -> Feature | None:
        """On also where an earlier process could not take back what it had set."""
        steering = self._connections.steering
        is_on = self._settings.portfolio.enabled or PORTFOLIO.at(self._settings.paths.state).read().acts
        if steering is None or not is_on:
            return None
        from advisor.service.portfolio.portfolio_loop import PortfolioLoop

        return PortfolioLoop(
            self._settings,
            **self._common,
            steering=steering,
            store=self._shared.store,
            cloud=self._shared.cloud,
        )

    def _advising(self) -> Feature | None:
        """On where no hook asks for advice at submissions."""
        if self._settings.cluster.hook:
            return None
        from advisor.service.waiting.advising import AdvisingLoop, session_by_socket

        return AdvisingLoop(
            slurm=self._connections.slurm,
            clock=self._shared.clock,
            session=session_by_socket(self._settings),
            hedged=self._shared.wake_poll,
            join=self._join_submissions(),
            raises_limits=self._raises_at_moves,
        )

    def _join_submissions(self) -> Callable[[], None] | None:
        """How advice given to LSF's esub finds its job; None where no esub asks."""
        scheduler, store = self._connections.slurm, self._shared.store
        if not (self._settings.submit.every_user and isinstance(scheduler, LsfBackend)):
            return None

        def join() -> None:
            spool.collect(self._settings.paths.spool, store)
            scheduler.join(store, source=SOURCE)

        return join

    def _waiting(self) -> Feature | None:
        """On where jobs may wait by policy, and where moves are under way."""
        settings = self._settings
        is_on = settings.waiting.ask_again_seconds > 0.0 and has_gate(settings.waiting)
        if not (is_on or MOVES.at(settings.paths.state).read().moving):
            return None
        from advisor.service.waiting.asking_again import AskingAgainLoop

        view, clock = self._shared.view, self._shared.clock
        return AskingAgainLoop(settings, view=view, asking=self._asking(), clock=clock)

    @property
    def _raises_at_moves(self) -> bool:
        """Whether a limit is raised with the move: LSF changes that of a running job at few sites."""
        return isinstance(self._connections.slurm, LsfBackend)

    def _raising(self) -> Feature | None:
        """On under Slurm, also with `placement.stretch_time_limit` off: it does what advice says."""
        if self._raises_at_moves:
            return None
        from advisor.service.waiting.raising import RaisingFeature

        return RaisingFeature(self._settings, self._connections.slurm, self._connections.has_deadline)

    def _preempting(self) -> PreemptingFeature | None:
        qos = self._connections.preempting_qos
        if qos is None:
            return None
        from advisor.service.control.preempting import PreemptingFeature

        return PreemptingFeature(self._settings, self._connections.slurm, qos, self._shared.clock)

    def _reading(self) -> Iterator[Feature]:
        """Those that only read what Slurm says, each in a thread of its own."""
        if self.preempting is not None:
            yield self.preempting
        connections = self._connections
        asked = (
            connections.partitions_of_users,
            connections.limits_in_partition,
            connections.nodes_in_topology,
        )
        if any(ask is not None for ask in asked):
            from advisor.service.control.admission import AdmissionFeature

            yield AdmissionFeature(self._settings, connections, self._shared.clock)

    def _asking(self) -> Asking:
        from advisor.service.waiting.asking import Asking, asking_by_socket
        from advisor.service.waiting.moving import Moves

        settings, shared, nodes_asked = self._settings, self._shared, self._connections.nodes_asked
        moves = self.moves = Moves(
            settings,
            **self._common,
            state=MOVES.at(settings.paths.state),
            prefers=lambda job_id: "" if nodes_asked is None else nodes_asked.node_constraints(job_id).prefer,
            raises_limits=self._raises_at_moves,
        )
        return Asking(
            moves,
            advice=lambda job_id: shared.store.advice_of(job_id, source=SOURCE),
            again=self._connections.ask_again or asking_by_socket(settings),
        )

    def _expected_runs(self) -> AskRuns:
        if self.learn.run_times is None:
            return run_to_limits
        from advisor.service.price.expected_runs import ExpectedRuns

        known = self.learn.run_times
        return ExpectedRuns(known.chances, lambda: known.is_ready)

    def _price(self) -> PriceLoop | None:
        """On where the policy is the price; it moves waiting jobs instead of `_waiting`."""
        if self.learn.run_times is None:
            return None
        from advisor.service.observation.work_kept import WorkKept
        from advisor.service.price.first_price import rehearsing
        from advisor.service.price.price_keeper import PriceKeeper
        from advisor.service.price.price_loop import PriceLoop
        from advisor.service.price.slice_decider import Slices
        from advisor.service.price.valuing import Valuer

        settings, shared = self._settings, self._shared
        keeper = PriceKeeper(
            settings,
            state=PRICE.at(settings.paths.state),
            spending=None if self._connections.fleet is None else shared.cloud.budget,
            clock=shared.clock,
        )
        slices = Slices(
            settings,
            view=shared.view,
            keeper=keeper,
            chances=self.learn.run_times.chances,
            slowdown=self.learn.slowdown,
            cloud=lambda: CloudState() if self.price is None else self.price.cloud,
            strain=self.learn.run_times.strain,
            kept=WorkKept(
                attempts=lambda job_id: shared.store.attempts([job_id], source=SOURCE),
                slowdown=self.learn.slowdown,
                burst_partition=settings.cluster.burst_partition,
            ),
            runs=self.expected_runs,
            fallen_back=lambda: self.learn.drift.current,
        )
        return PriceLoop(
            settings,
            view=shared.view,
            keeper=keeper,
            slices=slices,
            valuer=Valuer(
                settings,
                chances=self.learn.run_times.chances,
                slowdown=self.learn.slowdown,
                limit_there=self.learn.ratios.limit_there,
                has_slices=self.hedge is not None and settings.hedge.enabled,
            ),
            asking=self._asking(),
            clock=shared.clock,
            runs=self.expected_runs,
            rehearse=rehearsing(settings, shared.store, shared.clock),
        )

    def _cloud(self) -> CloudFeature | None:
        connections, shared = self._connections, self._shared
        if connections.fleet is None:
            return None
        from advisor.service.cloud.cloud_context import CloudContext
        from advisor.service.cloud.feature import CloudFeature
        from advisor.service.stability.feature import stability_columns
        from advisor.service.state.interruption_record import InterruptionRecord

        context = CloudContext(
            settings=self._settings,
            **self._common,
            fleet=connections.fleet,
            cloud=shared.cloud,
            interruptions=InterruptionRecord(INTERRUPTIONS.at(self._settings.paths.state)),
            prices=shared.prices,
            paid_since=shared.store.paid_since,
            spot_pools=lambda: () if self.stability is None else self.stability.spot_pools(),
            stop_of=None if self.hedge is None else self.hedge.watch.stop_of,
            goes_back=lambda queued, elapsed: (
                self.price is not None and self.price.slices.goes_back_to_spot(queued, elapsed)
            ),
            leaves_time=lambda queued: self.price is None or self.price.slices.leaves_time_for_loss(queued),
            account=shared.account,
            block_ends=connections.block_ends,
        )
        return CloudFeature(
            context,
            folder=shared.folder,
            spot=connections.spot,
            breakers=connections.breakers,
            cache=connections.prices,
            account=connections.account,
            kept_nodes=self._kept_nodes,
            describe_node=lambda node: stability_columns(self.stability, node),
            today=lambda: self.learn.costs.today,
            registry=shared.metrics.registry,
        )

    def _kept_nodes(self) -> Collection[str]:
        """Nodes that are launched for no particular job: LSF's resource connector says none."""
        kept = () if self.stability is None else self.stability.kept_nodes()
        hosts = self._cloud_hosts
        return {*kept, *(() if hosts is None else hosts.spot())}

    @property
    def _cloud_hosts(self) -> CloudHosts | None:
        slurm = self._connections.slurm
        return slurm.cloud_hosts if isinstance(slurm, LsfBackend) else None

    def _connector(self) -> ResourceConnector | None:
        """On where LSF's resource connector gets its hosts from us."""
        hosts, fleet, cloud, shared = self._cloud_hosts, self._connections.fleet, self.cloud, self._shared
        if hosts is None or fleet is None or cloud is None:
            return None
        from advisor.ec2.interruptions import NoticeKind
        from advisor.service.cloud.resource_connector import ResourceConnector

        return ResourceConnector(
            hosts,
            fleet=fleet,
            folder=shared.folder,
            view=shared.view,
            clock=shared.clock,
            arrived=cloud.handed_over,
            queue=self._settings.cluster.burst_partition,
            is_taken_back=lambda instance_id: cloud.interruptions.said(instance_id, NoticeKind.INTERRUPTION),
        )

    def _stability(self) -> StabilityFeature | None:
        connections, breakers = self._connections, self._connections.breakers
        if self.cloud is None or connections.spot is None or self._cloud_hosts is not None:
            return None
        from advisor.service.stability.feature import StabilityFeature

        return StabilityFeature(
            self.cloud,
            spot=connections.spot,
            pool_order=connections.pool_order,
            closed_pools=lambda: () if breakers is None else breakers.unavailable(),
            lost_together=lambda pool: None if breakers is None else breakers.lost_together(pool),
        )

    def _take_back(self) -> Feature | None:
        """On where an earlier process has left something in Slurm and no match loop takes it back."""
        nodes_asked = self._connections.nodes_asked
        if self.stability is not None or nodes_asked is None:
            return None
        from advisor.service.stability.actuators import MatchActuators, TakeBackLoop

        actuators = MatchActuators(self._settings, **self._common, jobs=nodes_asked)
        return None if actuators.is_empty else TakeBackLoop(self._settings, actuators, self._shared.clock)
