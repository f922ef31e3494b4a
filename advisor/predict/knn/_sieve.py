"""A settled knowledge base: most cases are ruled out unread, most others by one byte a feature.

In `advisor serve` a knowledge base does not change between two loads, and other programs empty the
processor's caches between two questions: then reading a megabyte of cases costs more than the arithmetic.
So cases that agree in their nominal features (user, group, queue) lie together, in a *bucket*. What a query
differs in from a bucket is a *lower bound* of its distance from every case there: buckets are visited nearest
first, level by level of that bound, until it is above the k-th best distance. Of the buckets that are
visited, each further feature is kept as one byte, from which a lower bound of the whole distance follows;
only cases whose bound is not above the k-th best distance are measured, with the definition's own arithmetic.
The neighbours are the same to the last bit.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.predict.knn._search import SMALLEST_RANGE, Base, Floats, Integers, Scratch, insert, weigh

Bytes = NDArray[np.uint8]
Singles = NDArray[np.float32]

BLOCK: Final = 2048
FEW: Final = 128
"""Bounds looked at together: most such groups hold none that matters."""
STEPS: Final = 254.0
"""A number's range in bytes: 0 to 254."""
UNKNOWN: Final = 255
NAMES: Final = 251.0
"""Nominal codes modulo this: equal values have equal bytes, unequal ones nearly always unequal bytes."""
SLACK: Final = np.float32(0.51)
"""Half a byte of rounding, and more than single precision can lose."""
FARTHEST: Final = 1e6
"""Bytes beyond the range: a query farther out is taken for this far, which bounds all the same."""
HEAVIEST: Final = 1e24
"""A heavier feature counts as this: no bound is infinite, though a distance may be."""
CASES_A_BUCKET: Final = 8
"""At least, on average: going through the buckets must cost less than what they spare."""
MEASURED: Final = math.inf
"""In place of the bound of a case that has been measured."""
LARGEST_VALUE: Final = 1e150
"""A number beyond is taken for unknown: its square would not be finite."""
WEIGHT, LOW, HIGH, NOMINAL, GROUPING = range(5)
"""Rows of ``Sieve.scales``."""
MARGIN: Final = 1.0001
"""On the limit, for single precision in the sum of the bounds."""


class Sieve(NamedTuple):
    """A base once more, bucket by bucket."""

    codes: Bytes  # (features, slots)
    rows: Floats  # (slots, features): one case is two cache lines
    outcomes: Floats  # (2, slots): labels, times
    job_ids: Integers  # (slots,)
    scales: Floats  # (5, features): weight, lowest, highest, whether nominal, whether of the buckets
    starts: Integers  # (buckets + 1,) first slot of each bucket, then the number of slots
    keys: Floats  # (buckets, features) a case of each bucket


class SieveScratch(NamedTuple):
    """Room to work in, and where the k nearest end up."""

    bounds: Singles  # (slots,)
    levels: Floats  # (buckets,)
    near: Integers  # (k,) the slots of the smallest bounds
    near_bounds: Singles  # (k,)
    query: Floats  # (features,)
    best: Floats  # as of _search.Scratch
    slots: Integers
    ordered: Floats


def sieve_of(base: Base, size: int) -> Sieve:
    """Lay out the first ``size`` slots of a base; any later change of it makes this useless."""
    cases = base.cases[:, :size]
    grouping = _grouping(base, cases)
    order, starts = _buckets(cases[grouping])
    rows = np.ascontiguousarray(cases[:, order].T)
    return Sieve(
        codes=_codes(base, cases[:, order]),
        rows=rows,
        outcomes=np.stack([base.labels[order], base.times[order]]),
        job_ids=base.job_ids[order],
        scales=np.stack(
            [base.weights, base.low, base.high, base.nominal, np.isin(np.arange(len(cases)), grouping)]
        ).astype(np.float64),
        starts=np.append(starts, size),
        keys=rows[starts],
    )


def _grouping(base: Base, cases: Floats) -> list[int]:
    """Which nominal features make buckets: the heaviest, as long as buckets hold a few cases on average."""
    chosen: list[int] = []
    for feature in np.argsort(-base.weights, kind="stable").tolist():
        if not base.nominal[feature] or base.weights[feature] == 0.0:
            continue
        _, starts = _buckets(cases[[*chosen, feature]])
        if len(starts) * CASES_A_BUCKET <= cases.shape[1]:
            chosen.append(feature)
    # fewest values first: then buckets that a query meets at the same level lie side by side
    return sorted(chosen, key=lambda feature: len(np.unique(cases[feature])))


def _buckets(columns: Floats) -> tuple[Integers, Integers]:
    """Order that brings equal columns together, the first of them most significant; where each begins."""
    count = columns.shape[1]
    if len(columns) == 0:
        return np.arange(count), np.zeros(1, np.int64)
    order = np.lexsort(columns[::-1])
    columns = columns[:, order]
    same = (columns[:, 1:] == columns[:, :-1]) | (np.isnan(columns[:, 1:]) & np.isnan(columns[:, :-1]))
    return order, np.flatnonzero(np.append(True, ~same.all(axis=0)))


def _codes(base: Base, cases: Floats) -> Bytes:
    codes = np.empty(cases.shape, np.uint8)
    for feature, column in enumerate(cases):
        spread = base.high[feature] - base.low[feature]
        if base.nominal[feature] or not spread > SMALLEST_RANGE:
            scaled = np.fmod(np.abs(column), NAMES)
        else:
            scaled = np.rint((column - base.low[feature]) * (1.0 / spread) * STEPS)
        codes[feature] = np.where(np.isnan(column), UNKNOWN, np.clip(scaled, 0, STEPS))
    return codes


def sieve_scratch_for(k: int, sieve: Sieve) -> SieveScratch:
    """Room for questions with k neighbours."""
    slots, features = sieve.rows.shape
    return SieveScratch(
        bounds=np.empty(slots, np.float32),
        levels=np.empty(len(sieve.keys)),
        near=np.empty(k, np.int64),
        near_bounds=np.empty(k, np.float32),
        query=np.empty(features),
        best=np.empty(k),
        slots=np.empty(k, np.int64),
        ordered=np.empty((2, k)),
    )


@compiled
def bucket_levels(scales: Floats, keys: Floats, query: Floats, levels: Floats) -> float:
    """Lower bound of the squared distance of each bucket's cases; returns the smallest."""
    levels[:] = 0.0
    for feature in range(len(query)):
        if scales[GROUPING, feature] != 0.0:
            for bucket in range(len(levels)):  # an unknown value is unequal to everything
                same = keys[bucket, feature] == query[feature]
                levels[bucket] += 0.0 if same else scales[WEIGHT, feature]
    return float(levels.min())


@compiled
def bound_block(
    codes: Bytes, scales: Floats, query: Floats, level: float, first: int, bounds: Singles
) -> None:
    """Lower bounds of the squared distances of the ``len(bounds)`` cases from slot ``first`` on.

    They belong to buckets of one level, in which the features of the buckets are counted already.
    """
    bounds[:] = np.float32(min(level, HEAVIEST))
    count = len(bounds)
    nothing = np.float32(0.0)
    for feature in range(len(query)):
        if scales[WEIGHT, feature] == 0.0 or scales[GROUPING, feature] != 0.0:
            continue
        weight = np.float32(min(scales[WEIGHT, feature], HEAVIEST))
        value, low = query[feature], scales[LOW, feature]
        column = codes[feature, first : first + count]
        spread = scales[HIGH, feature] - low
        if value != value:  # noqa: PLR0124 (NaN: unknown, distance 1 to every case)
            for case in range(count):
                bounds[case] += weight
        elif scales[NOMINAL, feature] != 0.0 or not spread > SMALLEST_RANGE:
            same = np.uint8(np.fmod(abs(value), NAMES))
            for case in range(count):
                bounds[case] += nothing if column[case] == same else weight
        else:
            byte = (value - low) * (1.0 / spread) * STEPS
            place = np.float32(min(max(byte, -FARTHEST), FARTHEST))
            step = np.float32(min(scales[WEIGHT, feature], HEAVIEST) / (STEPS * STEPS))
            for case in range(count):
                apart = abs(np.float32(column[case]) - place) - SLACK
                apart = apart if apart > nothing else nothing  # noqa: FURB136 (max() keeps the loop scalar)
                bounds[case] += weight if column[case] == UNKNOWN else step * apart * apart


@compiled
def _count_to(bounds: Singles, limit: np.float32) -> int:
    """How many bounds are at most ``limit``: without a branch, so many at a time."""
    count = np.int32(0)
    for case in range(len(bounds)):
        count += np.int32(bounds[case] <= limit)
    return int(count)


@compiled
def _smallest(bounds: Singles, first: int, near: Integers, near_bounds: Singles, found: int) -> int:
    """Keep the slots of the smallest bounds, in order; returns how many there are."""
    k = len(near)
    if found == k and _count_to(bounds, near_bounds[k - 1]) == 0:
        return found
    for case in range(len(bounds)):
        bound = bounds[case]
        if found == k and not bound < near_bounds[k - 1]:
            continue
        place = k - 1 if found == k else found
        found += found < k
        while place > 0 and near_bounds[place - 1] > bound:
            near_bounds[place] = near_bounds[place - 1]
            near[place] = near[place - 1]
            place -= 1
        near_bounds[place] = bound
        near[place] = first + case
    return found


@compiled
def squared_distance(scales: Floats, row: Floats, query: Floats) -> float:
    """Eq. 1 without its root for one case: the same sum in the same order as ``squared_distances``."""
    total = 0.0
    for feature in range(len(query)):
        weight = scales[WEIGHT, feature]
        if weight == 0.0:
            continue
        value = query[feature]
        known = row[feature]
        spread = scales[HIGH, feature] - scales[LOW, feature]
        if value != value or known != known:  # noqa: PLR0124 (NaN: unknown, distance 1)
            total += weight
        elif scales[NOMINAL, feature] != 0.0 or not spread > SMALLEST_RANGE:
            total += 0.0 if known == value else weight
        else:
            difference = (known - value) * (1.0 / spread)
            total += weight * difference * difference
    return total


@compiled
def next_run(levels: Floats, level: float, bucket: int) -> tuple[int, int]:
    """The first neighbouring buckets of a level, from ``bucket`` on: first, and one after the last."""
    count = len(levels)
    while bucket < count and levels[bucket] != level:
        bucket += 1
    end = bucket
    while end < count and levels[end] == level:
        end += 1
    return bucket, end


@compiled
def _look(sieve: Sieve, room: SieveScratch, level: float) -> int:
    """Bound all cases of a level; returns how many of the smallest bounds are kept."""
    count = 0
    bucket, end = next_run(room.levels, level, 0)
    while bucket < end:
        last = sieve.starts[end]
        for first in range(sieve.starts[bucket], last, BLOCK):
            block = room.bounds[first : min(first + BLOCK, last)]
            bound_block(sieve.codes, sieve.scales, room.query, level, first, block)
            for place in range(0, len(block), FEW):
                few = block[place : min(place + FEW, len(block))]
                count = _smallest(few, first + place, room.near, room.near_bounds, count)
        bucket, end = next_run(room.levels, level, end)
    return count


@compiled
def _measure(sieve: Sieve, room: SieveScratch, base: Base, scratch: Scratch, slot: int, found: int) -> int:
    """Measure one case; returns how many of the nearest are known then."""
    room.bounds[slot] = MEASURED
    distance = squared_distance(sieve.scales, sieve.rows[slot], room.query)
    return int(insert(base, distance, slot, scratch, found))


@compiled
def _sift_level(
    sieve: Sieve, room: SieveScratch, base: Base, scratch: Scratch, level: float, found: int
) -> int:
    """Put the cases of a level that belong there among the nearest; returns how many those are then."""
    best, k = scratch.best, len(scratch.best)
    for place in range(_look(sieve, room, level)):
        if found == k and room.near_bounds[place] > best[k - 1] * MARGIN:
            return found  # as are the bounds of all that were not kept
        found = _measure(sieve, room, base, scratch, room.near[place], found)
    if found < k:
        return found  # there were no more
    bucket, end = next_run(room.levels, level, 0)
    while bucket < end:
        last = sieve.starts[end]
        for first in range(sieve.starts[bucket], last, FEW):
            few = room.bounds[first : min(first + FEW, last)]
            if _count_to(few, np.float32(best[k - 1] * MARGIN)) == 0:
                continue
            for case in range(len(few)):
                if few[case] < MEASURED and few[case] <= best[k - 1] * MARGIN:
                    found = _measure(sieve, room, base, scratch, first + case, found)
        bucket, end = next_run(room.levels, level, end)
    return found


@compiled
def sift(sieve: Sieve, room: SieveScratch, base: Base, scratch: Scratch) -> int:
    """Find the cases nearest to ``room.query``, as ``nearest`` does; returns how many were found."""
    k = len(scratch.best)
    found = 0
    level = bucket_levels(sieve.scales, sieve.keys, room.query, room.levels)
    while found < k or level <= scratch.best[k - 1] * MARGIN:
        found = _sift_level(sieve, room, base, scratch, level, found)
        following = math.inf
        for bucket in range(len(room.levels)):
            if level < room.levels[bucket] < following:
                following = room.levels[bucket]
        if following == math.inf:
            break
        level = following
    return found


@compiled
def sift_rows(
    sieve: Sieve, room: SieveScratch, queries: Floats, omega: float, coverage: float, results: Floats
) -> None:
    """Estimate each row of ``queries`` into the same row of ``results`` (rows, 5).

    A number no distance can be computed from is taken for unknown.
    """
    scales, outcomes, query = sieve.scales, sieve.outcomes, room.query
    base = Base(
        sieve.rows.T,
        outcomes[0],
        outcomes[1],
        sieve.job_ids,
        scales[NOMINAL] != 0.0,
        scales[LOW],
        scales[HIGH],
        scales[WEIGHT],
    )
    scratch = Scratch(room.ordered[0], room.best, room.slots, room.ordered)
    for row in range(len(queries)):
        for feature in range(len(query)):
            value = queries[row, feature]
            query[feature] = value if abs(value) <= LARGEST_VALUE else math.nan
        found = sift(sieve, room, base, scratch)
        weigh(base, scratch, found, omega, coverage, results[row])
