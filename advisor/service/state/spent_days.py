"""What was spent on each day of UTC, by account and by user: a part of `advisor.service.state.budget`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from advisor.model.bill import cost_by_day, day_of
from advisor.model.periods import is_user, period_span, user_name, user_payer
from advisor.service.state.budget_records import Amounts, in_all, share_out

_MAX_DAYS: Final = 800  # a year, and the one before, of which something may be carried over

Days = dict[str, dict[str, float]]
"""US dollars by day of UTC and name."""


class SpentDays:
    """Not thread-safe: its owner holds a lock.

    Attributes:
        days: By account; ``""`` is idle time and jobs without an account.
        users: The parts of it that are a user's.
    """

    def __init__(self, days: Days, users: Days) -> None:
        self.days = days
        self.users = users

    def add(self, since: float, until: float, usd_per_hour: float, shares: Mapping[str, float]) -> float:
        """Add the cost of a stretch of time, to each day its own part; returns its US dollars."""
        costs = cost_by_day(since, until, usd_per_hour)
        for day, usd in costs.items():
            share_out(self.days.setdefault(day, {}), shares, usd)
            for user in filter(is_user, shares):
                users, name = self.users.setdefault(day, {}), user_name(user)
                users[name] = users.get(name, 0.0) + usd * shares[user]
        return sum(costs.values())

    def replace(self, by_day: Mapping[str, float]) -> None:
        """Take other sums for these days; whose they are is not known."""
        self.days |= {day: {"": usd} for day, usd in by_day.items()}
        for day in by_day:
            self.users.pop(day, None)

    def forget_old(self) -> None:
        """Drop days that no budget counts any more."""
        for old in sorted(self.days)[:-_MAX_DAYS]:
            self.days.pop(old)
            self.users.pop(old, None)

    def copy(self) -> SpentDays:
        """The same, for a reader."""
        return SpentDays(
            {day: dict(accounts) for day, accounts in self.days.items()},
            {day: dict(users) for day, users in self.users.items()},
        )

    def first_time(self) -> float | None:
        """When the first day began, epoch seconds; None: nothing was spent."""
        first = min(self.days, default=None)
        return None if first is None else datetime.fromisoformat(first).replace(tzinfo=UTC).timestamp()

    def of_accounts(self, now: float, period: str) -> Amounts:
        """US dollars since a period began, in all and by account."""
        return in_all(_summed(self.days, now, period))

    def of_payers(self, now: float, account_period: str, user_period: str) -> MappingProxyType[str, float]:
        """The same of accounts and of users, by payer."""
        accounts = self.of_accounts(now, account_period)[1]
        users = _summed(self.users, now, user_period)
        return MappingProxyType({**accounts, **{user_payer(name): usd for name, usd in users.items()}})


def _summed(days: Mapping[str, Mapping[str, float]], now: float, period: str) -> dict[str, float]:
    begin, _ = period_span(now, period)
    found: dict[str, float] = {}
    for day, names in days.items():
        if day_of(begin) <= day <= day_of(now):
            for name, usd in names.items():
                found[name] = found.get(name, 0.0) + usd
    return found
