"""The dependencies that the cloud's loops and its status report share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from advisor.decide.submission.capacity import spot_tries
from advisor.ec2.account import Account
from advisor.ec2.fleet import Fleet
from advisor.ec2.prices import Prices
from advisor.model.advice import Capacity
from advisor.model.scheduler import CloudScheduler
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.cloud.addresses import Addresses
from advisor.service.cloud.block_keeper import BlockKeeper
from advisor.service.cloud.bookkeeping import AskPaid, Bookkeeping
from advisor.service.cloud.budget_guard import BudgetGuard
from advisor.service.cloud.paid_now import AskAccount, PaidNow
from advisor.service.cloud.pricing import AskPrices
from advisor.service.cloud.reckoning import AskStop, Reckoning
from advisor.service.cloud.spot_choice import AskPools, SpotChoice
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.slurm.block_ends import BlockEnds


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudContext:
    """Slurm, EC2 and the stored records of the cloud.

    Attributes:
        fleet: The cluster's instances in EC2.
        slurm: The commands to Slurm about cloud nodes.
        view: The last snapshot of Slurm.
        cloud: The budget, the journal of launches and the measured boots.
        interruptions: EC2's notices about the end of instances, the second source besides its list.
        prices: Returns the prices in force; None: those of the settings.
        paid_since: Returns the paid time in the history since a moment (epoch seconds), for a budget whose
            state file was lost.
        leaves_time: Returns whether a job that has lost a spot instance may lose one more.
        goes_back: Returns whether a job with checkpoints, which has run on-demand for some seconds, is to
            start on spot instead.
        stop_of: Returns after how many seconds in the cloud a hedged job is brought back; None: no hedges.
        spot_pools: Returns how long instances of each spot pool last; nothing until enough were observed.
        account: Returns what was read of the AWS account: capacity that is paid for, others' instances,
            quotas.
        block_ends: Tells Slurm when the nodes of capacity blocks end; None: Slurm cannot be told.
    """

    settings: Settings
    fleet: Fleet
    slurm: CloudScheduler
    view: SharedView
    cloud: CloudRecord
    clock: Clock
    interruptions: InterruptionRecord
    prices: AskPrices | None = None
    paid_since: AskPaid = lambda _: ()
    stop_of: AskStop | None = None
    leaves_time: Callable[[QueuedJob], bool] = lambda _queued: True
    goes_back: Callable[[QueuedJob, float], bool] = lambda _queued, _elapsed: False
    spot_pools: AskPools = tuple
    account: AskAccount = Account
    block_ends: BlockEnds | None = None

    def block_keeper(self) -> BlockKeeper:
        """Return what keeps jobs from running past the end of their capacity block."""
        return BlockKeeper(self.fleet, self.account, self.block_ends, self.clock)

    def paid_now(self) -> PaidNow:
        """Return what counts the capacity that is paid for already."""
        return PaidNow(self.settings, self.account, self.prices_now)

    def prices_now(self) -> Prices:
        """Return the prices in force, without a call to EC2."""
        return Prices.of_settings(self.settings.ec2) if self.prices is None else self.prices()

    def bookkeeping(self) -> Bookkeeping:
        """Return what keeps the record of the day's spending up to date."""
        return Bookkeeping(
            self.settings,
            budget=self.cloud.budget,
            view=self.view,
            prices=self.prices_now,
            clock=self.clock,
            paid_since=self.paid_since,
            paid=self.paid_now(),
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
            paid=self.paid_now(),
            reckoning=self._reckoning(),
        )

    def spot_tries(self, queued: QueuedJob) -> int:
        """Return how often a job in the queue may still be launched as spot."""
        lost = self.interruptions.interruptions_of(queued.job.job_id)
        tries = spot_tries(structs.replace(queued.job, interruptions=lost), self.settings)
        return tries if not (lost and tries) or self.leaves_time(queued) else 0

    def spot_choice(self) -> SpotChoice:
        """Return what chooses the pools of launches."""
        return SpotChoice(
            self.settings,
            known=self.spot_pools,
            prices=self.prices_now,
            tries=self.spot_tries,
            boot_seconds=partial(self.cloud.boot_seconds_of, Capacity.SPOT.value),
        )

    def _reckoning(self) -> Reckoning:
        """Return what says for how long jobs and idle nodes are assumed to cost money."""
        return Reckoning(self.settings, slurm=self.slurm, clock=self.clock, stop_of=self.stop_of)

    def addresses(self) -> Addresses:
        """Return what sets the addresses of nodes."""
        return Addresses(self.settings, self.slurm)
