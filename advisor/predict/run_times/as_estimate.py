"""A distribution of the run time as an :class:`~advisor.model.estimate.Estimate`."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from advisor.compiled import compiled
from advisor.model.estimate import NO_ESTIMATE, Estimate
from advisor.predict.run_times.grid import GRID, Floats, quantile

_LEVELS: Final[Floats] = np.concatenate(((np.arange(20) + 0.5) / 20, [0.05, 0.95]))
"""Twenty equally likely values, and the bounds of nine tenths."""


def estimate_of(probabilities: Floats, limit: float) -> Estimate:
    """Mean, deviation, interval and quantiles.

    Args:
        probabilities: By bin of :data:`~advisor.predict.run_times.grid.GRID`, shape ``(bins,)``.
        limit: No job runs longer, seconds.
    """
    found = np.empty(2 + len(_LEVELS))
    _summarise(probabilities, GRID, limit, _LEVELS, found)
    mean, variance, *values, lower, upper = found.tolist()
    if not math.isfinite(mean):
        return NO_ESTIMATE
    return Estimate(seconds=mean, variance=variance, lower=lower, upper=upper, quantiles=tuple(values))


@compiled
def _summarise(probabilities: Floats, edges: Floats, limit: float, levels: Floats, found: Floats) -> None:
    mean, square = 0.0, 0.0
    for k in range(probabilities.shape[0]):
        low = edges[k - 1] if k else edges[0] * edges[0] / edges[1]
        run = min(math.sqrt(low * edges[k]), limit)
        mean += probabilities[k] * run
        square += probabilities[k] * run * run
    found[0], found[1] = mean, max(0.0, square - mean * mean)
    for i in range(levels.shape[0]):
        found[2 + i] = min(quantile(probabilities, levels[i]), limit)
