"""The budget as tokens: they accrue evenly, a start takes its worst cost, its end settles the rest.

So money is never spent above the budget, whatever the forecasts say.
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
        max_days: Of accrual that are kept; what is not spent by then lapses.
        held: Tokens at the beginning.
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
        self.spent = 0.0
        self._until = until
        self._max = per_second * DAY * max_days
        self._time = time
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
            self.held = min(self._max, self.held + self.per_second * (now - self._time))
            self._time = now

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
