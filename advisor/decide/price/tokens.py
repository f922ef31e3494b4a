"""The budget as tokens: they accrue evenly, a start takes its worst cost, its end settles the rest.

Some are there before they accrue, so that a burst of jobs can be bought out as it comes. Money is never spent
above the budget, whatever the forecasts say.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

DAY = 86_400.0


class Tokens:
    """Money that may be spent now; the unit is the caller's (dollars, or core-seconds).

    Args:
        per_second: Accrual.
        time: Seconds; accrual begins here.
        until: Seconds; accrual ends here.
        max_days: Of accrual that are kept, the period; what is not spent by then lapses.
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
        """Accrual of a day."""
        return self.per_second * DAY

    @property
    def committed(self) -> float:
        """What starts under way may still cost at worst."""
        return sum(self._committed.values())

    def accrue(self, now: float) -> None:
        """Add what has accrued by ``now``, seconds."""
        now = min(now, self._until)
        if now > self._time:
            accrued = self.held - self.ahead + self.per_second * (now - self._time)
            self.held = min(self._max, accrued) + self.ahead
            self._time = now
            self.lend(self._ahead_days)

    def lend(self, days: float) -> None:
        """Let so many days' tokens be there before they accrue; none that accrue after the end."""
        self._ahead_days = days
        ahead = self.per_second * min(days * DAY, max(0.0, self._until - self._time))
        self.held += ahead - self.ahead
        self.ahead = ahead

    def commit(self, key: Hashable, most: float) -> bool:
        """Take the most that a start may cost; False, and nothing is taken, where it is not there."""
        if most > self.held:
            return False
        self.held -= most
        self._committed[key] = self._committed.get(key, 0.0) + most
        return True

    def settle(self, key: Hashable, actual: float) -> None:
        """Give back what a start has not cost.

        A cost above the commitment cannot be undone: it is taken from what is held, which may fall below 0.
        """
        accrued = self.held - self.ahead + self._committed.pop(key, 0.0) - actual
        self.held = min(self._max, accrued) + self.ahead
        self.spent += actual
