"""What a core-second in the cloud must bring: a price that makes a budget last.

The budget is a multiple of what a clairvoyant would have spent on the same jobs, which is known for each job
when it has ended and forecast before. The price is, first, the one at which the jobs known so far would have
cost what they may; second, it rises by a factor with what has been spent too much and falls, less far, with
what is left: dual ascent on the budget, as in online allocation (Balseiro, Lu, Mirrokni, "The best of many
worlds: dual mirror descent for online allocation problems", Operations Research 2023).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.decide.hedging import PRICE_STEP, PRICES

Floats = NDArray[np.float64]

GAIN: Final = 25.0
"""Logarithm of the price per budget of the jobs remembered: more keeps closer to it and gains less."""
MOST_DISCOUNT: Final = 0.5
"""The price falls by no more than exp(-0.5) below the one history asks for, however much is left."""
REMEMBERED: Final = 10_000
LEAST_KNOWN: Final = 500
"""Ended jobs before the price decides; until then the settings' stop-loss does alone."""
REVIEWED: Final = 50
"""Ended jobs between two looks at the history."""


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    cost: Floats
    optimal: float
    expected_optimal: float


class Pacer:
    """Keeps a budget and says what a core-second must bring.

    Parameters
    ----------
    multiple : float
        Of the clairvoyant's core-seconds that may be spent.
    """

    def __init__(self, multiple: float) -> None:
        self.multiple = multiple
        self._known: deque[_Known] = deque()
        self._cost = np.zeros(len(PRICES))
        self._optimal = self._expected_optimal = 0.0
        self._open: dict[Hashable, float] = {}
        self._open_expected = self._period_optimal = self._spent = 0.0
        self._calibration, self._base = 1.0, len(PRICES) - 1
        self._since_review = REVIEWED

    def remember(self, cost: Floats, optimal: float, expected_optimal: float) -> None:
        """Take in a job that has ended.

        Parameters
        ----------
        cost : float64, shape (prices,)
            Core-seconds it would have cost at each of `PRICES`.
        optimal, expected_optimal : float
            Core-seconds the clairvoyant would have spent on it, and what was forecast of them.
        """
        self._known.append(_Known(cost, optimal, expected_optimal))
        self._cost += cost
        self._optimal += optimal
        self._expected_optimal += expected_optimal
        if len(self._known) > REMEMBERED:
            gone = self._known.popleft()
            self._cost -= gone.cost
            self._optimal -= gone.optimal
            self._expected_optimal -= gone.expected_optimal
        self._since_review += 1

    def submitted(self, key: Hashable, expected_optimal: float) -> None:
        """Note a job of this budget's period; its share of the budget is a forecast until it has ended."""
        self._open[key] = expected_optimal
        self._open_expected += expected_optimal

    def ended(self, key: Hashable, optimal: float) -> None:
        """Note what the clairvoyant would have spent on a job of the period."""
        self._open_expected -= self._open.pop(key)
        self._period_optimal += optimal

    def withdrawn(self, key: Hashable) -> None:
        """A job of the period will never tell: it was cancelled, or its wait was more than one."""
        self._open_expected -= self._open.pop(key, 0.0)

    @property
    def known(self) -> int:
        """Ended jobs remembered."""
        return len(self._known)

    def to_arrays(self) -> dict[str, Floats]:
        """What is remembered of ended jobs; the budget's period is its process's own."""
        return {
            "cost": np.array([job.cost for job in self._known]).reshape(-1, len(PRICES)),
            "optimal": np.array([(job.optimal, job.expected_optimal) for job in self._known]).reshape(-1, 2),
        }

    def take_up(self, arrays: Mapping[str, Floats]) -> None:
        """Remember what :meth:`to_arrays` gave.

        Raises
        ------
        KeyError, ValueError
            It is something else.
        """
        cost, optimal = np.asarray(arrays["cost"], float), np.asarray(arrays["optimal"], float)
        if cost.shape != (len(optimal), len(PRICES)) or optimal.shape != (len(cost), 2):
            raise ValueError("its arrays do not fit together")
        if not (np.isfinite(cost).all() and np.isfinite(optimal).all()):
            raise ValueError("it has numbers that are none")
        for row, (really, expected) in zip(cost, optimal.tolist(), strict=True):
            self.remember(row, really, expected)

    def spend(self, core_seconds: float) -> None:
        """Note what a hedge is expected to cost, and later by how much it was wrong."""
        self._spent += core_seconds

    @property
    def overspent(self) -> float:
        """Spent more than allowed, as a share of the budget of the jobs remembered; negative: left."""
        allowed = self.multiple * (self._period_optimal + self._calibration * self._open_expected)
        return (self._spent - allowed) / max(self.multiple * self._optimal, 1e-9)

    def level(self) -> int:
        """Index into `PRICES` in force now."""
        if self._since_review >= REVIEWED:
            self._review()
        shift = max(GAIN * self.overspent, -MOST_DISCOUNT) / PRICE_STEP
        return int(min(max(self._base + shift, 0.0), len(PRICES) - 1.0))

    def _review(self) -> None:
        """Find the lowest price at which the jobs remembered would have kept to the budget."""
        self._since_review = 0
        if self._expected_optimal > 0.0:
            self._calibration = self._optimal / self._expected_optimal
        kept = np.flatnonzero(self._cost <= self.multiple * self._optimal)
        # where the clairvoyant spends nothing there is nothing to win
        self._base = int(kept[0]) if len(kept) and self._optimal > 0.0 else len(PRICES) - 1
