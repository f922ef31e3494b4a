"""Containers of the placement features: a table that grows and shrinks, the last few numbers by category."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.predict._addresses import Placed, address_of
from advisor.predict.forecast._placement_queue import COLUMNS, HEAD, IS_ORDERED, ORDER, ROWS, TABLE

Floats = NDArray[np.float64]

_ROW: Final = struct.Struct(f"={COLUMNS}d")

UNKNOWN: Final = -1.0
"""Stands for what is not known; every feature is 0 or more where it is known (`slack_processors` aside)."""


class Rows(Placed):
    """A table of jobs that can grow and shrink; removal moves the last row into the gap.

    Attributes
    ----------
    head : int64, shape (HEAD,)
        Where the table is and what counts of it, for compiled code (see ``_placement_queue``): always in
        force, at one place as long as this object lives.
    """

    def __init__(self) -> None:
        self.head = np.zeros(HEAD, np.int64)
        self._head = self.head.data
        self._slot: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._use(np.empty((256, COLUMNS)))

    @classmethod
    def of(cls, table: Floats) -> Rows:
        """A table to be looked at only: its rows have no names."""
        rows = cls()
        if len(table):
            rows._use(np.ascontiguousarray(table))
        rows._head[ROWS] = len(table)
        return rows

    def _use(self, table: Floats) -> None:
        self._table, self._order = table, np.empty(len(table), np.int64)
        self._table_bytes = table.data
        self.head[TABLE], self.head[ORDER] = address_of(table), address_of(self._order)

    def _changed(self) -> None:
        self._head[ROWS] = len(self._keys)
        self._head[IS_ORDERED] = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def table(self) -> Floats:
        """The jobs, shape (n, 5); a view until the next change."""
        return self._table[: len(self._keys)]

    def add(self, key: Hashable, row: tuple[float, ...]) -> None:
        """Put a job in."""
        slot = len(self._keys)
        if slot == len(self._table):
            self._use(np.concatenate([self._table, np.empty_like(self._table)]))
        self._slot[key] = slot
        _ROW.pack_into(self._table_bytes, slot * _ROW.size, *row)
        self._keys.append(key)
        self._changed()

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
        self._changed()


Numbers = tuple[float, ...]
Summary = Callable[[Numbers], Numbers]
"""From the last few numbers of a category, newest last, to what the features say of them."""


class Lags:
    """The last few numbers of each category, and what the features say of them.

    A submission asks far more often than a number is added, so what was worked out once is kept until then,
    as bytes: one object, not one a number.

    Parameters
    ----------
    length : int
        How many numbers are remembered.
    summary : callable
        Of the numbers of one category; of none as well.
    """

    def __init__(self, length: int, summary: Summary) -> None:
        self._length = length
        self._summary = summary
        self._of: dict[Hashable, deque[float]] = {}
        self._summaries: dict[Hashable, bytes] = {}
        none = summary(())
        self._doubles = struct.Struct(f"={len(none)}d")
        self._of_none = self._doubles.pack(*none)

    def add(self, category: Hashable, number: float) -> None:
        """Note one more."""
        lags = self._of.get(category)
        if lags is None:
            lags = self._of[category] = deque(maxlen=self._length)
        lags.append(number)
        self._summaries.pop(category, None)

    def of(self, category: Hashable) -> bytes:
        """What the features say of a category, as doubles one after another."""
        found = self._summaries.get(category)
        if found is not None:
            return found
        lags = self._of.get(category)
        if lags is None:
            return self._of_none
        found = self._summaries[category] = self._doubles.pack(*self._summary(tuple(lags)))
        return found


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
