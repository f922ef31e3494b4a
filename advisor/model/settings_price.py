"""Settings of the one price: a budget, or a price of an hour, and how much a loss weighs."""

from __future__ import annotations

import math
from typing import Literal

from advisor.model.settings_section import Dollars, Section, setting


class BudgetSettings(Section):
    """Money for jobs that move to the cloud; it sets the price of an hour saved."""

    usd: Dollars = setting(
        0.0,
        "The money that the burst partition may spend in a `period`. It accrues evenly, up to a third of it "
        "ahead, is committed at each start for the worst case, and is never exceeded. The advisor has no aim "
        "to spend it all. 0 means no budget: a job then moves only if `usd_per_hour_saved` is set.",
        why="Only the site knows its budget.",
        unit="USD",
    )
    period: Literal["day", "week", "month"] = setting(
        "month",
        "The period of the budget, by the calendar of UTC. A week begins on Monday.",
        why="AWS bills by the month of UTC.",
    )
    accounts: dict[str, Dollars] = setting(
        {},
        "The same for single Slurm accounts, such as `{ chem = 500.0 }`. Accounts that are not named share "
        "`usd` only.",
        why="The table is empty because only the site knows which account pays.",
        unit="USD",
        expert=True,
    )
    usd_per_hour_saved: Dollars = setting(
        0.0,
        "A fixed price instead of the one that the budget sets: what an hour of a job's turnaround may cost. "
        "With `usd` as well, the budget still limits what is spent. 0 leaves the price to the budget.",
        why="A budget is what a site has; what an hour is worth, few sites can say.",
        unit="USD",
        expert=True,
    )

    @property
    def is_set(self) -> bool:
        """Whether jobs may move by a price at all."""
        return self.usd > 0.0 or self.usd_per_hour_saved > 0.0


class PriceSettings(Section):
    """How saved time is weighed against lost time and money."""

    loss_weight: float = setting(
        1.0,
        "The weight of lost time: an hour that a job may lose in the cloud counts as this many hours that it "
        "may save.",
        why="At 1 the expected time decides; a larger number makes the advisor more careful.",
        ge=1.0,
        le=100.0,
        expert=True,
    )
    uncertainty_limit_minutes: float = setting(
        math.inf,
        "A job stays on-premise if the standard deviation of the time that it is forecast to save is "
        "greater than this. A smaller limit moves fewer jobs and disappoints fewer users; 0 keeps every "
        "job, `inf` sets no limit.",
        why="A job that keeps its place on-premise hardly loses time, and the price already prefers sure "
        "savings.",
        unit="min",
        ge=0.0,
    )
