"""What the loops and the report of the cloud share."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.ec2.prices import Prices
from advisor.model.settings import Settings
from advisor.service.cloud.addresses import Addresses
from advisor.service.cloud.bookkeeping import AskPaid, Bookkeeping
from advisor.service.cloud.budget_guard import BudgetGuard
from advisor.service.cloud.cloud_fleet import CloudFleet
from advisor.service.cloud.pricing import AskPrices
from advisor.service.cloud.reckoning import AskStop, Reckoning
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.slurm.protocol import SlurmBackend


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudContext:
    """Slurm, EC2 and the records of the cloud.

    Attributes:
        interruptions: EC2's notices about the end of instances: the second source besides its list.
        prices: The prices in force; by default those of the settings.
        paid_since: Paid time in the history, should the budget have lost it.
        stop_of: The stops of slices in the cloud.
    """

    settings: Settings
    fleet: CloudFleet
    slurm: SlurmBackend
    view: SharedView
    cloud: CloudRecord
    clock: Clock
    interruptions: InterruptionRecord
    prices: AskPrices | None = None
    paid_since: AskPaid = lambda _: ()
    stop_of: AskStop | None = None

    def prices_now(self) -> Prices:
        """The prices in force, without a call to EC2."""
        return Prices.of_settings(self.settings.ec2) if self.prices is None else self.prices()

    def bookkeeping(self) -> Bookkeeping:
        """Return what keeps the day's budget up to date."""
        return Bookkeeping(
            self.settings,
            budget=self.cloud.budget,
            view=self.view,
            prices=self.prices_now,
            clock=self.clock,
            paid_since=self.paid_since,
            reckoning=self._reckoning(),
        )

    def budget_guard(self) -> BudgetGuard:
        """Return what keeps spending within the budget."""
        return BudgetGuard(
            self.settings,
            cloud=self.cloud,
            slurm=self.slurm,
            view=self.view,
            prices=self.prices_now,
            reckoning=self._reckoning(),
        )

    def _reckoning(self) -> Reckoning:
        return Reckoning(self.settings, slurm=self.slurm, clock=self.clock, stop_of=self.stop_of)

    def addresses(self) -> Addresses:
        """Return what sets the addresses of nodes."""
        return Addresses(self.settings, self.slurm)
