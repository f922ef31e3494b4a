"""What the cloud's loops and its status report share: Slurm, EC2, records and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec import structs

from advisor.decide.submission.capacity import spot_tries
from advisor.decide.submission.rules import requeueable
from advisor.ec2.account import Account
from advisor.ec2.fleet import Fleet
from advisor.ec2.prices import Prices
from advisor.model.bill import PaidTime
from advisor.model.scheduler import CloudScheduler
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.model.spot_pools import SpotPool
from advisor.service.cloud.paid_now import AskAccount, PaidNow
from advisor.service.cloud.pricing import AskPrices
from advisor.service.cloud.reckoning import AskStop, Reckoning
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.slurm.block_ends import BlockEnds

AskPaid = Callable[[float], Iterable[PaidTime]]
"""Returns the paid time after a moment (epoch seconds), from the history."""
AskPools = Callable[[], Sequence[SpotPool]]
"""Returns how long instances of spot pools last; nothing until enough instances were observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudContext:
    """Slurm, EC2 and the stored records of the cloud.

    Attributes:
        cloud: The budget, the journal of launches and the measured boots.
        prices: Returns the prices in force; None: those of the settings.
        paid_since: Returns the paid time in the history since a moment (epoch seconds), for a budget whose
            state file was lost.
        leaves_time: Returns whether a job that has lost a spot instance may lose one more.
        goes_back: Returns whether a job with checkpoints, which has run on-demand for some seconds, is to
            start on spot instead.
        stop_of: Returns after how many seconds in the cloud a hedged job is brought back; None: no hedges.
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

    def paid_now(self) -> PaidNow:
        """Return what counts the capacity that is paid for already."""
        return PaidNow(self.settings, self.account, self.prices_now)

    def prices_now(self) -> Prices:
        """Return the prices in force, without a call to EC2."""
        return Prices.of_settings(self.settings.ec2) if self.prices is None else self.prices()

    def spot_tries(self, queued: QueuedJob) -> int:
        """Return how often a job in the queue may still be launched as spot."""
        if not requeueable(queued.job, self.settings):
            return 0  # its user may have said `scontrol update requeue=0` since the advice
        lost = self.interruptions.interruptions_of(queued.job.job_id)
        tries = spot_tries(structs.replace(queued.job, interruptions=lost), self.settings)
        return tries if not (lost and tries) or self.leaves_time(queued) else 0

    def reckoning(self) -> Reckoning:
        """Return what says for how long jobs and idle nodes are assumed to cost money."""
        return Reckoning(self.settings, slurm=self.slurm, clock=self.clock, stop_of=self.stop_of)
