"""Every state file in one table: its name, its record type, what losing it costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic

from advisor.ec2.pools import ClosedPools
from advisor.ec2.prices import ReadPrices
from advisor.files.state_file import Record, StateFile
from advisor.lsf.cloud_hosts import HostsAskedFor
from advisor.lsf.kept_advice import AdviceOfLiveJobs
from advisor.service.state.budget_records import BudgetRecord
from advisor.service.state.hedge_entries import HedgeEntries
from advisor.service.state.records import (
    APPLIED_NAME,
    AcquirerState,
    AppliedChanges,
    BootsSeen,
    Drift,
    Interruptions,
    JudgedPolicies,
    Lives,
    MarkedNodes,
    MovesUnderWay,
    OwnWeights,
    PortfolioState,
    PriceRecord,
    RequeuedSmallJobs,
    SiteFactors,
    SteeredJobs,
    ToldNotices,
    Trainings,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile(Generic[Record]):
    """One state file in ``paths.state``.

    Attributes:
        loss: The consequence if the file is lost or damaged, in words for an admin.
    """

    name: str
    record: type[Record]
    loss: str

    def at(self, folder: Path) -> StateFile[Record]:
        """The file in a folder."""
        return StateFile(folder / self.name, self.record)


BUDGET: Final = KnownFile(
    name="budget.json",
    record=BudgetRecord,
    loss="Nothing is launched while a budget is set, until what was spent was rebuilt from the copy "
    "`budget.json.old`, the history and EC2's list of instances.",
)
BOOTS: Final = KnownFile(
    name="cloud.json",
    record=BootsSeen,
    loss="Boot times are learned anew; one failed boot then stops launches until one boot succeeds. Jobs of "
    "`--no-requeue` that wait for a late node may be requeued from then on.",
)
CLOSED_POOLS: Final = KnownFile(
    name="pools.json",
    record=ClosedPools,
    loss="At most one refused launch for each pool that is empty.",
)
PRICES: Final = KnownFile(
    name="prices.json",
    record=ReadPrices,
    loss="The settings' prices hold until EC2 is asked again.",
)
INTERRUPTIONS: Final = KnownFile(
    name="interruptions.json",
    record=Interruptions,
    loss="A job may be warned twice, or lose one more spot node before it gets on-demand capacity.",
)
LIVES: Final = KnownFile(
    name="lives.json",
    record=Lives,
    loss="How long spot nodes last is learned anew, in days.",
)
HEDGE_ENTRIES: Final = KnownFile(
    name="places.json",
    record=HedgeEntries,
    loss="Hedged jobs are found again by their AdminComment, their placeholders by name; a job that was "
    "requeued before (Slurm counts it) is not requeued any more.",
)
SMALL_JOBS: Final = KnownFile(
    name="small_jobs.json",
    record=RequeuedSmallJobs,
    loss="Jobs that were requeued as large and still wait do not get their age back.",
)
LSF_ADVICE: Final = KnownFile(
    name="lsf_advice.json",
    record=AdviceOfLiveJobs,
    loss="Waiting jobs of LSF are advised once more; one that was moved stays where it is.",
)
LSF_HOSTS: Final = KnownFile(
    name="lsf_hosts.json",
    record=HostsAskedFor,
    loss="Hosts that LSF's resource connector has from us count as not asked for: their instances are ended "
    "after the grace of orphans, and their jobs are run again.",
)
MOVES: Final = KnownFile(
    name="asked_again.json",
    record=MovesUnderWay,
    loss="Nothing: a job that still waits is asked again.",
)
PORTFOLIO: Final = KnownFile(
    name="portfolio.json",
    record=PortfolioState,
    loss="The selection of policies learns anew. Where portfolio.enabled was just set to false, run "
    "`advisor portfolio undo`.",
)
VERDICT: Final = KnownFile(
    name="portfolio_verdict.json",
    record=JudgedPolicies,
    loss="The policies are judged again, in minutes.",
)
SITE_FACTORS: Final = KnownFile(
    name="portfolio_order.json",
    record=SiteFactors,
    loss="Waiting burst jobs keep the site factor that the portfolio gave them.",
)
PORTFOLIO_WEIGHTS: Final = KnownFile(
    name="portfolio_weights.json",
    record=OwnWeights,
    loss="Node weights are off by at most 10 until the next `scontrol reconfigure`.",
)
NODE_WEIGHTS: Final = KnownFile(
    name="node_weights.json",
    record=OwnWeights,
    loss=PORTFOLIO_WEIGHTS.loss,
)
MARKED_NODES: Final = KnownFile(
    name="marks.json",
    record=MarkedNodes,
    loss="Where matching.enabled was just set to false, nodes may lack `matching.long_lived_feature` until "
    "the next `scontrol reconfigure`.",
)
STEERED_JOBS: Final = KnownFile(
    name="steering.json",
    record=SteeredJobs,
    loss="Jobs that were held off nodes at that moment exclude them until an admin clears ExcNodeList.",
)
ACQUIRER: Final = KnownFile(
    name="acquirer.json",
    record=AcquirerState,
    loss="The acquirer plans at once instead of at its hour; nodes asked for may be asked for again.",
)
PRICE: Final = KnownFile(
    name="price.json",
    record=PriceRecord,
    loss="The price is read anew from the history and from demand; what may be spent follows from the record "
    "of spending.",
)
DRIFT: Final = KnownFile(
    name="drift.json",
    record=Drift,
    loss="A partition that has fallen back moves jobs again, and its week is measured anew.",
)
TRAININGS: Final = KnownFile(
    name="trainings.json",
    record=Trainings,
    loss="A failed weekly training is not told of.",
)
APPLIED: Final = KnownFile(
    name=APPLIED_NAME,
    record=AppliedChanges,
    loss="Settings stay as they are; what the pages changed before cannot be undone there any more.",
)
NOTICES: Final = KnownFile(
    name="notices.json",
    record=ToldNotices,
    loss="Troubles that last, and shares of the budget that are reached, are told once more.",
)

STATE_FILES: Final[tuple[KnownFile[Any], ...]] = tuple(
    each for each in list(globals().values()) if isinstance(each, KnownFile)
)
"""All of the above."""


def known_file(name: str) -> KnownFile[Any] | None:
    """The state file that a name belongs to; also of a copy (``.old``) or one set aside (``.bad``)."""
    return next((file for file in STATE_FILES if name == file.name or name.startswith(f"{file.name}.")), None)
