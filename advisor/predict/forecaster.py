"""One submission's wait and run time as distributions, in tens of microseconds: the submit path's side.

What a replay computes a column at a time (``advisor.replay.forecasts``) for one job: all trees of a target in
one pass, quantiles, the interval at the level the calibration has come to, run times capped by the request.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.model.estimate import Estimate
from advisor.predict._compile import compiled
from advisor.predict.distribution import BINS, EDGES, LEVELS, DistributionForest, cut
from advisor.predict.fitness import Target
from advisor.predict.packed_trees import PackedTrees, average, descend
from advisor.predict.placement_features import FEATURES
from advisor.predict.rolling import COVERAGE, TARGETS, RollingForests

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]

Bounds = Mapping[Target, tuple[float, float]]
"""Per target, the probabilities at which its interval is cut (:attr:`AdaptiveLevel.bounds`)."""

_NUMBERS: Final = 4  # mean, variance, lower, upper
_TOLD: Final = _NUMBERS + len(LEVELS)
_ASKED_NUMBERS: Final = struct.Struct("=5d")
_TOLD_NUMBERS: Final = struct.Struct(f"={2 * _TOLD}d")


class Forecaster:
    """Forecasts of single jobs. Not thread-safe: it fills its own arrays.

    Parameters
    ----------
    forests : RollingForests
        At least one of each target.
    """

    def __init__(self, forests: RollingForests) -> None:
        self.use(PackedTrees.of(forests.joined("wait"), forests.joined("run")))

    @classmethod
    def warm(cls) -> None:
        """Compile everything that a forecast needs, or load it from the cache."""
        one_leaf = DistributionForest(
            roots=np.zeros(1, np.int32),
            feature=np.full(1, -1, np.int32),
            threshold=np.zeros(1),
            children=np.zeros((1, 2), np.int32),
            leaf=np.zeros(1, np.int32),
            leaf_mean=np.zeros(1),
            leaf_mass=np.full((1, BINS), 1.0 / BINS, np.float32),
        )
        forecaster = cls.__new__(cls)
        forecaster.use(PackedTrees.of(one_leaf, one_leaf))
        forecaster.forecast(np.zeros(len(FEATURES)), None, dict.fromkeys(TARGETS, (0.05, 0.95)))

    def use(self, trees: PackedTrees) -> None:
        """Forecast by those trees; numbers go in and out by arrays that are made once."""
        self._trees = trees
        self._single = np.empty(len(FEATURES), np.float32)
        self._mass = np.empty(BINS)
        self._asked, self._told = np.empty(5), np.empty((2, _TOLD))
        self._asked_bytes, self._told_bytes = self._asked.data, self._told.data

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
        longest = math.inf if requested_time is None or math.isnan(requested_time) else requested_time
        _ASKED_NUMBERS.pack_into(self._asked_bytes, 0, longest, *bounds["wait"], *bounds["run"])
        trees = self._trees
        forecast_row(
            features,
            self._single,
            trees.roots,
            trees.of_waits,
            trees.nodes,
            trees.thresholds,
            trees.leaves,
            trees.masses,
            trees.means,
            trees.places,
            self._mass,
            self._asked,
            LEVELS,
            EDGES,
            self._told,
        )
        told = _TOLD_NUMBERS.unpack_from(self._told_bytes)
        return {"wait": _estimate(told[:_TOLD]), "run": _estimate(told[_TOLD:])}


def _estimate(told: tuple[float, ...]) -> Estimate:
    mean, variance, lower, upper, *_ = told
    return Estimate(
        seconds=mean,
        variance=variance,
        lower=lower,
        upper=upper,
        coverage=COVERAGE,
        neighbours=0,
        quantiles=told[_NUMBERS:],
    )


@compiled
def forecast_row(  # noqa: PLR0917 (compiled functions take positions only)
    features: Floats,
    single: NDArray[np.float32],
    roots: Integers,
    of_waits: int,
    nodes: Integers,
    thresholds: NDArray[np.float32],
    leaves: Integers,
    masses: NDArray[np.float32],
    means: Floats,
    places: Integers,
    mass: Floats,
    asked: Floats,
    levels: Floats,
    edges: Floats,
    told: Floats,
) -> None:
    """Forecast one job's wait and run time in one call: what it costs inside sbatch is mostly the calling.

    Parameters
    ----------
    features : float64, shape (features,)
        Of the job.
    single : float32, shape (features,)
        Room for them in single precision, in which scikit-learn compares.
    roots, of_waits, nodes, thresholds, leaves, masses, means, places
        As in `PackedTrees`.
    mass : float64, shape (bins,)
        Room for the probability of each bin.
    asked : float64, shape (5,)
        Longest run time; the lower and upper level of the wait's interval, and of the run time's.
    levels, edges
        Of the quantiles, of the bins.
    told : float64, shape (2, 4 + levels)
        Filled, for wait and run time: mean, variance, lower and upper bound, quantiles.
    """
    for feature in range(len(features)):
        single[feature] = features[feature]
    descend(single, roots, nodes, thresholds, places)
    mean = average(places[:of_waits], leaves, masses, means, mass)
    _summarise(mean, mass, math.inf, asked[1:3], levels, edges, told[0])
    mean = average(places[of_waits:], leaves, masses, means, mass)
    _summarise(mean, mass, asked[0], asked[3:5], levels, edges, told[1])


@compiled
def _summarise(
    mean: float,
    mass: Floats,
    longest: float,
    bounds: Floats,
    levels: Floats,
    edges: Floats,
    told: Floats,
) -> None:
    """Fill ``told``: mean, variance, two bounds, quantiles. Nothing above ``longest``."""
    numbers, quantiles = told[:4], told[4:]
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
