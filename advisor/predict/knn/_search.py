"""Compiled search, estimate and range upkeep of the k-NN estimator; equations are those of Cunha et al. 2017.

Cases are stored by feature, ``cases[feature, slot]``, so that one feature of many cases is contiguous: the
distances of a block of cases are summed in vector registers. This is faster than giving up early on single
cases (measured: docs/designs/0002-knn-search.md). Every function writes into arrays of the caller.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from advisor.arrays import Bools, Floats, Ints
from advisor.compiled import compiled

BLOCK: Final = 512
"""Cases whose distances are summed together: their 4 KiB of sums fit the first-level cache."""

SECONDS, VARIANCE, LOWER, UPPER, NEIGHBOURS = range(5)
"""Columns of a result."""

SMALLEST_RANGE: Final = 1e-290
"""A range up to this counts as none: its reciprocal would not be finite."""


class Base(NamedTuple):
    """The knowledge base as compiled functions see it; unused slots hold arbitrary values."""

    cases: Floats  # (features, slots)
    labels: Floats
    times: Floats
    job_ids: Ints
    nominal: Bools  # from here on (features,)
    low: Floats
    high: Floats
    weights: Floats


class Window(NamedTuple):
    """Slots to search: ``begin`` up to ``end``, from the block of slot ``newest`` back in time."""

    begin: int
    end: int
    newest: int


class Scratch(NamedTuple):
    """Working arrays, reused by every search; afterwards ``best`` and ``slots`` hold the k nearest."""

    sums: Floats  # (BLOCK,)
    best: Floats  # (k,) squared distances, nearest first
    slots: Ints  # (k,)
    ordered: Floats  # (2, k) labels in order, and their kernels


def scratch_for(k: int) -> Scratch:
    """Allocate the working arrays for k neighbours."""
    return Scratch(np.empty(BLOCK), np.empty(k), np.empty(k, np.int64), np.empty((2, k)))


@compiled
def squared_distances(base: Base, first: int, query: Floats, sums: Floats) -> None:
    """Square of Eq. 1 for the ``len(sums)`` cases from slot ``first`` on.

    A feature without a range (all known values equal, or none known) is compared by overlap, like a nominal
    one: 0 where equal, else 1.
    """
    sums[:] = 0.0
    count = len(sums)
    for feature in range(len(query)):
        weight = base.weights[feature]
        value = query[feature]
        if weight == 0.0:
            continue
        column = base.cases[feature, first : first + count]
        spread = base.high[feature] - base.low[feature]
        if value != value:  # noqa: PLR0124 (NaN: unknown, distance 1 to every case)
            for case in range(count):
                sums[case] += weight
        elif base.nominal[feature] or not spread > SMALLEST_RANGE:
            for case in range(count):  # an unknown case is unequal: distance 1
                sums[case] += 0.0 if column[case] == value else weight
        else:
            scale = 1.0 / spread
            for case in range(count):
                difference = (column[case] - value) * scale
                term = weight * difference * difference
                sums[case] += term if term == term else weight  # noqa: PLR0124


@compiled
def _comes_first(time: float, job_id: int, other_time: float, other_id: int) -> bool:
    """Order at equal distance: the newer case first, then the smaller job id."""
    if time != other_time:
        return time > other_time
    return job_id < other_id


@compiled
def insert(base: Base, distance: float, slot: int, scratch: Scratch, found: int) -> int:
    """Insert a case into the sorted list of the nearest if it belongs there; returns the list's length."""
    best, slots = scratch.best, scratch.slots
    k = len(best)
    time, job_id = base.times[slot], base.job_ids[slot]
    rank = found
    if found == k:
        rank = k - 1
        last = slots[rank]
        if distance > best[rank] or (
            distance == best[rank] and not _comes_first(time, job_id, base.times[last], base.job_ids[last])
        ):
            return found
    else:
        found += 1
    while rank > 0:
        before = slots[rank - 1]
        if best[rank - 1] < distance or (
            best[rank - 1] == distance
            and not _comes_first(time, job_id, base.times[before], base.job_ids[before])
        ):
            break
        best[rank] = best[rank - 1]
        slots[rank] = before
        rank -= 1
    best[rank] = distance
    slots[rank] = slot
    return found


@compiled
def _merge(base: Base, sums: Floats, first: int, scratch: Scratch, found: int) -> int:
    """Insert a block of cases into the sorted list of the nearest; returns the length of the list."""
    best = scratch.best
    k = len(best)
    for case in range(len(sums)):
        distance = sums[case]
        if found == k and distance > best[k - 1]:
            continue
        found = insert(base, distance, first + case, scratch, found)
    return found


@compiled
def nearest(base: Base, window: Window, query: Floats, scratch: Scratch) -> int:
    """Find the nearest cases; returns how many were found.

    The search goes back in time: near cases are often recent, so the bound is tight early.
    """
    begin, end = window.begin, window.end
    found = 0
    blocks = (end - begin + BLOCK - 1) // BLOCK
    start = (window.newest - begin) // BLOCK
    for step in range(blocks):
        first = begin + ((start - step) % blocks) * BLOCK
        sums = scratch.sums[: min(BLOCK, end - first)]
        squared_distances(base, first, query, sums)
        found = _merge(base, sums, first, scratch, found)
    return found


@compiled
def weigh(base: Base, scratch: Scratch, found: int, omega: float, coverage: float, result: Floats) -> None:
    """Compute Eq. 2 to 4 and the interval from the ``found`` nearest cases.

    The estimate is NaN where all kernels underflow, the variance infinite where they sum to at most 1.
    """
    result[:NEIGHBOURS] = math.nan
    result[VARIANCE] = math.inf
    result[NEIGHBOURS] = found
    ordered = scratch.ordered
    total = 0.0
    weighted = 0.0
    for i in range(found):
        ratio = math.sqrt(scratch.best[i]) / omega
        kernel = math.exp(-ratio * ratio)
        label = base.labels[scratch.slots[i]]
        total += kernel
        weighted += kernel * label
        rank = i  # insertion sort: the quantiles need the labels in order
        while rank > 0 and ordered[0, rank - 1] > label:
            ordered[0, rank] = ordered[0, rank - 1]
            ordered[1, rank] = ordered[1, rank - 1]
            rank -= 1
        ordered[0, rank] = label
        ordered[1, rank] = kernel
    if not total > 0.0:  # every kernel underflowed, or there is no neighbour
        return
    estimate = weighted / total
    result[SECONDS] = estimate
    if total > 1.0:
        squares = 0.0
        for i in range(found):
            squares += ordered[1, i] * (estimate - ordered[0, i]) ** 2
        result[VARIANCE] = squares / (total - 1.0)
    _interval(ordered, found, total, coverage, result)


@compiled
def _interval(ordered: Floats, found: int, total: float, coverage: float, result: Floats) -> None:
    """Weighted quantiles of the neighbours' labels, with the query counted as one more case.

    The query's own label, of weight K(0) = 1, may lie anywhere, so each tail has the share ``(1 - coverage) /
    2`` of ``total + 1`` (weighted conformal prediction, Tibshirani et al. 2019). Where there are too few
    neighbours for that, the interval spans all of them.
    """
    tail = (1.0 - coverage) / 2.0 * (total + 1.0) - 1.0
    tail += 1e-9 * total  # a rounding error must not keep a neighbour that belongs to the tail
    last = found - 1
    low = 0
    below = ordered[1, 0]
    while low < last and below <= tail:
        low += 1
        below += ordered[1, low]
    high = last
    above = ordered[1, last]
    while high > 0 and above <= tail:
        high -= 1
        above += ordered[1, high]
    result[LOWER] = ordered[0, low]
    result[UPPER] = ordered[0, high]


@compiled
def estimate_rows(
    base: Base,
    window: Window,
    queries: Floats,
    omega: float,
    coverage: float,
    scratch: Scratch,
    results: Floats,
) -> None:
    """Estimate each row of ``queries`` into the same row of ``results`` (rows, 5)."""
    for row in range(len(queries)):
        found = nearest(base, window, queries[row], scratch)
        weigh(base, scratch, found, omega, coverage, results[row])


@compiled
def extremes(column: Floats) -> tuple[float, float]:
    """Smallest and largest known value; (inf, -inf) where none is known."""
    low = math.inf
    high = -math.inf
    for value in column:
        low = np.fmin(low, value)  # fmin and fmax pass over NaN: unknown values change nothing
        high = np.fmax(high, value)
    return low, high


@compiled
def replace_case(base: Base, slot: int, size: int, features: Floats, label: float) -> None:
    """Write a case into a slot and keep each feature's range exact.

    ``size`` is the number of cases where the slot held one that is dropped, and 0 where it was free. A
    feature's range is searched again when the dropped case held one of its ends.
    """
    base.labels[slot] = label
    low, high = base.low, base.high
    for feature in range(len(features)):
        old = base.cases[feature, slot]
        new = features[feature]
        base.cases[feature, slot] = new
        if size > 0 and (old <= low[feature] or old >= high[feature]):
            low[feature], high[feature] = extremes(base.cases[feature, :size])
            continue
        low[feature] = np.fmin(low[feature], new)
        high[feature] = np.fmax(high[feature], new)
