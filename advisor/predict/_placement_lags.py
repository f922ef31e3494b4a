"""Containers of the placement features: a table that grows and shrinks, the last few numbers by category."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.predict._placement_queue import COLUMNS

Floats = NDArray[np.float64]

UNKNOWN: Final = -1.0
"""Stands for what is not known; every feature is 0 or more where it is known (`slack_processors` aside)."""


class Rows:
    """A table of jobs that can grow and shrink; removal moves the last row into the gap."""

    def __init__(self) -> None:
        self._table = np.empty((256, COLUMNS))
        self._slot: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []

    @property
    def table(self) -> Floats:
        """The jobs, shape (n, 5); a view until the next change."""
        return self._table[: len(self._keys)]

    def add(self, key: Hashable, row: tuple[float, ...]) -> None:
        """Put a job in."""
        if len(self._keys) == len(self._table):
            self._table = np.concatenate([self._table, np.empty_like(self._table)])
        self._slot[key] = len(self._keys)
        self._table[len(self._keys)] = row
        self._keys.append(key)

    def remove(self, key: Hashable) -> None:
        """Take a job out, if it is in."""
        slot = self._slot.pop(key, None)
        if slot is None:
            return
        last = self._keys.pop()
        if last != key:
            self._table[slot] = self._table[len(self._keys)]
            self._keys[slot] = last
            self._slot[last] = slot


class Lags:
    """The last few numbers of each category."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._of: dict[Hashable, deque[float]] = {}

    def add(self, category: Hashable, number: float) -> None:
        """Note one more."""
        lags = self._of.get(category)
        if lags is None:
            lags = self._of[category] = deque(maxlen=self._length)
        lags.append(number)

    def of(self, category: Hashable) -> deque[float] | tuple[float, ...]:
        """The last of a category, newest last; empty when there is none."""
        return self._of.get(category, ())


def back(lags: deque[float] | tuple[float, ...], lag: int) -> float:
    """The number before the last, and so on (1: the last)."""
    return lags[-lag] if len(lags) >= lag else UNKNOWN


def mean(lags: deque[float] | tuple[float, ...], last: int = 1_000) -> float:
    """Mean of the last few."""
    if not lags:
        return UNKNOWN
    chosen = list(lags)[-last:]
    return sum(chosen) / len(chosen)


def median(lags: deque[float] | tuple[float, ...]) -> float:
    """Median of what there is: numpy's takes longer for twenty numbers than all else for one job."""
    ordered = sorted(lags)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0
