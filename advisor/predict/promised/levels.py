"""The levels at which promises are made, so that they are kept as often as they say.

A level moves up when a promise is broken, and down by less when one is kept, in log-odds: adaptive conformal
inference (Gibbs and Candes, NeurIPS 2021). There is one for each kind of promise and each third of the jobs
by size, so that no third pays for another one.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

THIRDS: Final = 3
_STEP: Final = 0.025
_FIRST_STEP: Final = 0.125
_FEW: Final = 20.0
"""The first steps are larger: ``_FIRST_STEP`` by the number of promises and ``_FEW``."""
_LEAST, _MOST = -2.0, 9.0  # log-odds
_SIZE_STEP: Final = 0.03
_SPREAD: Final = 0.5
"""Of the levels of promises to one user that are open together: log-odds for e times as many, both ways."""
_GOLDEN: Final = 0.5 * (math.sqrt(5.0) - 1.0)
_MARGIN: Final = 0.1
"""Held back of the share of promises that may be broken: a level follows a shift, and is late by that."""


class PromiseLevels:
    """How likely rows of a price list have to be.

    Args:
        confidence: Share of promises to be kept, above 0 and below 1.
        kinds: Kinds of promises that are told apart.
    """

    def __init__(self, confidence: float, kinds: int) -> None:
        self.confidence = confidence
        self._tail = (1.0 - _MARGIN) * (1.0 - confidence)
        self._odds = np.full((kinds, THIRDS), math.log((1.0 - self._tail) / self._tail))
        self._count = np.zeros((kinds, THIRDS))
        self._kept = np.zeros((kinds, THIRDS))
        self._sizes = np.array([math.nan, math.nan])

    @property
    def made(self) -> int:
        """Promises that are over."""
        return int(self._count.sum())

    @property
    def kept(self) -> int:
        """Those of them that were kept."""
        return int(self._kept.sum())

    def to_array(self) -> NDArray[np.float64]:
        """All that was learned."""
        parts = (self._odds.ravel(), self._count.ravel(), self._kept.ravel(), self._sizes)
        return np.concatenate(([self.confidence], *parts))

    def take(self, array: NDArray[np.float64]) -> None:
        """Go on with what :meth:`to_array` gave; an array that does not fit is left."""
        size = self._odds.size
        if array.shape != (3 + 3 * size,) or not np.all(np.isfinite(array[: 1 + 3 * size])):
            return
        if not 0.0 < array[0] < 1.0:
            return
        self.confidence = float(array[0])
        self._tail = (1.0 - _MARGIN) * (1.0 - self.confidence)
        self._odds, self._count, self._kept = array[1:-2].reshape(3, *self._odds.shape).copy()
        self._sizes = array[-2:].copy()

    def third_of(self, core_seconds: float) -> int:
        """The third of a job that asks for so many core-seconds, by those of the jobs before it."""
        size = math.log(max(1.0, core_seconds))
        return int(size > self._sizes[0]) + int(size > self._sizes[1])

    def learn_size(self, core_seconds: float) -> None:
        """Learn what a job has asked for."""
        size = math.log(max(1.0, core_seconds))
        if math.isnan(self._sizes[0]):
            self._sizes[:] = size - 0.5, size + 0.5
        self._sizes += _SIZE_STEP * (np.array([1.0, 2.0]) / THIRDS - (size <= self._sizes))
        self._sizes.sort()

    def level(self, kind: int, third: int, alike: int = 0) -> float:
        """The probability at which a promise of this kind is made to a job of this third.

        Args:
            alike: Promises to the same user that are not judged yet. They are kept or broken together, so
                their levels are spread around the one in force, by multiples of the golden ratio.
        """
        spread = _SPREAD * math.log1p(alike) * (2.0 * math.fmod(alike * _GOLDEN, 1.0) - 1.0)
        return float(1.0 / (1.0 + math.exp(-self._odds[kind, third] - spread)))

    def strain(self, kind: int, third: int) -> float:
        """How far promises of this kind have made their level rise: 0 as at first, 1 as far as it goes."""
        first = math.log((1.0 - self._tail) / self._tail)
        return float(min(1.0, max(0.0, (self._odds[kind, third] - first) / (_MOST - first))))

    def learn(self, kind: int, third: int, *, is_kept: bool) -> None:
        """Learn whether a promise was kept: at the job's end, or at its deadline."""
        self._count[kind, third] += 1.0
        self._kept[kind, third] += is_kept
        step = max(_STEP, _FIRST_STEP / (1.0 + self._count[kind, third] / _FEW))
        moved = self._odds[kind, third] + step * ((not is_kept) / self._tail - 1.0)
        self._odds[kind, third] = min(_MOST, max(_LEAST, moved))
