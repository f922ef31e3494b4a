"""Search of a settled knowledge base: most cases are excluded unread, most others by one byte per feature.

In `advisor serve` a knowledge base does not change between two loads, and the processor's caches are cold for
each question: reading a megabyte of cases would cost more than the arithmetic. Cases that agree in their
nominal features (user, group, queue) are therefore stored together, in a *bucket*. The features in which a
query differs from a bucket give a lower bound of its distance from all cases there, the bucket's *level*.
Buckets are visited by level, until it exceeds the k-th best distance. Within them, one byte per further
feature gives a lower bound for each case; only cases whose bound is not above the k-th best distance are
measured, with the arithmetic of ``_search``. The neighbours are the same to the last bit.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.predict.knn._search import SMALLEST_RANGE, Base, Scratch, insert, weigh

Bytes = NDArray[np.uint8]
Singles = NDArray[np.float32]

BLOCK: Final = 2048
"""Number of cases whose bounds are summed together."""
GROUP: Final = 128
"""Number of bounds compared at once: most groups contain none that matters."""
STEPS: Final = 254.0
"""A number's range in bytes: 0 to 254."""
UNKNOWN: Final = 255
"""The byte of an unknown value."""
NAME_CODES: Final = 251.0
"""Nominal codes modulo this: equal values have equal bytes, unequal ones nearly always unequal bytes."""
SLACK: Final = np.float32(0.51)
"""Half a byte of rounding, plus more than single precision can lose."""
MAX_POSITION: Final = 1e6
"""Limit in bytes for query values beyond the range; the result is still a bound."""
MAX_WEIGHT: Final = 1e24
"""Limit of a feature's weight in bounds, so that none is infinite."""
MIN_CASES_PER_BUCKET: Final = 8
"""Mean number of cases per bucket, at least: visiting the buckets must cost less than it saves."""
MEASURED: Final = math.inf
"""In place of the bound of a case that was measured."""
LARGEST_VALUE: Final = 1e150
"""A larger number counts as unknown: its square would not be finite."""
WEIGHT, LOW, HIGH, NOMINAL, GROUPING = range(5)
"""Rows of ``Sieve.scales``."""
MARGIN: Final = 1.0001
"""Factor on the limit, because bounds are summed in single precision."""


class Sieve(NamedTuple):
    """A knowledge base sorted by bucket."""

    codes: Bytes  # (features, slots)
    rows: Floats  # (slots, features): one case is two cache lines
    outcomes: Floats  # (2, slots): labels, times
    job_ids: Ints  # (slots,)
    scales: Floats  # (5, features): weight, lowest, highest, whether nominal, whether it makes buckets
    starts: Ints  # (buckets + 1,) first slot of each bucket, then the number of slots
    keys: Floats  # (buckets, features) a case of each bucket


class SieveScratch(NamedTuple):
    """Working arrays; afterwards ``best`` and ``slots`` hold the k nearest."""

    bounds: Singles  # (slots,)
    levels: Floats  # (buckets,)
    near: Ints  # (k,) the slots of the smallest bounds
    near_bounds: Singles  # (k,)
    query: Floats  # (features,)
    best: Floats  # as of _search.Scratch
    slots: Ints
    ordered: Floats


def sieve_of(base: Base, size: int) -> Sieve:
    """Lay out the first ``size`` slots of a base; it is invalid after any change of the base."""
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
    """The nominal features that make buckets: the heaviest, as long as buckets hold enough cases."""
    chosen: list[int] = []
    for feature in np.argsort(-base.weights, kind="stable").tolist():
        if not base.nominal[feature] or base.weights[feature] == 0.0:
            continue
        _, starts = _buckets(cases[[*chosen, feature]])
        if len(starts) * MIN_CASES_PER_BUCKET <= cases.shape[1]:
            chosen.append(feature)
    # fewest values first: then buckets that a query meets at the same level lie side by side
    return sorted(chosen, key=lambda feature: len(np.unique(cases[feature])))


def _buckets(columns: Floats) -> tuple[Ints, Ints]:
    """Order of cases that brings equal columns together; and the place in it at which each bucket begins."""
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
            scaled = np.fmod(np.abs(column), NAME_CODES)
        else:
            scaled = np.rint((column - base.low[feature]) * (1.0 / spread) * STEPS)
        codes[feature] = np.where(np.isnan(column), UNKNOWN, np.clip(scaled, 0, STEPS))
    return codes


def sieve_scratch_for(k: int, sieve: Sieve) -> SieveScratch:
    """Allocate the working arrays for k neighbours."""
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

    All belong to buckets of one ``level``, which is the share of the features that make buckets.
    """
    bounds[:] = np.float32(min(level, MAX_WEIGHT))
    count = len(bounds)
    nothing = np.float32(0.0)
    for feature in range(len(query)):
        if scales[WEIGHT, feature] == 0.0 or scales[GROUPING, feature] != 0.0:
            continue
        weight = np.float32(min(scales[WEIGHT, feature], MAX_WEIGHT))
        value, low = query[feature], scales[LOW, feature]
        column = codes[feature, first : first + count]
        spread = scales[HIGH, feature] - low
        if value != value:  # noqa: PLR0124 (NaN: unknown, distance 1 to every case)
            for case in range(count):
                bounds[case] += weight
        elif scales[NOMINAL, feature] != 0.0 or not spread > SMALLEST_RANGE:
            same = np.uint8(np.fmod(abs(value), NAME_CODES))
            for case in range(count):
                bounds[case] += nothing if column[case] == same else weight
        else:
            byte = (value - low) * (1.0 / spread) * STEPS
            position = np.float32(min(max(byte, -MAX_POSITION), MAX_POSITION))
            byte_weight = np.float32(min(scales[WEIGHT, feature], MAX_WEIGHT) / (STEPS * STEPS))
            for case in range(count):
                gap = abs(np.float32(column[case]) - position) - SLACK
                gap = gap if gap > nothing else nothing  # noqa: FURB136 (max() keeps the loop scalar)
                bounds[case] += weight if column[case] == UNKNOWN else byte_weight * gap * gap


@compiled
def _count_to(bounds: Singles, limit: np.float32) -> int:
    """How many bounds are at most ``limit``; without branches, so it is vectorised."""
    count = np.int32(0)
    for case in range(len(bounds)):
        count += np.int32(bounds[case] <= limit)
    return int(count)


@compiled
def _smallest(bounds: Singles, first: int, near: Ints, near_bounds: Singles, found: int) -> int:
    """Insert the slots of the smallest bounds into the sorted list ``near``; returns its length."""
    k = len(near)
    if found == k and _count_to(bounds, near_bounds[k - 1]) == 0:
        return found
    for case in range(len(bounds)):
        bound = bounds[case]
        if found == k and not bound < near_bounds[k - 1]:
            continue
        rank = k - 1 if found == k else found
        found += found < k
        while rank > 0 and near_bounds[rank - 1] > bound:
            near_bounds[rank] = near_bounds[rank - 1]
            near[rank] = near[rank - 1]
            rank -= 1
        near_bounds[rank] = bound
        near[rank] = first + case
    return found


@compiled
def squared_distance(scales: Floats, row: Floats, query: Floats) -> float:
    """Square of Eq. 1 for one case: the same sum in the same order as in ``squared_distances``."""
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
    """The next run of neighbouring buckets of a level: first bucket, and one after the last."""
    count = len(levels)
    while bucket < count and levels[bucket] != level:
        bucket += 1
    end = bucket
    while end < count and levels[end] == level:
        end += 1
    return bucket, end


@compiled
def _bound_level(sieve: Sieve, work: SieveScratch, level: float) -> int:
    """Compute the bounds of all cases of a level; returns how many of the smallest are in ``near``."""
    count = 0
    bucket, end = next_run(work.levels, level, 0)
    while bucket < end:
        stop = sieve.starts[end]
        for first in range(sieve.starts[bucket], stop, BLOCK):
            block = work.bounds[first : min(first + BLOCK, stop)]
            bound_block(sieve.codes, sieve.scales, work.query, level, first, block)
            for offset in range(0, len(block), GROUP):
                group = block[offset : min(offset + GROUP, len(block))]
                count = _smallest(group, first + offset, work.near, work.near_bounds, count)
        bucket, end = next_run(work.levels, level, end)
    return count


@compiled
def _measure(sieve: Sieve, work: SieveScratch, base: Base, scratch: Scratch, slot: int, found: int) -> int:
    """Measure one case; returns how many of the nearest are known afterwards."""
    work.bounds[slot] = MEASURED
    distance = squared_distance(sieve.scales, sieve.rows[slot], work.query)
    return int(insert(base, distance, slot, scratch, found))


@compiled
def _sift_level(
    sieve: Sieve, work: SieveScratch, base: Base, scratch: Scratch, level: float, found: int
) -> int:
    """Insert the cases of a level into the nearest; returns how many of the nearest are known afterwards."""
    best, k = scratch.best, len(scratch.best)
    for rank in range(_bound_level(sieve, work, level)):
        if found == k and work.near_bounds[rank] > best[k - 1] * MARGIN:
            return found  # the bounds that were not kept are larger still
        found = _measure(sieve, work, base, scratch, work.near[rank], found)
    if found < k:
        return found  # the level has no more cases
    bucket, end = next_run(work.levels, level, 0)
    while bucket < end:
        stop = sieve.starts[end]
        for first in range(sieve.starts[bucket], stop, GROUP):
            group = work.bounds[first : min(first + GROUP, stop)]
            if _count_to(group, np.float32(best[k - 1] * MARGIN)) == 0:
                continue
            for case in range(len(group)):
                if group[case] < MEASURED and group[case] <= best[k - 1] * MARGIN:
                    found = _measure(sieve, work, base, scratch, first + case, found)
        bucket, end = next_run(work.levels, level, end)
    return found


@compiled
def sift(sieve: Sieve, work: SieveScratch, base: Base, scratch: Scratch) -> int:
    """Find the cases nearest to ``work.query``, as ``nearest`` does; returns how many were found."""
    k = len(scratch.best)
    found = 0
    level = bucket_levels(sieve.scales, sieve.keys, work.query, work.levels)
    while found < k or level <= scratch.best[k - 1] * MARGIN:
        found = _sift_level(sieve, work, base, scratch, level, found)
        following = math.inf
        for bucket in range(len(work.levels)):
            if level < work.levels[bucket] < following:
                following = work.levels[bucket]
        if following == math.inf:
            break
        level = following
    return found


@compiled
def sift_rows(
    sieve: Sieve, work: SieveScratch, queries: Floats, omega: float, coverage: float, results: Floats
) -> None:
    """As ``estimate_rows`` of ``_search``, which names the columns of ``results``.

    Values too large for a finite distance count as unknown.
    """
    scales, query = sieve.scales, work.query
    base = Base(
        sieve.rows.T,
        sieve.outcomes[0],
        sieve.outcomes[1],
        sieve.job_ids,
        scales[NOMINAL] != 0.0,
        scales[LOW],
        scales[HIGH],
        scales[WEIGHT],
    )
    scratch = Scratch(work.ordered[0], work.best, work.slots, work.ordered)
    for row in range(len(queries)):
        for feature in range(len(query)):
            value = queries[row, feature]
            query[feature] = value if abs(value) <= LARGEST_VALUE else math.nan
        found = sift(sieve, work, base, scratch)
        weigh(base, scratch, found, omega, coverage, results[row])
