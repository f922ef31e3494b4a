"""Budgets at one moment: what was spent and promised of each, and whether another node may start.

The part of `advisor.service.state.budget` that judges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from advisor.decide.price.period_budget import PeriodMoney, period_money, spent_between
from advisor.model.bill import day_of
from advisor.model.periods import any_of, is_user, period_span, period_usd, user_name, user_payer
from advisor.service.state.budget_records import GivenBudgets, LaunchRequest, Promise, SpendingLimit
from advisor.service.state.spent_days import SpentDays

Limits: TypeAlias = Sequence[SpendingLimit]
ByDay: TypeAlias = dict[str, float]
"""US dollars by day of UTC."""
_DAY: Final = 86_400.0
_WEEK: Final = 7 * _DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetNow:
    """One budget in its present period; US dollars, epoch seconds.

    Attributes:
        payer: See :mod:`advisor.model.periods`; ``""`` is the site.
        usd: The budget of a period.
        carried: What the period before has left, where that may be spent.
        spent: In the present period.
        promised: What launched nodes may still cost.
        begin, end: The present period.
        spent_week: In the last seven days.
    """

    payer: str
    period: str
    usd: float
    carried: float
    spent: float
    promised: float
    begin: float
    end: float
    spent_week: float

    @property
    def most(self) -> float:
        """What may be spent in the period."""
        return self.usd + self.carried

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing more may start."""
        return self.spent + self.promised >= self.most


@dataclass(slots=True, kw_only=True)
class Books:
    """What was spent and promised, as the limits look at it.

    Attributes:
        unattributed: By day: it was rebuilt, and counts against each account and user.
        promised: By payer, and in all (``""``).
        began: Budgets carry nothing over from before, epoch seconds.
        given: What the budgets gave to the period before; None: as to this one.
    """

    spent: SpentDays
    unattributed: Mapping[str, float]
    promised: dict[str, float] = field(default_factory=dict)
    began: float
    given: GivenBudgets | None = None
    _days_from: dict[str, list[str]] = field(default_factory=dict)

    def by_day(self, payer: str, since: float) -> ByDay:
        """What was spent at most by a payer, or in all (``""``), on each day from a time (epoch seconds) on.

        A site may have thousands of users and two years of days, so each limit asks for the days it counts.
        """
        first = day_of(since)
        if first not in self._days_from:
            known = {*self.spent.days, *self.spent.users, *self.unattributed}
            self._days_from[first] = [day for day in known if day >= first]
        chosen, unknown = self._days_from[first], self.unattributed
        if not payer:
            return {day: sum(self.spent.days.get(day, {}).values()) for day in chosen}
        days = self.spent.users if is_user(payer) else self.spent.days
        name = user_name(payer)
        return {day: days.get(day, {}).get(name, 0.0) + unknown.get(day, 0.0) for day in chosen}

    def money(
        self,
        limit: SpendingLimit,
        payer: str,
        now: float,
        *,
        promised: float,
        observed_since: float = -math.inf,
    ) -> PeriodMoney:
        """The money of a payer (``""``: the site) in a limit's present period; see `period_money`."""
        begin, _ = period_span(now, limit.period)
        before, _ = period_span(begin - 1.0, limit.period)
        usd_before = None
        if self.given is not None:
            given = self.given.get(limit.key(payer))
            usd_before = 0.0 if given is None else given.before_period(begin)
        return period_money(
            usd=limit.of(payer) or 0.0,
            period=limit.period,
            since=self.began,
            now=now,
            spent_by_day=self.by_day(payer, before),
            promised=promised,
            observed_since=observed_since,
            carries_over=limit.carries_over,
            usd_before=usd_before,
        )

    def add(self, promise: Promise) -> None:
        """Promise more money."""
        for payer, share in {"": 1.0, **promise.by_payer}.items():
            self.promised[payer] = self.promised.get(payer, 0.0) + promise.usd * share

    def payers(self) -> Iterator[str]:
        """Accounts and users that have spent something, or to which something is promised."""
        yield from {name for accounts in self.spent.days.values() for name in accounts if name}
        yield from {user_payer(name) for users in self.spent.users.values() for name in users}
        yield from (payer for payer in self.promised if payer)


class JudgedBudgets:
    """The limits in force beside the books, at one moment.

    Args:
        now: Epoch seconds.
    """

    def __init__(self, limits: Limits, books: Books, now: float) -> None:
        self._limits = limits
        self._books = books
        self._now = now
        self._known: dict[tuple[int, str], BudgetNow] = {}

    def budget(self, number: int, payer: str) -> BudgetNow | None:
        """The budget that a limit (by its number) gives to a payer; None: it gives none."""
        limit = self._limits[number]
        found = self._known.get((number, payer))
        if found is None and (usd := limit.of(payer)) is not None:
            found = self._known[number, payer] = self._read(limit, payer, usd)
        return found

    def _read(self, limit: SpendingLimit, payer: str, usd: float) -> BudgetNow:
        begin, end = period_span(self._now, limit.period)
        money = self._books.money(limit, payer, self._now, promised=0.0)
        week = self._now - _WEEK + _DAY
        return BudgetNow(
            payer=payer,
            period=limit.period,
            usd=period_usd(usd, self._now, limit.period),
            carried=money.carried,
            spent=money.spent,
            promised=self._books.promised.get(payer, 0.0),
            begin=begin,
            end=end,
            spent_week=spent_between(self._books.by_day(payer, week), week, self._now),
        )

    def refusal(self, request: LaunchRequest) -> str:
        """Which limit forbids a node, in words; empty if none does: then its money is promised at once."""
        promise = request.promise(self._now)
        for number, limit in enumerate(self._limits if request.usd else ()):  # else it is paid for
            for payer in ("", *promise.by_payer):
                found = self.budget(number, payer)
                if found is None:
                    continue
                taken = found.spent + self._books.promised.get(payer, 0.0)
                if why := limit.refusal(payer, request.usd, taken, found.most):
                    return why
        self._books.add(promise)
        return ""

    def all(self) -> list[BudgetNow]:
        """Every budget: the site's, those that are named, and those of others who have spent something."""
        found = []
        for number, limit in enumerate(self._limits):
            named = [payer for payer in limit.payers if any_of(payer) != payer]
            others = limit.others(self._books.payers())
            for payer in ("", *named, *sorted(others.difference(named))):
                budget = self.budget(number, payer)
                if budget is not None:
                    found.append(budget)
        return found
