"""The budget as tokens: they accrue evenly, a start takes its worst cost, its end settles the rest.

Some are there before they accrue, so that a burst of jobs can be bought out as it comes. Money is never spent
above the budget, whatever the forecasts say.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Final

DAY = 86_400.0
_AHEAD_SHARE: Final = 1.0 / 3.0  # of a period's budget


def days_ahead(period_days: float, known_days: float) -> float:
    """So many days' tokens are there before they accrue: a third of a period's, once demand is known so long.

    A price that has seen hardly any demand lets too much through, so it is not given a third at once.
    """
    return max(0.0, min(_AHEAD_SHARE * period_days, known_days))


class Tokens:
    """Money that may be spent now; the unit is the caller's (dollars, or core-seconds).

    Args:
        per_second: Accrual.
        time: Seconds; accrual begins here.
        until: Seconds; accrual ends here.
        max_days: Of accrual that are kept, the period; what is not spent by then lapses.
        known_days: Before ``time``, of which demand is known (:func:`days_ahead`); None: no tokens are ahead.
        held: Tokens at the beginning, besides those ahead.
    """

    def __init__(
        self,
        per_second: float,
        *,
        time: float,
        until: float = math.inf,
        max_days: float = 30.0,
        known_days: float | None = None,
        held: float = 0.0,
    ) -> None:
        self.per_second = per_second
        self.held = held
        self.ahead = 0.0
        self.spent = 0.0
        self._until = until
        self._max = per_second * DAY * max_days
        self._time = time
        self._known_since = math.inf if known_days is None else time - known_days * DAY
        self._max_days = max_days
        self._committed: dict[Hashable, float] = {}
        self._advance()

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
            self.held = min(self._max, self.held + self.per_second * (now - self._time))
            self._time = now
            self._advance()

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
        self.held = min(self._max, self.held + self._committed.pop(key, 0.0) - actual)
        self.spent += actual

    def _advance(self) -> None:
        known_days = (self._time - self._known_since) / DAY
        seconds = min(days_ahead(self._max_days, known_days) * DAY, max(0.0, self._until - self._time))
        ahead = self.per_second * seconds
        self.held = min(self._max, self.held + ahead - self.ahead)
        self.ahead = ahead
