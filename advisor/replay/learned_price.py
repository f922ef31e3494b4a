"""The price of a hedge in a replay of single decisions: learned as a live site learns it.

Of a job that has ended it is known what its hedge would have cost at each price, and what a clairvoyant would
have spent; hedges are charged with what they have used when they end (:mod:`advisor.decide.pacing`).
"""

from __future__ import annotations

import heapq

from advisor.decide.hedging import PRICES, HedgeCase, hindsight
from advisor.decide.pacing import LEAST_KNOWN, Pacer


class LearnedPrice:
    """Keeps the price as time goes on.

    Parameters
    ----------
    budget : float
        What hedges may use, as a multiple of what a clairvoyant would (``hedge.budget``).
    """

    def __init__(self, budget: float) -> None:
        self._pacer = Pacer(budget)
        self._under_way = list[tuple[float, int, HedgeCase, float, float]]()
        self._in_cloud = list[tuple[float, float]]()

    def at(self, now: float) -> float | None:
        """Seconds of turnaround that a core-second must bring; None until enough jobs have ended."""
        while self._in_cloud and self._in_cloud[0][0] < now:
            self._pacer.spend(heapq.heappop(self._in_cloud)[1])
        while self._under_way and self._under_way[0][0] < now:
            _, key, case, wait, run = heapq.heappop(self._under_way)
            seen = hindsight(case, wait, run)
            self._pacer.remember(seen.cost, seen.optimal, seen.expected_optimal)
            self._pacer.ended(key, seen.optimal)
        return float(PRICES[self._pacer.level()]) if self._pacer.known >= LEAST_KNOWN else None

    def submitted(self, key: int, case: HedgeCase, now: float, wait: float, run: float) -> None:
        """A job was submitted: what is forecast of it, and what will turn out when it has ended."""
        self._pacer.submitted(key, case.expected_optimum())
        heapq.heappush(self._under_way, (now + wait + run, key, case, wait, run))

    def hedged(self, ends: float, core_seconds: float) -> None:
        """A hedge will have used so much when it ends in the cloud."""
        heapq.heappush(self._in_cloud, (ends, core_seconds))
