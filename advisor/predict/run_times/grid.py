"""The grid of run times on which forecasts are made, and the functions that read a distribution on it.

A distribution is an array ``probabilities``, shape (BINS,): the probability that the run time is in each bin.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled_in_place

# adjacent edges differ by a factor of 1.28, which is finer than any forecast; queues rarely allow 60 days
BINS: Final = 64
MAX_SECONDS: Final = 60 * 86400.0
GRID: Final[Floats] = np.geomspace(1.0, MAX_SECONDS, BINS)
"""Upper edges of the bins, seconds, shape (BINS,); the last bin contains longer times as well."""

STEP: Final = math.log(MAX_SECONDS) / (BINS - 1)
"""The natural logarithm of the ratio of two adjacent edges."""
_ROUNDING: Final = 1e-9  # in steps: a time that equals an edge stays in the bin below it


@compiled_in_place
def bin_of(seconds: float) -> int:
    """Index of the bin that contains a time: the first whose upper edge is not below it, else the last."""
    if seconds >= MAX_SECONDS:  # a limit may be infinite, and has no whole logarithm
        return BINS - 1
    place = math.ceil(math.log(max(seconds, 1.0)) / STEP - _ROUNDING)
    return int(min(BINS - 1, max(0, place)))


@compiled_in_place
def survival(probabilities: Floats, seconds: float) -> float:
    """P(run time > seconds); within a bin the logarithm of the run time is uniform."""
    if seconds >= MAX_SECONDS:
        return 0.0
    within = bin_of(seconds)
    above = 0.0
    for k in range(within + 1, BINS):
        above += probabilities[k]
    passed = math.log(max(seconds, 1.0)) / STEP - (within - 1)
    return float(above + probabilities[within] * min(1.0, max(0.0, 1.0 - passed)))


@compiled_in_place
def mean(probabilities: Floats, limit: float) -> float:
    """Expected run time, seconds, where no job runs longer than ``limit`` (seconds; infinite for none)."""
    total = 0.0
    for k in range(BINS):
        total += probabilities[k] * min(math.exp((k - 0.5) * STEP), limit)
    return total


@compiled_in_place
def quantile(probabilities: Floats, level: float) -> float:
    """The run time, seconds, that is exceeded with probability ``1 - level``.

    A level that is drawn uniformly from [0, 1) makes the result a random draw of the run time.
    """
    below = 0.0
    last = 0
    for k in range(BINS):
        if probabilities[k] > 0.0:
            last = k
            if below + probabilities[k] > level:
                return math.exp((k - 1 + max(0.0, level - below) / probabilities[k]) * STEP)
            below += probabilities[k]
    return math.exp(last * STEP)
