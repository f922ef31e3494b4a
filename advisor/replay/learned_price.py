"""Budget and price of hedges in a what-if, kept and learned as on a live site.

The price is learned from the hedge that each ended job could have had (:mod:`advisor.decide.hedge.pacing`);
a hedge's worst case is reserved when it starts and settled when it ends
(:mod:`advisor.decide.hedge.hedge_budget`).
"""

from __future__ import annotations

import heapq

from advisor.decide.hedge.hedge_budget import Budget, period_end, period_of
from advisor.decide.hedge.hedging import PRICES, HedgeCase, hindsight
from advisor.decide.hedge.pacing import Pacer
from advisor.model.settings import HedgeSettings


class LearnedPrice:
    """The budget and the price over time.

    Args:
        settings: The budget and its period.
        usd_per_core_hour: On-demand price.
        start_of_log: Epoch seconds of time 0.
    """

    def __init__(self, settings: HedgeSettings, usd_per_core_hour: float, start_of_log: float) -> None:
        self._kind, self._start = settings.budget_period, start_of_log
        self._core_seconds = settings.budget_core_seconds(usd_per_core_hour)
        self._budget = Budget(self._core_seconds)
        self._period = ""
        self._pacer = Pacer()
        self._under_way = list[tuple[float, int, float, HedgeCase, float, float]]()
        self._in_cloud = list[tuple[float, int, float]]()

    @property
    def left(self) -> float:
        """Core-seconds that may still be reserved."""
        return max(0.0, self._budget.left)

    def at(self, now: float) -> float | None:
        """Seconds of turnaround that a core-second must bring; None until enough jobs have ended."""
        while self._in_cloud and self._in_cloud[0][0] < now:
            _, key, core_seconds = heapq.heappop(self._in_cloud)
            self._budget.settle(key, core_seconds)
        while self._under_way and self._under_way[0][0] < now:
            _, _, submitted, case, wait, run = heapq.heappop(self._under_way)
            self._pacer.remember(submitted, hindsight(case, wait, run).cost)
        period = period_of(now + self._start, self._kind)
        if period != self._period:
            self._period = period
            self._budget.begin(self._core_seconds)
        seconds_left = period_end(period) - now - self._start
        level = self._pacer.level(now, self._budget.unspent, seconds_left)
        return None if level is None else float(PRICES[level])

    def submitted(self, key: int, case: HedgeCase, now: float, wait: float, run: float) -> None:
        """Add a submitted job: its wait and run time (seconds) become known when it has ended."""
        heapq.heappush(self._under_way, (now + wait + run, key, now, case, wait, run))

    def reserve(self, key: int, core_seconds: float) -> bool:
        """Reserve core-seconds for a hedge; False where the budget has fewer left."""
        return self._budget.reserve(key, core_seconds)

    def hedged(self, key: int, ends: float, core_seconds: float) -> None:
        """Add what a hedge will have used when it ends (seconds), at most what it has reserved."""
        heapq.heappush(self._in_cloud, (ends, key, min(core_seconds, self._budget.reserved(key))))
