"""Machines in EC2, as a feature of `advisor control`: launches, terminations, interruptions, prices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from advisor.ec2.instances import Instance
from advisor.ec2.pools import UnavailablePools
from advisor.ec2.prices import PriceCache
from advisor.model.bill import Rows
from advisor.model.settings import Settings
from advisor.service.cloud.bookkeeping import AskPaid
from advisor.service.cloud.cloud_fleet import CloudFleet
from advisor.service.cloud.cloud_metrics import CloudCollector
from advisor.service.cloud.cloud_report import CloudReport, DescribeNode
from advisor.service.cloud.interrupting import InterruptionLoop, SpotParts
from advisor.service.cloud.listening import NoticeLoop
from advisor.service.cloud.pricing import AskPrices, PriceLoop
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.cloud.reconciling import ReconcileLoop
from advisor.service.exchange.handover import HandoverFolder
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature
from advisor.service.running.loops import Loop, LoopRunner
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.service.state.state_files import INTERRUPTIONS
from advisor.slurm.protocol import SlurmBackend


class CloudFeature(Feature):
    """Provisioning, reconciliation, interruptions and prices.

    Parameters
    ----------
    spot : SpotParts or None
        Notices of EC2 about the end of instances; None: only its list of instances is read.
    breakers : UnavailablePools or None
        Which pools are closed.
    cache : PriceCache or None
        Asks EC2 for prices at intervals.
    prices : callable
        The prices in force, without a call to EC2.
    kept_nodes : callable
        Nodes that are started for no particular job: they are spot.
    describe_node, today
        See :class:`CloudReport`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: SlurmBackend,
        fleet: CloudFleet,
        spot: SpotParts | None,
        breakers: UnavailablePools | None,
        cache: PriceCache | None,
        prices: AskPrices,
        folder: HandoverFolder,
        view: SharedView,
        cloud: CloudRecord,
        clock: Clock,
        paid_since: AskPaid,
        kept_nodes: Callable[[], Collection[str]],
        describe_node: DescribeNode,
        today: Callable[[], Rows | None],
        registry: CollectorRegistry,
    ) -> None:
        self._clock = clock
        self.interruptions = InterruptionRecord(INTERRUPTIONS.at(settings.paths.state))
        both: dict[str, Any] = {
            "fleet": fleet,
            "slurm": slurm,
            "view": view,
            "cloud": cloud,
            "clock": clock,
            "prices": prices,
            "interruptions": self.interruptions,
            "paid_since": paid_since,
        }
        provision = ProvisionLoop(settings, folder=folder, kept=kept_nodes, **both)
        self._reconcile = ReconcileLoop(settings, **both)
        self._provision_runner = self._runner(provision)
        self.runners = (
            self._provision_runner,
            self._runner(self._reconcile),
            *(() if spot is None else self._interruption_runners(settings, slurm, spot, view)),
            *(() if cache is None else (self._runner(PriceLoop(cache)),)),
        )
        self.report = CloudReport(
            settings,
            cloud=cloud,
            provision=provision,
            reconcile=self._reconcile,
            record=self.interruptions,
            breakers=breakers,
            view=view,
            prices=prices,
            clock=clock,
            describe_node=describe_node,
            today=today,
        )
        registry.register(CloudCollector(self.report))

    def _runner(self, loop: Loop) -> LoopRunner:
        return LoopRunner(loop, self._clock)

    def _interruption_runners(
        self, settings: Settings, slurm: SlurmBackend, spot: SpotParts, view: SharedView
    ) -> tuple[LoopRunner, LoopRunner]:
        shared: dict[str, Any] = {
            "instances": lambda: self._reconcile.last_listed,
            "record": self.interruptions,
            "clock": self._clock,
        }
        interruptions = self._runner(
            InterruptionLoop(settings, slurm=slurm, jobs=spot.jobs, view=view, **shared)
        )
        notices = self._runner(NoticeLoop(source=spot.source, heard=interruptions.wake, **shared))
        return interruptions, notices

    def handed_over(self) -> None:
        """Act on a new hand-over file at once."""
        self._provision_runner.wake()

    def listed(self) -> tuple[Sequence[Instance], float | None]:
        """Our instances as EC2 last listed them, and when (epoch seconds; None: never)."""
        return self._reconcile.last_listed, self._reconcile.listed_at

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"cloud_configured": True, "cloud_report": self.report.everything()}
