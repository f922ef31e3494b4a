"""Budgets of calendar periods in a closed loop: of the site, and of single accounts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from advisor.arrays import Ints
from advisor.decide.price.period_budget import PeriodMoney, period_money, price_share
from advisor.model.bill import cost_by_day, day_of
from advisor.model.periods import period_span

_DAY: Final = 86_400.0
_HOUR: Final = 3600.0


class PeriodBudget:
    """One budget of calendar periods; core-seconds take the place of dollars.

    Args:
        amount: The budget of a period.
        time: Epoch seconds; the budget begins here.
        carries_over: Whether what a period has left is there in the next one.
    """

    def __init__(self, amount: float, period: str, *, time: float, carries_over: bool) -> None:
        self.amount = amount
        self.period = period
        self._since = time
        self._carries_over = carries_over
        self._promised = 0.0
        self._spent_by_day: dict[str, float] = {}
        self._recent: dict[str, float] = {}  # of the present period and the one before
        self._end = -math.inf
        self._money = self._at(time, self._recent)
        self.accrue(time)

    def accrue(self, now: float) -> None:
        """Go on to a time, epoch seconds."""
        if now < self._end:
            return
        begin, self._end = period_span(now, self.period)
        before, _ = period_span(begin - 1.0, self.period)
        self._recent = {day: usd for day, usd in self._spent_by_day.items() if day >= day_of(before)}
        self._money = self._at(now, self._recent)

    @property
    def held(self) -> float:
        """What may be committed now."""
        return self._money.left - self._promised

    def planned(self, now: float) -> float:
        """The tokens that even spending would have left at a moment, epoch seconds."""
        begin, end = period_span(now, self.period)
        return self.amount * (end - now) / (end - begin)

    def price_share(self, now: float) -> float:
        """The share of the price that holds for its jobs at a moment, epoch seconds."""
        return 1.0 if self._carries_over else price_share(self.planned(now), self.held)

    def commit(self, most: float) -> None:
        """Take the most that a start may cost."""
        self._promised += most

    def settle(self, most: float, actual: float, since: float, now: float) -> None:
        """Give back a commitment; spend what the start has cost from ``since`` to ``now``, epoch seconds."""
        self._promised -= most
        hours = (now - since) / _HOUR
        costs = cost_by_day(since, now, actual / hours) if hours > 0.0 else {day_of(now): actual}
        for days in (self._spent_by_day, self._recent):
            for day, cost in costs.items():
                days[day] = days.get(day, 0.0) + cost
        self._money = self._at(now, self._recent)

    def periods(self, until: float) -> dict[str, PeriodMoney]:
        """Each period at its end, from the first one to that of a time (epoch seconds), by its first day."""
        found = dict[str, PeriodMoney]()
        begin, end = period_span(self._since, self.period)
        while begin <= until:
            found[day_of(begin)] = self._at(end - 1.0, self._spent_by_day)
            begin, end = period_span(end, self.period)
        return found

    def _at(self, time: float, spent_by_day: Mapping[str, float]) -> PeriodMoney:
        return period_money(
            usd=self.amount,
            period=self.period,
            since=self._since,
            now=time,
            spent_by_day=spent_by_day,
            promised=0.0,
            carries_over=self._carries_over,
        )


class PeriodTokens:
    """The money of a closed loop, as :class:`~advisor.decide.price.tokens.Tokens`, in calendar periods.

    Args:
        site: The budget of all.
        accounts: Budgets by code of the account; accounts that are not named have none of their own.
        account_of: Account of each row, shape ``(n,)``.
        epoch: Epoch seconds of the log's time 0.
        per_day: The site's budget of a day.

    Attributes:
        now: Epoch seconds.
    """

    def __init__(
        self,
        site: PeriodBudget,
        accounts: Mapping[int, PeriodBudget],
        account_of: Ints,
        *,
        epoch: float,
        time: float,
        per_day: float,
    ) -> None:
        self.site = site
        self.accounts = accounts
        self.per_day = per_day
        self.per_second = per_day / _DAY
        self._account_of = account_of
        self._epoch = epoch
        self.now = epoch + time
        self._committed: dict[int, tuple[float, float]] = {}

    @property
    def held(self) -> float:
        """The core-seconds that the site may commit now."""
        return self.site.held

    def held_for(self, key: int) -> float:
        """The core-seconds that a row's start may commit now, of the site's and of its account's money."""
        budgets = self._budgets(key)
        for budget in budgets:
            budget.accrue(self.now)
        return min(budget.held for budget in budgets)

    def accrue(self, now: float) -> None:
        """Go on to a time, seconds of the log."""
        self.now = self._epoch + now
        self.site.accrue(self.now)

    def reserve(self, days_ahead: float, reserve_days: float) -> float:
        """The tokens that should be at hand by the period's plan: all are available from its start."""
        del days_ahead, reserve_days
        return self.site.planned(self.now)

    def price_share(self, key: int) -> float:
        """The share of the price that holds for a row's job: its account may hold more than is planned."""
        account = self.account_of(key)
        if account is None:
            return 1.0
        budget = self.accounts[account]
        budget.accrue(self.now)
        return budget.price_share(self.now)

    def commit(self, key: int, most: float) -> bool:
        """Take the most that a row's start may cost; False, and nothing is taken, where it is not there."""
        if most > self.held_for(key):
            return False
        for budget in self._budgets(key):
            budget.commit(most)
        self._committed[key] = most, self.now
        return True

    def settle(self, key: int, actual: float) -> None:
        """Give back what a start has not cost."""
        most, since = self._committed.pop(key)
        for budget in self._budgets(key):
            budget.settle(most, actual, since, self.now)

    def _budgets(self, row: int) -> list[PeriodBudget]:
        account = self.account_of(row)
        return [self.site] if account is None else [self.site, self.accounts[account]]

    def account_of(self, row: int) -> int | None:
        """The account with a budget of its own that a row's job has."""
        account = int(self._account_of[row])
        return account if account in self.accounts else None
