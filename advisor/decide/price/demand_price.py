"""The price of time: how many seconds a core-second of the cloud has to save at least.

The price is read off recent demand. Each slice that was considered has an index (saving per core-second) and
an expected cost. At the right price, the slices of the last weeks whose index was above it would have used up
what accrues. That reading is slow. The price also follows the tokens at hand, at once: it is the reading
where the reserve for busy days is held, twice that where half of it is held, and so on. So in a burst of jobs
the last tokens go to the best slices instead of the first ones (docs/designs/0019-one-price.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from advisor.decide.price.tokens import DAY

_NO_DEMAND: Final = 0.0025
"""Of the smallest index seen, where there is more money than demand: nearly all that saves time is bought,
even at ``_MAX_FACTOR``."""
_AHEAD_SHARE: Final = 1.0 / 3.0  # of a period's budget
_MAX_FACTOR: Final = 20.0  # of the reading, where no tokens are left


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How the price follows.

    Attributes:
        reserve_days: Of accrual, held for busy days beside what is ahead: with more, the price is below the
            reading; with less, above.
        window_days: Demand is remembered for so long.
        hours: Between two readings of the price.
        first_price: Before any demand was seen, in place of a reading, seconds per core-second.
    """

    reserve_days: float = 2.0
    window_days: float = 28.0
    hours: float = 6.0
    first_price: float = 1.0


class DemandKept(NamedTuple):
    """A :class:`DemandPrice` as it is kept.

    Attributes:
        since: Demand is observed from here, seconds.
        price: As last read, seconds per unit of cost.
        next_reading: When the price is read again, seconds.
        seen: Slices considered by key: time (seconds), index and expected cost.
    """

    since: float
    price: float
    next_reading: float
    seen: dict[str, tuple[float, float, float]]


class DemandPrice:
    """The demand of the last weeks, and the price that it gives.

    Args:
        pace: How the price follows.
        time: Seconds; demand is observed from here.
    """

    def __init__(self, pace: Pace, time: float) -> None:
        self._pace = pace
        self._since = time
        self._seen: dict[Hashable, tuple[float, float, float]] = {}
        self._price = pace.first_price
        self._is_scarce = False
        self._next = time

    def note(self, key: Hashable, *, index: float, cost: float, now: float) -> None:
        """Remember a slice that was considered, at its best moment.

        Args:
            key: Of the job and the slice.
            index: Seconds saved per core-second.
            cost: Expected core-seconds.
            now: Seconds.
        """
        seen = self._seen.get(key)
        if index > 0.0 and (seen is None or index > seen[1]):
            self._seen[key] = now, index, cost

    def price(self, now: float, *, held: float, per_day: float, ahead: float) -> float:
        """The price now, seconds per core-second.

        Args:
            now: Seconds.
            held: Tokens at hand, core-seconds.
            per_day: Tokens that accrue in a day, core-seconds.
            ahead: Those of ``held`` that have not accrued yet, core-seconds, while nothing is spent.
        """
        if now >= self._next:
            self._read(now, per_day)
            self._next = now + 3600.0 * self._pace.hours
        reserve = self._pace.reserve_days * per_day + ahead
        return self._price * (reserve / held if held > reserve / _MAX_FACTOR else _MAX_FACTOR)

    def days_ahead(self, now: float, period_days: float) -> float:
        """How many days' tokens are there before they accrue: a third of a period's, in a scarcity of money.

        Where all demand can be paid, none is worth borrowing for. A price that has seen hardly any demand
        lets too much through, so there are no more days than it has seen.

        Args:
            now: Seconds.
            period_days: Of the budget.
        """
        return min(_AHEAD_SHARE * period_days, (now - self._since) / DAY) if self._is_scarce else 0.0

    def _read(self, now: float, per_day: float) -> None:
        oldest = now - self._pace.window_days * DAY
        self._seen = {key: seen for key, seen in self._seen.items() if seen[0] >= oldest}
        if not self._seen:
            return
        _, indices, costs = np.array(list(self._seen.values())).T
        days = min(self._pace.window_days, max(1.0, (now - self._since) / DAY))
        order = np.argsort(-indices, kind="stable")
        cumulated = np.cumsum(costs[order])
        row = int(np.searchsorted(cumulated, per_day * days))
        self._is_scarce = row < len(order)
        self._price = float(indices[order[row]] if self._is_scarce else _NO_DEMAND * indices[order[-1]])

    def kept(self) -> DemandKept:
        """All that a new process needs to go on; keys as text."""
        return DemandKept(
            since=self._since,
            price=self._price,
            next_reading=self._next,
            seen={str(key): seen for key, seen in self._seen.items()},
        )

    def take_up(self, kept: DemandKept) -> None:
        """Go on where another process has ended."""
        self._since, self._price, self._next = kept.since, kept.price, kept.next_reading
        self._seen = {key: seen for key, seen in kept.seen.items()}  # noqa: C416 (keys are any Hashable)
        self._is_scarce = self._price >= min((index for _, index, _ in kept.seen.values()), default=math.inf)

    def after_rehearsal(self, now: float, is_known: Callable[[Any], bool]) -> DemandPrice:
        """The price from ``now`` on (seconds), with the rehearsed demand of keys that are known by then."""
        price = DemandPrice(self._pace, self._since)
        price._price, price._is_scarce, price._next = self._price, self._is_scarce, now
        price._seen = {("rehearsed", key): seen for key, seen in self._seen.items() if is_known(key)}
        return price

    @property
    def is_known(self) -> bool:
        """Whether any demand was seen."""
        return bool(self._seen) and math.isfinite(self._price)
