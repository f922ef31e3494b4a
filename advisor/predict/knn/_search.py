"""The compiled half of the k-NN estimator: search, estimate, and upkeep of the ranges.

Cases lie feature by feature, ``cases[feature, slot]``, so that one feature of many cases is one contiguous
run of memory: the distance sum is built up a block of cases at a time in vector registers, which beats giving
up early on single cases (measured: docs/designs/0002-knn-search.md). Every function writes into arrays handed
in.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

BLOCK: Final = 512
"""Cases whose distances are built up together: 4 KiB of sums stay in the first-level cache."""

SECONDS, VARIANCE, LOWER, UPPER, NEIGHBOURS = range(5)
"""Columns of a result."""

SMALLEST_RANGE: Final = 1e-290
"""A smaller range counts as none: its reciprocal would not be finite."""


class Base(NamedTuple):
    """A knowledge base as the compiled functions see it; slots beyond the used ones hold anything."""

    cases: Floats  # (features, slots)
    labels: Floats
    times: Floats
    job_ids: Integers
    nominal: Booleans  # from here on (features,)
    low: Floats
    high: Floats
    weights: Floats


class Window(NamedTuple):
    """Which slots are searched: ``begin`` to ``end``, from the block of slot ``newest`` back in time."""

    begin: int
    end: int
    newest: int


class Scratch(NamedTuple):
    """Room to work in, kept between questions; ``best`` and ``slots`` end with the k nearest."""

    sums: Floats  # (BLOCK,)
    best: Floats  # (k,) squared distances, nearest first
    slots: Integers  # (k,)
    ordered: Floats  # (2, k) labels in order, and their kernels


def scratch_for(k: int) -> Scratch:
    """Room for questions with k neighbours."""
    return Scratch(np.empty(BLOCK), np.empty(k), np.empty(k, np.int64), np.empty((2, k)))


@compiled
def squared_distances(base: Base, first: int, query: Floats, sums: Floats) -> None:
    """Eq. 1 without its root, for the ``len(sums)`` cases from slot ``first`` on.

    A feature without a range (all known values equal, or none known) is compared by overlap, as a nominal
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
    """At equal distance: newer first, then the smaller job id."""
    if time != other_time:
        return time > other_time
    return job_id < other_id


@compiled
def insert(base: Base, distance: float, slot: int, scratch: Scratch, found: int) -> int:
    """Put a case among the nearest so far, kept in order, if it belongs there; returns how many there are."""
    best, slots = scratch.best, scratch.slots
    k = len(best)
    time, job_id = base.times[slot], base.job_ids[slot]
    place = found
    if found == k:
        place = k - 1
        last = slots[place]
        if distance > best[place] or (
            distance == best[place] and not _comes_first(time, job_id, base.times[last], base.job_ids[last])
        ):
            return found
    else:
        found += 1
    while place > 0:
        before = slots[place - 1]
        if best[place - 1] < distance or (
            best[place - 1] == distance
            and not _comes_first(time, job_id, base.times[before], base.job_ids[before])
        ):
            break
        best[place] = best[place - 1]
        slots[place] = before
        place -= 1
    best[place] = distance
    slots[place] = slot
    return found


@compiled
def _merge(base: Base, sums: Floats, first: int, scratch: Scratch, found: int) -> int:
    """Merge a block of distances into the nearest so far; returns how many there are."""
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

    The search goes back in time: near cases are often new, so the bound is tight early.
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
    """Eq. 2 to 4 and the interval, from the ``found`` nearest.

    Kernels that all underflow leave NaN; a kernel sum of at most 1 leaves an infinite variance.
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
        place = i  # insertion keeps the labels in order for the quantiles
        while place > 0 and ordered[0, place - 1] > label:
            ordered[0, place] = ordered[0, place - 1]
            ordered[1, place] = ordered[1, place - 1]
            place -= 1
        ordered[0, place] = label
        ordered[1, place] = kernel
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
    """Weighted quantiles of the neighbours' labels, the query itself counted as one more case.

    The query's own label, of weight K(0) = 1, may lie anywhere, so each tail keeps the share
    ``(1 - coverage) / 2`` of ``total + 1`` (weighted conformal reasoning, Tibshirani et al. 2019); where the
    neighbours are too few for that, their whole span is the interval.
    """
    tail = (1.0 - coverage) / 2.0 * (total + 1.0) - 1.0
    tail += 1e-9 * total  # so that rounding keeps no whole neighbour
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
    """Write a case's features and label into a slot and keep each feature's range exact.

    ``size`` is the number of cases if the slot held one that leaves, and 0 if it was free. When the case
    that leaves held an extreme, that feature's range is found anew.
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
