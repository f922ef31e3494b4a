"""A replay's budget as tokens, which accrue evenly: a start takes its highest cost, its end returns the rest.

Some are lent before they accrue, so that there is money for a burst of jobs when it arrives. The budget is
never exceeded, whatever the forecasts are. A live one is `advisor.decide.price.period_budget`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

DAY = 86_400.0


class Tokens:
    """Money that may be spent now; the unit is the caller's (dollars, or core-seconds).

    Args:
        per_second: Tokens that accrue per second.
        time: When accrual begins, seconds.
        until: When accrual ends, seconds.
        max_days: The most days of accrual that are kept, the period; older unspent tokens lapse.
        held: Tokens at the beginning, besides those ahead.
    """

    def __init__(
        self,
        per_second: float,
        *,
        time: float,
        until: float = math.inf,
        max_days: float = 30.0,
        held: float = 0.0,
    ) -> None:
        self.per_second = per_second
        self.held = held
        self.ahead = 0.0
        self.spent = 0.0
        self._until = until
        self._max = per_second * DAY * max_days
        self._time = time
        self._ahead_days = 0.0
        self._committed: dict[Hashable, float] = {}

    @property
    def per_day(self) -> float:
        """Tokens that accrue in a day."""
        return self.per_second * DAY

    @property
    def committed(self) -> float:
        """The highest cost to come of starts under way."""
        return sum(self._committed.values())

    def held_for(self, key: Hashable) -> float:
        """What one start may take now."""
        del key
        return self.held

    def accrue(self, now: float) -> None:
        """Add what has accrued by ``now``, seconds."""
        now = min(now, self._until)
        if now > self._time:
            accrued = self.held - self.ahead + self.per_second * (now - self._time)
            self.held = min(self._max, accrued) + self.ahead
            self._time = now
            self.lend(self._ahead_days)

    def lend(self, days: float) -> None:
        """Lend the tokens of a number of days before they accrue, but none that accrue after the end."""
        self._ahead_days = days
        ahead = self.per_second * min(days * DAY, max(0.0, self._until - self._time))
        self.held += ahead - self.ahead
        self.ahead = ahead

    def reserve(self, days_ahead: float, reserve_days: float) -> float:
        """The tokens that should be at hand: those of the days lent, and a reserve for busy days."""
        self.lend(days_ahead)
        return reserve_days * self.per_day + self.ahead

    def price_share(self, key: Hashable) -> float:
        """The share of the price that holds for a start: all of it, as no start has an account of its own."""
        del key
        return 1.0

    def commit(self, key: Hashable, most: float) -> bool:
        """Take the highest cost of a start; if there are too few tokens, take nothing and return False."""
        if most > self.held:
            return False
        self.held -= most
        self._committed[key] = self._committed.get(key, 0.0) + most
        return True

    def settle(self, key: Hashable, actual: float) -> None:
        """Return the tokens that a start has not used.

        A cost above the commitment cannot be undone: it is taken from what is held, which may fall below 0.
        """
        accrued = self.held - self.ahead + self._committed.pop(key, 0.0) - actual
        self.held = min(self._max, accrued) + self.ahead
        self.spent += actual
