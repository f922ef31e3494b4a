"""One submission's wait and run time as distributions, in tens of microseconds: the submit path's side.

What a replay computes a column at a time (``advisor.replay.forecasts``) for one job: all trees of a target in
one pass, quantiles, the interval at the level the calibration has come to, run times capped by the request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.model.estimate import Estimate
from advisor.predict._compile import compiled
from advisor.predict.distribution import BINS, EDGES, LEVELS, DistributionForest, cut, walk
from advisor.predict.fitness import Target
from advisor.predict.placement_features import FEATURES
from advisor.predict.rolling import COVERAGE, TARGETS, RollingForests

Floats = NDArray[np.float64]

Bounds = Mapping[Target, tuple[float, float]]
"""Per target, the probabilities at which its interval is cut (:attr:`AdaptiveLevel.bounds`)."""

_NUMBERS: Final = 4  # mean, variance, lower, upper


class Forecaster:
    """Forecasts of single jobs. Not thread-safe: it fills its own arrays.

    Parameters
    ----------
    forests : RollingForests
        At least one of each target.
    """

    def __init__(self, forests: RollingForests) -> None:
        self._forests = {target: forests.joined(target) for target in TARGETS}
        self._mean, self._mass = np.empty(1), np.empty((1, BINS))
        self._quantiles, self._numbers = np.empty(len(LEVELS)), np.empty(_NUMBERS)
        self._levels = np.empty(2)

    def forecast(
        self, features: Floats, requested_time: float | None, bounds: Bounds
    ) -> dict[Target, Estimate]:
        """Forecast one job.

        Parameters
        ----------
        features : float64, shape (features,)
            As `PlacementFeatures` gives them.
        requested_time : float or None
            Seconds; no job runs longer.
        bounds : mapping
            Where the intervals are cut.
        """
        row = features.reshape(1, -1)
        longest = math.inf if requested_time is None or math.isnan(requested_time) else requested_time
        return {
            "wait": self._estimate(self._forests["wait"], row, math.inf, bounds["wait"]),
            "run": self._estimate(self._forests["run"], row, longest, bounds["run"]),
        }

    def warm(self) -> None:
        """Compile everything, or load it from the cache."""
        self.forecast(np.zeros(len(FEATURES)), None, dict.fromkeys(TARGETS, (0.05, 0.95)))

    def _estimate(
        self, forest: DistributionForest, row: Floats, longest: float, bounds: tuple[float, float]
    ) -> Estimate:
        walk(
            row,
            forest.roots,
            forest.feature,
            forest.threshold,
            forest.children,
            forest.leaf,
            forest.leaf_mean,
            forest.leaf_mass,
            self._mean,
            self._mass,
        )
        self._levels[:] = bounds
        _summarise(
            self._mean[0], self._mass[0], longest, self._levels, LEVELS, EDGES, self._quantiles, self._numbers
        )
        mean, variance, lower, upper = self._numbers.tolist()
        return Estimate(
            seconds=mean,
            variance=variance,
            lower=lower,
            upper=upper,
            coverage=COVERAGE,
            neighbours=0,
            quantiles=tuple(self._quantiles.tolist()),
        )


@compiled
def _summarise(
    mean: float,
    mass: Floats,
    longest: float,
    bounds: Floats,
    levels: Floats,
    edges: Floats,
    quantiles: Floats,
    numbers: Floats,
) -> None:
    """Fill ``quantiles``, and ``numbers``: mean, variance, two bounds. Nothing above ``longest``."""
    cut(mass, levels, edges, quantiles)
    cut(mass, bounds, edges, numbers[2:])
    numbers[0] = min(mean, longest)
    numbers[2] = min(numbers[2], longest)
    numbers[3] = min(numbers[3], longest)
    total = 0.0
    for index in range(len(quantiles)):
        quantiles[index] = min(quantiles[index], longest)
        total += (quantiles[index] - numbers[0]) ** 2
    numbers[1] = total / len(quantiles)
