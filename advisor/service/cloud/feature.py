"""Machines in EC2, as a feature of `advisor control`: launches, terminations, interruptions, prices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from advisor.ec2.instances import Instance
from advisor.ec2.pools import UnavailablePools
from advisor.ec2.prices import PriceCache
from advisor.ec2.reading_account import AccountCache
from advisor.model.bill import Rows
from advisor.service.cloud.back_to_spot import BackToSpot
from advisor.service.cloud.bookkeeping import Bookkeeping
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.cloud_metrics import CloudCollector
from advisor.service.cloud.cloud_report import CloudReport, DescribeNode
from advisor.service.cloud.interrupting import InterruptionLoop, SpotParts
from advisor.service.cloud.listening import NoticeLoop
from advisor.service.cloud.pricing import PriceLoop, ReservationLoop
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.cloud.reconciling import ReconcileLoop
from advisor.service.cloud.staging import StageIns
from advisor.service.exchange.handover import HandoverFolder
from advisor.service.exchange.staged import Staged
from advisor.service.running.feature import Feature
from advisor.service.running.loops import Loop, LoopRunner, Step


class CloudFeature(Feature):
    """Provisioning, reconciliation, interruptions and prices.

    Args:
        spot: Notices of EC2 about the end of instances; None: only its list of instances is read.
    """

    def __init__(
        self,
        context: CloudContext,
        *,
        folder: HandoverFolder,
        spot: SpotParts | None,
        breakers: UnavailablePools | None,
        cache: PriceCache | None,
        account: AccountCache | None,
        kept_nodes: Callable[[], Collection[str]],
        describe_node: DescribeNode,
        today: Callable[[], Rows | None],
        registry: CollectorRegistry,
    ) -> None:
        self.context = context
        self._clock = context.clock
        self.interruptions = context.interruptions
        first = () if account is None else (Step("paid capacity", account.read_first),)
        provision = ProvisionLoop(
            context,
            folder=folder,
            instances=lambda: self._reconcile.last_listed,
            kept=kept_nodes,
            first=first,
        )
        self._stage_ins = StageIns(context, give_back=provision.give_back)
        self._reconcile = ReconcileLoop(
            context, resuming=lambda: provision.resuming, boot_ended=provision.boot_ended, first=first
        )
        self._books = Bookkeeping(context)
        self._provision_runner = self._runner(provision)
        self.runners = (
            self._provision_runner,
            self._runner(provision.unbegun),
            self._runner(self._reconcile),
            *(() if spot is None else self._interruption_runners(context, spot)),
            *(() if cache is None else (self._runner(PriceLoop(cache, account)),)),
            *(() if account is None else (self._runner(ReservationLoop(account)),)),
        )
        self.report = CloudReport(
            context,
            provision=provision,
            reconcile=self._reconcile,
            breakers=breakers,
            describe_node=describe_node,
            today=today,
        )
        registry.register(CloudCollector(self.report))

    def _runner(self, loop: Loop) -> LoopRunner:
        return LoopRunner(loop, self._clock)

    def _interruption_runners(self, context: CloudContext, spot: SpotParts) -> tuple[LoopRunner, LoopRunner]:
        def instances() -> Sequence[Instance]:
            return self._reconcile.last_listed

        interruptions = self._runner(
            InterruptionLoop(
                context,
                instances=instances,
                jobs=spot.jobs,
                back_to_spot=BackToSpot(context, instances=instances).consider,
            )
        )
        notices = NoticeLoop(
            source=spot.source,
            instances=instances,
            has_listed=lambda: self._reconcile.listed_at is not None,
            record=self.interruptions,
            heard=interruptions.wake,
            clock=self._clock,
        )
        return interruptions, self._runner(notices)

    def renew(self) -> None:
        """Promise the money of jobs that a new poll shows on nodes that were up already."""
        self._books.renew(self._reconcile.last_listed)

    def handed_over(self) -> None:
        """Act on a new hand-over file at once."""
        self._provision_runner.wake()

    def stage_in_ended(self, staged: Staged) -> bool:
        """Learn from the stage-in of a job's data, or bring the job back; whether that is settled."""
        return self._stage_ins.ended(staged)

    def listed(self) -> tuple[Sequence[Instance], float | None]:
        """Our instances as EC2 last listed them, and when (epoch seconds; None: never)."""
        return self._reconcile.last_listed, self._reconcile.listed_at

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"cloud_configured": True, "cloud_report": self.report.everything()}
