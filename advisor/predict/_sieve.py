"""A coarse look at a settled knowledge base first: most cases are ruled out by one byte a feature.

In `advisor serve` a knowledge base does not change between two loads, and other programs empty the
processor's caches between two questions: then reading a megabyte of cases costs more than the arithmetic.
Here each feature of a case is also kept as one byte, from which a *lower bound* of its distance follows; only
cases whose bound is not above the k-th best distance are measured, with the definition's own arithmetic. The
neighbours are the same to the last bit.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.predict._compile import compiled
from advisor.predict._search import SMALLEST_RANGE, Base, Floats, Integers, Scratch, insert, weigh

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
MEASURED: Final = math.inf
"""In place of the bound of a case that has been measured."""
MARGIN: Final = 1.0001
"""On the limit, for single precision in the sum of the bounds."""


class Sieve(NamedTuple):
    """The first ``len(rows)`` slots of a base, once more."""

    codes: Bytes  # (features, slots)
    rows: Floats  # (slots, features): one case is two cache lines


class SieveScratch(NamedTuple):
    """Room to work in."""

    bounds: Singles  # (slots,)
    near: Integers  # (k,) the slots of the smallest bounds
    near_bounds: Singles  # (k,)


def sieve_of(base: Base, size: int) -> Sieve:
    """Lay out the first ``size`` slots of a base; any later change of it makes this useless."""
    cases = base.cases[:, :size]
    codes = np.empty(cases.shape, np.uint8)
    for feature, column in enumerate(cases):
        spread = base.high[feature] - base.low[feature]
        if base.nominal[feature] or not spread > SMALLEST_RANGE:
            scaled = np.fmod(np.abs(column), NAMES)
        else:
            scaled = np.rint((column - base.low[feature]) * (1.0 / spread) * STEPS)
        codes[feature] = np.where(np.isnan(column), UNKNOWN, np.clip(scaled, 0, STEPS))
    return Sieve(codes, np.ascontiguousarray(cases.T))


def sieve_scratch_for(k: int, size: int) -> SieveScratch:
    """Room for questions with k neighbours."""
    return SieveScratch(np.empty(size, np.float32), np.empty(k, np.int64), np.empty(k, np.float32))


@compiled
def bound_block(base: Base, sieve: Sieve, first: int, query: Floats, bounds: Singles) -> None:
    """Lower bounds of the squared distances of ``len(bounds)`` cases from slot ``first`` on."""
    bounds[:] = np.float32(0.0)
    count = len(bounds)
    nothing = np.float32(0.0)
    for feature in range(len(query)):
        if base.weights[feature] == 0.0:
            continue
        weight = np.float32(min(base.weights[feature], HEAVIEST))
        value = query[feature]
        column = sieve.codes[feature, first : first + count]
        spread = base.high[feature] - base.low[feature]
        if value != value:  # noqa: PLR0124 (NaN: unknown, distance 1 to every case)
            for case in range(count):
                bounds[case] += weight
        elif base.nominal[feature] or not spread > SMALLEST_RANGE:
            same = np.uint8(np.fmod(abs(value), NAMES))
            for case in range(count):
                bounds[case] += nothing if column[case] == same else weight
        else:
            byte = (value - base.low[feature]) * (1.0 / spread) * STEPS
            place = np.float32(min(max(byte, -FARTHEST), FARTHEST))
            step = np.float32(min(base.weights[feature], HEAVIEST) / (STEPS * STEPS))
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
def squared_distance(base: Base, row: Floats, query: Floats) -> float:
    """Eq. 1 without its root for one case: the same sum in the same order as ``squared_distances``."""
    total = 0.0
    for feature in range(len(query)):
        weight = base.weights[feature]
        if weight == 0.0:
            continue
        value = query[feature]
        known = row[feature]
        spread = base.high[feature] - base.low[feature]
        if value != value or known != known:  # noqa: PLR0124 (NaN: unknown, distance 1)
            total += weight
        elif base.nominal[feature] or not spread > SMALLEST_RANGE:
            total += 0.0 if known == value else weight
        else:
            difference = (known - value) * (1.0 / spread)
            total += weight * difference * difference
    return total


@compiled
def sift(base: Base, sieve: Sieve, query: Floats, scratch: Scratch, room: SieveScratch) -> int:
    """Find the nearest cases, as ``nearest`` does; returns how many were found."""
    size = len(sieve.rows)
    bounds, near = room.bounds, room.near
    k = len(near)
    count = 0
    for first in range(0, size, BLOCK):
        block = bounds[first : min(first + BLOCK, size)]
        bound_block(base, sieve, first, query, block)
        for place in range(0, len(block), FEW):
            few = block[place : min(place + FEW, len(block))]
            count = _smallest(few, first + place, near, room.near_bounds, count)
    found = 0
    for place in range(count):
        slot = near[place]
        bounds[slot] = MEASURED
        found = insert(base, squared_distance(base, sieve.rows[slot], query), slot, scratch, found)
    if found < k:
        return found
    for first in range(0, size, FEW):
        few = bounds[first : min(first + FEW, size)]
        if _count_to(few, np.float32(scratch.best[k - 1] * MARGIN)) == 0:
            continue
        for case in range(len(few)):
            if few[case] < MEASURED and few[case] <= scratch.best[k - 1] * MARGIN:
                slot = first + case
                insert(base, squared_distance(base, sieve.rows[slot], query), slot, scratch, found)
    return found


@compiled
def sift_rows(
    base: Base,
    sieve: Sieve,
    queries: Floats,
    omega: float,
    coverage: float,
    scratch: Scratch,
    room: SieveScratch,
    results: Floats,
) -> None:
    """Estimate each row of ``queries`` into the same row of ``results`` (rows, 5)."""
    for row in range(len(queries)):
        found = sift(base, sieve, queries[row], scratch, room)
        weigh(base, scratch, found, omega, coverage, results[row])
