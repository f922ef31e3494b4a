"""The loops that look after machines in the cloud, put together for `advisor control`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from advisor.ec2.pools import Breakers
from advisor.ec2.prices import PriceCache, Prices
from advisor.files.state_file import StateFile
from advisor.model.bill import Rows
from advisor.model.settings import Settings
from advisor.service.cloud.bookkeeping import AskPaid
from advisor.service.cloud.cloud_fleet import CloudFleet
from advisor.service.cloud.interrupting import InterruptionLoop, SpotParts
from advisor.service.cloud.interruption_record import InterruptionRecord
from advisor.service.cloud.launch_record import CloudRecord
from advisor.service.cloud.listening import NoticeLoop
from advisor.service.cloud.pricing import PriceLoop
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.cloud.reconciling import ReconcileLoop
from advisor.service.control.cloud_report import CloudReport
from advisor.service.exchange.handover import HandoverFolder
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.running.loops import Loop, LoopRunner
from advisor.service.stability.acquirer import AcquireLoop
from advisor.service.stability.life_record import LifeRecord
from advisor.service.stability.match_loop import MatchLoop
from advisor.service.stability.outlook import PoolOrder, StabilityKnowledge
from advisor.slurm.protocol import SlurmBackend


class CloudLoops:
    """Launching and giving back, interruptions, nodes that last, prices.

    Parameters
    ----------
    settings : Settings
        In force.
    slurm, fleet : SlurmBackend, CloudFleet
        Slurm and EC2.
    spot : SpotParts or None
        What EC2 says about the end of instances.
    pool_order : PoolOrder or None
        The fleet's, told which pools are steady.
    breakers : Breakers or None
        The fleet's.
    cache : PriceCache or None
        Asks EC2 for prices now and then.
    prices : callable
        Prices in force, asking nobody.
    folder, view, cloud, clock
        Shared with the other loops.
    paid_since : callable
        What the history knows to be paid.
    today : callable, optional
        The day's bill, as the learn loop keeps it.

    Attributes
    ----------
    runners : dict of str to LoopRunner
        By the loops' names.
    report : CloudReport
        What is known of the cloud.
    match : MatchLoop or None
        Which nodes will stay; None without ``spot``.
    acquire : AcquireLoop or None
        Exchanges kept nodes; None where none are kept.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: SlurmBackend,
        fleet: CloudFleet,
        spot: SpotParts | None,
        pool_order: PoolOrder | None,
        breakers: Breakers | None,
        cache: PriceCache | None,
        prices: Callable[[], Prices],
        folder: HandoverFolder,
        view: SharedView,
        cloud: CloudRecord,
        clock: Clock,
        paid_since: AskPaid,
        today: Callable[[], Rows | None] = lambda: None,
    ) -> None:
        self.runners: dict[str, LoopRunner] = {}
        self.match: MatchLoop | None = None
        self.acquire: AcquireLoop | None = None
        self._settings = settings
        self._slurm = slurm
        self._view = view
        self._cloud = cloud
        self._clock = clock
        self._breakers = breakers
        self._record = InterruptionRecord(StateFile(settings.paths.state / "interruptions.json"))
        both: dict[str, Any] = {
            "fleet": fleet,
            "slurm": slurm,
            "view": view,
            "cloud": cloud,
            "clock": clock,
            "prices": prices,
            "interruptions": self._record,
            "paid_since": paid_since,
        }
        provision = ProvisionLoop(settings, folder=folder, kept=self._kept, **both)
        self._reconcile = ReconcileLoop(settings, **both)
        self._add(provision)
        self._add(self._reconcile)
        if spot is not None:
            self._add_interruptions(spot)
            self._add_stability(spot, pool_order)
        self.report = CloudReport(
            settings,
            cloud=cloud,
            provision=provision,
            reconcile=self._reconcile,
            record=self._record,
            breakers=breakers,
            view=view,
            prices=prices,
            clock=clock,
            match=self.match,
            today=today,
        )
        if cache is not None:
            self._add(PriceLoop(cache))

    def _add(self, loop: Loop) -> LoopRunner:
        runner = self.runners[loop.name] = LoopRunner(loop, self._clock)
        return runner

    def _add_interruptions(self, spot: SpotParts) -> None:
        runner = self._add(
            InterruptionLoop(
                self._settings,
                instances=lambda: self._reconcile.last_listed,
                slurm=self._slurm,
                jobs=spot.jobs,
                view=self._view,
                record=self._record,
                clock=self._clock,
            )
        )
        self._add(
            NoticeLoop(
                source=spot.source,
                instances=lambda: self._reconcile.last_listed,
                record=self._record,
                heard=runner.wake,
                clock=self._clock,
            )
        )

    def _add_stability(self, spot: SpotParts, pool_order: PoolOrder | None) -> None:
        """Nodes that last: watched and shown everywhere, acted upon where the site says so."""
        settings, state = self._settings, self._settings.paths.state
        knowledge = StabilityKnowledge(
            settings,
            record=LifeRecord(StateFile(state / "lives.json")),
            said=self._record,
            instances=lambda: (self._reconcile.last_listed, self._reconcile.listed_at),
            clock=self._clock,
        )
        shared: dict[str, Any] = {
            "knowledge": knowledge,
            "slurm": self._slurm,
            "view": self._view,
            "clock": self._clock,
        }
        self.match = MatchLoop(settings, jobs=spot.jobs, said=self._record, **shared)
        self._add(self.match)
        keeps = settings.acquirer.kept_nodes > 0
        if pool_order is not None and (keeps or settings.matching.enabled):
            pool_order.use(knowledge.steadiest_first)
        if keeps:
            self.acquire = AcquireLoop(
                settings,
                budget=self._cloud.budget,
                state=StateFile(state / "acquirer.json"),
                closed=lambda: self._breakers.table() if self._breakers is not None else (),
                protected=lambda: self._cloud.protected,
                **shared,
            )
            self._add(self.acquire)

    def _kept(self) -> Collection[str]:
        return self.acquire.wanted() if self.acquire is not None else ()
