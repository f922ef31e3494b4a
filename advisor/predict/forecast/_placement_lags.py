"""Containers of the placement features: a table that grows and shrinks, the last few numbers by category."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from advisor.predict.forecast.submission_features import COLUMNS, REQUEST, SINCE, UNKNOWN

Floats = NDArray[np.float64]


class Rows:
    """A table of jobs that can grow and shrink; removal moves the last row into the gap."""

    def __init__(self) -> None:
        self._slot: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._table = np.empty((256, COLUMNS))
        self._order: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def table(self) -> Floats:
        """The jobs, shape (n, 5); a view until the next change."""
        return self._table[: len(self._keys)]

    @property
    def order(self) -> NDArray[np.int64]:
        """Rows in the order in which the requested time of their jobs ends; sorted once a change."""
        if self._order is None:
            table = self.table
            self._order = np.argsort(table[:, SINCE] + table[:, REQUEST])
        return self._order

    def add(self, key: Hashable, row: tuple[float, ...]) -> None:
        """Put a job in."""
        slot = len(self._keys)
        if slot == len(self._table):
            self._table = np.concatenate([self._table, np.empty_like(self._table)])
        self._slot[key] = slot
        self._table[slot] = row
        self._keys.append(key)
        self._order = None

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
        self._order = None


Numbers = tuple[float, ...]
Summary = Callable[[Numbers], Numbers]
"""From the last few numbers of a category, newest last, to what the features say of them."""


class Lags:
    """The last few numbers of each category, and what the features say of them.

    Parameters
    ----------
    length : int
        How many numbers are remembered.
    summary : callable
        Of the numbers of one category; of none as well. It is worked out as numbers come, not as they are
        asked for.
    """

    def __init__(self, length: int, summary: Summary) -> None:
        self._length = length
        self._summary = summary
        self._numbers: dict[Hashable, deque[float]] = {}
        self._summaries: dict[Hashable, Numbers] = {}
        self._of_none = summary(())

    def add(self, category: Hashable, number: float) -> None:
        """Note one more."""
        lags = self._numbers.get(category)
        if lags is None:
            lags = self._numbers[category] = deque(maxlen=self._length)
        lags.append(number)
        self._summaries[category] = self._summary(tuple(lags))

    def of(self, category: Hashable) -> Numbers:
        """What the features say of a category."""
        return self._summaries.get(category, self._of_none)


def back(lags: Numbers, lag: int) -> float:
    """The number before the last, and so on (1: the last)."""
    return lags[-lag] if len(lags) >= lag else UNKNOWN


def mean(lags: Numbers, last: int = 1_000) -> float:
    """Mean of the last few."""
    if not lags:
        return UNKNOWN
    chosen = lags[-last:]
    return sum(chosen) / len(chosen)


def median(lags: Numbers) -> float:
    """Median of what there is: numpy's takes longer for twenty numbers than all else for one job."""
    ordered = sorted(lags)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


# What the features say of the last few numbers of a category (`Summary`).


def last_two(lags: Numbers) -> Numbers:
    """The last two."""
    return back(lags, 1), back(lags, 2)


def user_runs(lags: Numbers) -> Numbers:
    """The last three, the largest and the median."""
    extremes = (max(lags), median(lags)) if lags else (UNKNOWN, UNKNOWN)
    return back(lags, 1), back(lags, 2), back(lags, 3), *extremes


def alike_runs(lags: Numbers) -> Numbers:
    """The last, the mean of the last six, the largest and how many there are."""
    return back(lags, 1), mean(lags, 6), max(lags) if lags else UNKNOWN, float(len(lags))


def last_and_mean(lags: Numbers) -> Numbers:
    """The last and the mean."""
    return back(lags, 1), mean(lags)


def recent_means(lags: Numbers) -> Numbers:
    """The mean of the last five and of all."""
    return mean(lags, 5), mean(lags)
