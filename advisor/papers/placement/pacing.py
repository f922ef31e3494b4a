"""The price of a core-second in the cloud that makes the budget for hedged starts last to its period's end.

A hedged job runs in the cloud and keeps its place in the on-premise queue. The price is the turnaround, in
seconds, that a core-second must be expected to save; a higher price means fewer and shorter hedges. For each
ended job it is known what its hedge would have cost at each price. The price is the lowest at which such
jobs, arriving as often as those remembered, use no more until the end of the period than is left. It is
computed at each submission: fast spending makes the rest dearer, slow spending cheaper. The budget holds
without it (:mod:`advisor.papers.placement.hedge_budget`).
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.papers.placement.hedging import PRICES

REMEMBERED: Final = 5_000
"""Newest ended jobs that are remembered; older ones are dropped, because the mix of jobs changes."""
MIN_KNOWN: Final = 500
"""Ended jobs that must be known before there is a price."""
MIN_SECONDS: Final = 3_600.0
"""Shortest time over which the rest of a budget is spread, even where its period ends sooner."""


class Pacer:
    """Remembers what the hedges of ended jobs would have cost."""

    def __init__(self) -> None:
        self._known: deque[tuple[float, Floats]] = deque()
        self._cost = np.zeros(len(PRICES))

    @property
    def known(self) -> int:
        """Ended jobs remembered."""
        return len(self._known)

    def remember(self, submitted: float, cost: Floats) -> None:
        """Add an ended job.

        Args:
            submitted: Time of its submission, seconds.
            cost: float64, shape (prices,): Core-seconds its hedge would have used at each of `PRICES`.
        """
        self._known.append((submitted, cost))
        self._cost += cost
        if len(self._known) > REMEMBERED:
            self._cost -= self._known.popleft()[1]

    def level(self, now: float, unspent: float, seconds_left: float) -> int | None:
        """Index into `PRICES` in force; None until enough jobs are known.

        ``now`` is in seconds, ``unspent`` the budget's core-seconds not used yet, ``seconds_left`` the time
        until the end of its period.
        """
        if self.known < MIN_KNOWN:
            return None
        rate = self._cost / max(now - self._known[0][0], 1.0)
        kept = np.flatnonzero(rate <= max(0.0, unspent) / max(seconds_left, MIN_SECONDS))
        return int(kept[0]) if len(kept) else len(PRICES) - 1
