"""Containers of the placement features: a table of live jobs, and the last few numbers per category."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.papers.forests.submission_features import COLUMNS, REQUEST, SINCE, UNKNOWN


class LiveJobs:
    """A table of live jobs; removal moves the last row into the gap."""

    def __init__(self) -> None:
        self._slot: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._table = np.empty((256, COLUMNS))
        self._order: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def table(self) -> Floats:
        """The jobs, shape (n, 5); a view that is valid until the next change."""
        return self._table[: len(self._keys)]

    @property
    def order(self) -> NDArray[np.int64]:
        """Rows in the order in which the requested times end; sorted once per change."""
        if self._order is None:
            table = self.table
            self._order = np.argsort(table[:, SINCE] + table[:, REQUEST])
        return self._order

    def add(self, key: Hashable, row: tuple[float, ...]) -> None:
        """Add a job."""
        slot = len(self._keys)
        if slot == len(self._table):
            self._table = np.concatenate([self._table, np.empty_like(self._table)])
        self._slot[key] = slot
        self._table[slot] = row
        self._keys.append(key)
        self._order = None

    def remove(self, key: Hashable) -> None:
        """Remove a job, if it is there."""
        slot = self._slot.pop(key, None)
        if slot is None:
            return
        last = self._keys.pop()
        if last != key:
            self._table[slot] = self._table[len(self._keys)]
            self._keys[slot] = last
            self._slot[last] = slot
        self._order = None


Numbers = tuple[float, ...]
Summary = Callable[[Numbers], Numbers]
"""From the last few numbers of a category, newest last, to their features."""


class Lags:
    """The last few numbers of each category, and their features.

    ``length`` numbers are kept. ``summary`` also takes none; it is computed as numbers arrive, not on
    reading.
    """

    def __init__(self, length: int, summary: Summary) -> None:
        self._length = length
        self._summary = summary
        self._numbers: dict[Hashable, deque[float]] = {}
        self._summaries: dict[Hashable, Numbers] = {}
        self._of_no_numbers = summary(())

    def add(self, category: Hashable, number: float) -> None:
        """Add a number to a category."""
        lags = self._numbers.get(category)
        if lags is None:
            lags = self._numbers[category] = deque(maxlen=self._length)
        lags.append(number)
        self._summaries[category] = self._summary(tuple(lags))

    def of(self, category: Hashable) -> Numbers:
        """The features of a category."""
        return self._summaries.get(category, self._of_no_numbers)


def lagged(lags: Numbers, lag: int) -> float:
    """The last number but ``lag - 1`` (1: the last)."""
    return lags[-lag] if len(lags) >= lag else UNKNOWN


def mean(lags: Numbers, last: int = 1_000) -> float:
    """Mean of the last few numbers."""
    if not lags:
        return UNKNOWN
    chosen = lags[-last:]
    return sum(chosen) / len(chosen)


def median(lags: Numbers) -> float:
    """Median; numpy's is slower for twenty numbers than everything else for one job."""
    ordered = sorted(lags)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


# What the features say of the last few numbers of a category (`Summary`).


def last_two(lags: Numbers) -> Numbers:
    """The last two numbers."""
    return lagged(lags, 1), lagged(lags, 2)


def user_runs(lags: Numbers) -> Numbers:
    """The last three, the largest and the median."""
    extremes = (max(lags), median(lags)) if lags else (UNKNOWN, UNKNOWN)
    return lagged(lags, 1), lagged(lags, 2), lagged(lags, 3), *extremes


def similar_runs(lags: Numbers) -> Numbers:
    """The last, the mean of the last six, the largest, and the count."""
    return lagged(lags, 1), mean(lags, 6), max(lags) if lags else UNKNOWN, float(len(lags))


def last_and_mean(lags: Numbers) -> Numbers:
    """The last and the mean."""
    return lagged(lags, 1), mean(lags)


def recent_means(lags: Numbers) -> Numbers:
    """The mean of the last five, and of all."""
    return mean(lags, 5), mean(lags)
