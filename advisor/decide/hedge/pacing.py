"""What a core-second in the cloud must bring: a price that makes a budget last to the end of its period.

Of each job that has ended it is known what its hedge would have cost at each price. The price is the lowest
at which such jobs, coming as often as those remembered, use no more by the end of the period than is left of
it: re-solved at each submission, so that what was spent too fast makes the rest dearer, and what is left
over makes it cheaper. That the budget is kept does not rest on it (:mod:`advisor.decide.hedge.hedge_budget`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.decide.hedge.hedging import PRICES

Floats = NDArray[np.float64]

REMEMBERED: Final = 5_000
"""Ended jobs: the mix changes with the weeks."""
MIN_KNOWN: Final = 500
"""Ended jobs before the price decides."""
MIN_SECONDS: Final = 3_600.0
"""The end of a period is no reason to spend what is left within minutes."""


class Pacer:
    """Remembers what hedges of ended jobs would have cost."""

    def __init__(self) -> None:
        self._known: deque[tuple[float, Floats]] = deque()
        self._cost = np.zeros(len(PRICES))

    @property
    def known(self) -> int:
        """Ended jobs remembered."""
        return len(self._known)

    def remember(self, submitted: float, cost: Floats) -> None:
        """Take in a job that has ended.

        Parameters
        ----------
        submitted : float
            When it was submitted, seconds.
        cost : float64, shape (prices,)
            Core-seconds its hedge would have used at each of `PRICES`.
        """
        self._known.append((submitted, cost))
        self._cost += cost
        if len(self._known) > REMEMBERED:
            self._cost -= self._known.popleft()[1]

    def level(self, now: float, unspent: float, seconds_left: float) -> int | None:
        """Index into `PRICES` in force; None until enough jobs are known.

        Parameters
        ----------
        now : float
            Seconds.
        unspent : float
            Core-seconds of the budget not used yet.
        seconds_left : float
            Until the end of its period.
        """
        if self.known < MIN_KNOWN:
            return None
        rate = self._cost / max(now - self._known[0][0], 1.0)
        kept = np.flatnonzero(rate <= max(0.0, unspent) / max(seconds_left, MIN_SECONDS))
        return int(kept[0]) if len(kept) else len(PRICES) - 1

    def to_arrays(self) -> dict[str, Floats]:
        """What is remembered."""
        return {
            "cost": np.array([cost for _, cost in self._known]).reshape(-1, len(PRICES)),
            "submitted": np.array([submitted for submitted, _ in self._known]),
        }

    def take_up(self, arrays: Mapping[str, Floats]) -> None:
        """Remember what :meth:`to_arrays` gave.

        Raises
        ------
        KeyError, ValueError
            It is something else.
        """
        cost, submitted = np.asarray(arrays["cost"], float), np.asarray(arrays["submitted"], float)
        if cost.shape != (len(submitted), len(PRICES)) or submitted.shape != (len(cost),):
            raise ValueError("its arrays do not fit together")
        if not (np.isfinite(cost).all() and np.isfinite(submitted).all()):
            raise ValueError("it has numbers that are none")
        for time, row in zip(submitted.tolist(), cost, strict=True):
            self.remember(time, row)
