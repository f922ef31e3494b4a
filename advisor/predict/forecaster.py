"""One submission's wait and run time as distributions, in tens of microseconds: the submit path's side.

What a replay computes a column at a time (``advisor.replay.forecasts``) for one job: all trees of a target in
one pass, quantiles, the interval at the level the calibration has come to, run times capped by the request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from advisor.model.estimate import Estimate
from advisor.predict._compile import compiled
from advisor.predict.distribution import BINS, EDGES, LEVELS, DistributionForest, cut
from advisor.predict.fitness import Target
from advisor.predict.placement_features import FEATURES
from advisor.predict.rolling import COVERAGE, TARGETS, RollingForests

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]

Bounds = Mapping[Target, tuple[float, float]]
"""Per target, the probabilities at which its interval is cut (:attr:`AdaptiveLevel.bounds`)."""

_NUMBERS: Final = 4  # mean, variance, lower, upper


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedTrees:
    """A forest laid out for one row at a time: a node is 16 bytes, so that it costs one cache line.

    Attributes
    ----------
    roots : int32, shape (trees,)
        First node of each tree.
    nodes : int32, shape (nodes, 4)
        Feature (below 0: a leaf), the threshold's bits, left and right child; of a leaf its row twice.
    thresholds : float32, shape (nodes, 4)
        The same memory; column 1 is the threshold, rounded down to single precision: as the features are
        single too, they compare with it as with the exact one.
    leaf_mean, leaf_mass
        As in :class:`DistributionForest`.
    places : int32, shape (trees,)
        Room for where each tree's walk is.
    """

    roots: Integers
    nodes: Integers
    thresholds: NDArray[np.float32]
    leaf_mean: Floats
    leaf_mass: NDArray[np.float32]
    places: Integers

    @classmethod
    def of(cls, forest: DistributionForest) -> Self:
        """Lay a forest out."""
        single = forest.threshold.astype(np.float32)
        single = np.where(single > forest.threshold, np.nextafter(single, np.float32(-np.inf)), single)
        is_leaf = forest.feature < 0
        nodes = np.empty((len(forest.feature), 4), np.int32)
        nodes[:, 0] = forest.feature
        nodes[:, 1] = single.view(np.int32)
        nodes[:, 2:] = np.where(is_leaf[:, None], forest.leaf[:, None], forest.children)
        return cls(
            roots=forest.roots,
            nodes=nodes,
            thresholds=nodes.view(np.float32),
            leaf_mean=forest.leaf_mean,
            leaf_mass=forest.leaf_mass,
            places=np.empty(len(forest.roots), np.int32),
        )


class Forecaster:
    """Forecasts of single jobs. Not thread-safe: it fills its own arrays.

    Parameters
    ----------
    forests : RollingForests
        At least one of each target.
    """

    def __init__(self, forests: RollingForests) -> None:
        self._trees = {target: PackedTrees.of(forests.joined(target)) for target in TARGETS}
        self._mass, self._row = np.empty(BINS), np.empty(len(FEATURES), np.float32)
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
        self._row[:] = features  # scikit-learn compares in single precision
        longest = math.inf if requested_time is None or math.isnan(requested_time) else requested_time
        return {
            "wait": self._estimate(self._trees["wait"], math.inf, bounds["wait"]),
            "run": self._estimate(self._trees["run"], longest, bounds["run"]),
        }

    def _estimate(self, trees: PackedTrees, longest: float, bounds: tuple[float, float]) -> Estimate:
        mean = descend(
            self._row,
            trees.roots,
            trees.nodes,
            trees.thresholds,
            trees.leaf_mean,
            trees.leaf_mass,
            trees.places,
            self._mass,
        )
        self._levels[:] = bounds
        _summarise(mean, self._mass, longest, self._levels, LEVELS, EDGES, self._quantiles, self._numbers)
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


def warm_kernels() -> None:
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
    trees, row = PackedTrees.of(one_leaf), np.zeros(len(FEATURES), np.float32)
    mass, quantiles, numbers = np.empty(BINS), np.empty(len(LEVELS)), np.empty(_NUMBERS)
    mean = descend(
        row,
        trees.roots,
        trees.nodes,
        trees.thresholds,
        trees.leaf_mean,
        trees.leaf_mass,
        trees.places,
        mass,
    )
    _summarise(mean, mass, math.inf, np.array([0.05, 0.95]), LEVELS, EDGES, quantiles, numbers)


@compiled
def descend(
    row: NDArray[np.float32],
    roots: Integers,
    nodes: Integers,
    thresholds: NDArray[np.float32],
    leaf_mean: Floats,
    leaf_mass: NDArray[np.float32],
    places: Integers,
    mass: Floats,
) -> float:
    """Average the leaves that a row falls into: ``mass`` is filled, the mean returned.

    All trees go down one level at a time: their loads from memory do not wait for each other.
    """
    trees = len(roots)
    places[:] = roots
    moving = True
    while moving:
        moving = False
        for tree in range(trees):
            node = places[tree]
            feature = nodes[node, 0]
            if feature >= 0:
                moving = True
                places[tree] = nodes[node, 2] if row[feature] <= thresholds[node, 1] else nodes[node, 3]
    mean = 0.0
    mass[:] = 0.0
    for tree in range(trees):
        leaf = nodes[places[tree], 2]
        mean += leaf_mean[leaf] / trees
        for bin_ in range(len(mass)):
            mass[bin_] += leaf_mass[leaf, bin_] / trees
    return mean


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
