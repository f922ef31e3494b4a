"""The price of time: the seconds that a unit of cost has to save at least.

The unit of cost is the caller's: US dollars live (the price loop), core-seconds of the cloud in the closed
loop's replays.

The price is read off recent demand. Each slice that was considered has an index (seconds saved per unit of
cost) and an expected cost. The reading is the price at which the slices of the last weeks with a higher index
would have cost exactly what the budget accrued. The reading changes slowly; the price also follows the money
at hand immediately. It is the reading if the money at hand equals the planned reserve, twice the reading if
it is half of the reserve, and so on. So in a burst of jobs the last money goes to the best slices and not to
the first ones (docs/designs/0019-one-price.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from advisor.decide.price.tokens import DAY

_NO_DEMAND: Final = 0.0025
"""The reading if there is more money than demand, as a share of the smallest index observed.

At this reading nearly every slice that saves time is bought, even if the price is ``_MAX_FACTOR`` times it.
"""
_AHEAD_SHARE: Final = 1.0 / 3.0
"""Share of a period's budget that may be spent before it accrues."""
_MAX_FACTOR: Final = 20.0
"""Largest price over the reading (no money is left), and largest reading over the price (far too much)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How the price follows demand and money.

    Attributes:
        reserve_days: The reserve for busy days, in days of even accrual. With more money at hand the price is
            below the reading, with less it is above. A budget of calendar periods follows a plan instead.
        window_days: How long demand is remembered, days.
        hours: Time between two readings of the price, hours.
        first_price: The reading before any demand was observed, seconds per unit of cost.
    """

    reserve_days: float = 2.0
    window_days: float = 28.0
    hours: float = 6.0
    first_price: float = 1.0


class DemandKept(NamedTuple):
    """The stored state of a :class:`DemandPrice`.

    Attributes:
        since: When the observation of demand began, seconds.
        price: The last reading, seconds per unit of cost.
        next_reading: When the price is read again, seconds.
        seen: Key of a slice that was considered to its time (seconds), index and expected cost.
    """

    since: float
    price: float
    next_reading: float
    seen: dict[str, tuple[float, float, float]]


class DemandPrice:
    """The demand of the last weeks, and the price that follows from it.

    Args:
        time: Seconds; demand is observed from here.
    """

    def __init__(self, pace: Pace, time: float) -> None:
        self.pace = pace
        self._since = time
        self._seen: dict[Hashable, tuple[float, float, float]] = {}
        self._price = pace.first_price
        self._is_scarce = False
        self._next = time

    def note(self, key: Hashable, *, index: float, cost: float, now: float) -> None:
        """Remember a slice that was considered; of several calls with a key the one with the highest index.

        Args:
            key: Identifies the job and the slice.
            index: Seconds saved per unit of cost.
            now: The present time, seconds.
        """
        seen = self._seen.get(key)
        if index > 0.0 and (seen is None or index > seen[1]):
            self._seen[key] = now, index, cost

    def price(self, now: float, *, held: float, reserve: float, per_day: float) -> float:
        """The price now, seconds per unit of cost.

        Args:
            now: The present time, seconds.
            held: Money at hand, units of cost.
            reserve: The money that should be at hand now, units of cost: by a plan for the rest of the
                period, or for busy days.
            per_day: The budget of a day, units of cost.
        """
        if now >= self._next:
            self._read(now, per_day)
            self._next = now + 3600.0 * self.pace.hours
        if held <= reserve / _MAX_FACTOR:
            return self._price * _MAX_FACTOR
        return self._price * max(1.0 / _MAX_FACTOR, reserve / held)

    def clock_is_at(self, now: float) -> None:
        """Take times that a clock gave which was ahead, and was set back to ``now`` (seconds), for that."""
        self._since = min(self._since, now)
        self._next = min(self._next, now + 3600.0 * self.pace.hours)

    def days_ahead(self, now: float, period_days: float) -> float:
        """How many days' tokens are there before they accrue: a third of a period's, in a scarcity of money.

        If all demand can be paid, nothing is lent. A price that has observed little demand is too low, so no
        more days are lent than it has observed.

        Args:
            now: Seconds.
            period_days: Length of the budget's period, days.
        """
        return min(_AHEAD_SHARE * period_days, (now - self._since) / DAY) if self._is_scarce else 0.0

    def forget(self, now: float) -> None:
        """Forget what was seen before the last weeks."""
        oldest = now - self.pace.window_days * DAY
        self._seen = {key: seen for key, seen in self._seen.items() if seen[0] >= oldest}

    def _read(self, now: float, per_day: float) -> None:
        self.forget(now)
        if not self._seen:
            return
        _, indices, costs = np.array(list(self._seen.values())).T
        days = min(self.pace.window_days, max(1.0, (now - self._since) / DAY))
        order = np.argsort(-indices, kind="stable")
        cumulated = np.cumsum(costs[order])
        row = int(np.searchsorted(cumulated, per_day * days))
        self._is_scarce = row < len(order)
        self._price = float(indices[order[row]] if self._is_scarce else _NO_DEMAND * indices[order[-1]])

    @property
    def since(self) -> float:
        """When the observation of demand began, seconds."""
        return self._since

    def kept(self) -> DemandKept:
        """The state with which a new process continues; keys are text."""
        return DemandKept(
            since=self._since,
            price=self._price,
            next_reading=self._next,
            seen={str(key): seen for key, seen in self._seen.items()},
        )

    def take_up(self, kept: DemandKept) -> None:
        """Continue from the state of another process."""
        self._since, self._price, self._next = kept.since, kept.price, kept.next_reading
        self._seen = {key: seen for key, seen in kept.seen.items()}  # noqa: C416 (keys are any Hashable)
        self._is_scarce = self._price >= min((index for _, index, _ in kept.seen.values()), default=math.inf)

    def after_rehearsal(self, now: float, is_known: Callable[[Any], bool]) -> DemandPrice:
        """The price from ``now`` on (seconds), with the rehearsed demand of keys that are known by then."""
        price = DemandPrice(self.pace, self._since)
        price._price, price._is_scarce, price._next = self._price, self._is_scarce, now
        price._seen = {("rehearsed", key): seen for key, seen in self._seen.items() if is_known(key)}
        return price

    @property
    def is_known(self) -> bool:
        """Whether any demand was observed."""
        return bool(self._seen) and math.isfinite(self._price)
