"""Settings of the one price: a budget, or a price of an hour, and how much a loss weighs."""

from __future__ import annotations

import math

from advisor.model.periods import ANY, FORM, Period, is_user, user_name
from advisor.model.settings_section import Dollars, Section, setting


class BudgetSettings(Section):
    """Money for jobs that move to the cloud; it sets the price of an hour saved."""

    usd: Dollars = setting(
        0.0,
        "The money that the burst partition may spend in a `period`. The price of an hour rises and falls so "
        "that it lasts. Each start commits its worst cost, so that the budget is never exceeded. 0 means no "
        "budget: under the policy `price` a job then moves only if `usd_per_hour_saved` is set, and the "
        "published policies spend without a limit.",
        why="Only the site knows its budget.",
        unit="USD",
    )
    period: Period = setting(
        "month",
        "The period of the budget, by the calendar of UTC: `day`, `week` (from Monday), `month`, `quarter`, "
        "`year` or a number of days such as `14d`. It may say where it begins, such as "
        "`quarter from 2026-10-01` or `91d from 2026-09-28`; the periods before and after follow from that. "
        "Money that is there once, such as a grant, has `2026-10-01 until 2027-04-01`.",
        why="AWS bills by the month of UTC.",
        form=FORM,
    )
    carry_over: bool = setting(
        False,
        "Whether what a period has left of its budget may be spent in the next period, beside its own.",
        why="Most grants and accounts end with their period.",
        expert=True,
    )
    accounts: dict[str, Dollars] = setting(
        {},
        "Budgets of single Slurm accounts for each `account_period`, such as `{ chem = 500.0 }`, within "
        "`usd`. The name `*` stands for each account that is not named; without it these have no budget "
        "of their own. 0 keeps an account's jobs on-premise. On a cloud node that jobs of several accounts "
        "or users share, one of these may pass its budget by a little: its share grows when others' jobs "
        "end.",
        why="The table is empty because only the site knows which account pays.",
        unit="USD",
        expert=True,
    )
    account_period: Period | None = setting(
        None,
        "The period of the budgets of accounts, written like `period`; empty: that of `period`.",
        why="One period for all is easier to follow.",
        form=FORM,
        expert=True,
    )
    users: dict[str, Dollars] = setting(
        {},
        'Budgets of single users for each `user_period`, such as `{ ann = 50.0, "*" = 20.0 }`, within `usd` '
        "and their account's. The name `*` stands for each user who is not named. 0 keeps a user's jobs "
        "on-premise.",
        why="The table is empty because most sites give money to accounts.",
        unit="USD",
        expert=True,
    )
    user_period: Period | None = setting(
        None,
        "The period of the budgets of users, written like `period`; empty: that of `period`.",
        why="One period for all is easier to follow.",
        form=FORM,
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

    @property
    def limits_spending(self) -> bool:
        """Whether anything limits what is spent: then each start commits its worst cost."""
        return self.usd > 0.0 or bool(self.accounts or self.users)

    def of(self, payer: str) -> float | None:
        """The budget of a payer, ``""`` being the site; None: it has none of its own."""
        if not payer:
            return self.usd or None
        if is_user(payer):
            return self.users.get(user_name(payer), self.users.get(ANY))
        return self.accounts.get(payer, self.accounts.get(ANY))


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
