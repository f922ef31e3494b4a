"""Forecast of one submission's wait and run time by the forests, in tens of microseconds.

All trees of a target in one pass, and quantiles (of run times, none above the request).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.model.estimate import Estimate
from advisor.predict.forecast.distribution import BINS, EDGES, LEVELS, DistributionForest, fill_quantiles
from advisor.predict.forecast.rolling import RollingForests
from advisor.predict.knn.fitness import Target

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]

_MEAN, _VARIANCE = range(2)
_QUANTILES: Final = 2  # first of them, in a row of what is forecast


class Trees(NamedTuple):
    """All trees of the waits, then of the run times, with 16 bytes per node so that few cache lines are read.

    Attributes:
        roots: int32, shape (trees,): First node of each tree; below 0: the tree is one leaf, the complement
            (``~``) of its row.
        nodes: int32, shape (nodes, 4): Feature, the threshold's bits, left and right child; a child below 0
            is a leaf, as in `roots`.
        thresholds: float32, shape (nodes, 4): The same memory; column 1 is the threshold, rounded down, which
            gives the same comparison for features of single precision.
        leaf_means: float64, shape (leaves,): Mean training time, seconds.
        leaf_begins: int64, shape (leaves + 1,): Begin of each leaf's histogram in the next two, which have
            only bins with jobs.
        bins: uint8, shape (n,): Bin numbers of `EDGES`.
        masses: float32, shape (n,): Probability of each.
    """

    roots: Integers
    nodes: Integers
    thresholds: NDArray[np.float32]
    leaf_means: Floats
    leaf_begins: NDArray[np.int64]
    bins: NDArray[np.uint8]
    masses: NDArray[np.float32]

    @classmethod
    def of(cls, waits: DistributionForest, runs: DistributionForest) -> Self:
        """Lay out two forests."""
        both = DistributionForest.joined([waits, runs])
        single = both.threshold.astype(np.float32)
        below = np.nextafter(single, np.float32(-np.inf))
        thresholds = np.where(single > both.threshold, below, single)
        children = np.where(both.feature[both.children] < 0, ~both.leaf[both.children], both.children)
        nodes = np.column_stack([both.feature, thresholds.view(np.int32), children]).astype(np.int32)
        _, bins = np.nonzero(both.leaf_mass)
        return cls(
            roots=np.where(both.feature[both.roots] < 0, ~both.leaf[both.roots], both.roots),
            nodes=nodes,
            thresholds=nodes.view(np.float32),
            leaf_means=both.leaf_mean,
            leaf_begins=np.append(0, np.cumsum(np.count_nonzero(both.leaf_mass, axis=1))),
            bins=bins.astype(np.uint8),
            masses=both.leaf_mass[both.leaf_mass != 0],
        )


class Forecaster:
    """Forecasts single jobs; ``forests`` has at least one forest of each target."""

    def __init__(self, forests: RollingForests) -> None:
        waits = forests.joined("wait")
        self._trees = Trees.of(waits, forests.joined("run"))
        self._of_waits = len(waits.roots)

    def forecast(self, features: Floats, requested_time: float | None) -> dict[Target, Estimate]:
        """Forecast one job from its features, shape (features,), as `PlacementFeatures` gives them.

        ``requested_time`` is in seconds: no run time forecast is longer.
        """
        asked = math.inf if requested_time is None else requested_time
        found = np.empty((2, _QUANTILES + len(LEVELS)))
        forecast_row(self._trees, self._of_waits, features, asked, found)
        wait, run = found.tolist()
        return {"wait": _estimate(wait), "run": _estimate(run)}


def _estimate(found: list[float]) -> Estimate:
    return Estimate(
        seconds=found[_MEAN],
        variance=found[_VARIANCE],
        quantiles=tuple(found[_QUANTILES:]),
    )


@compiled
def forecast_row(trees: Trees, of_waits: int, features: Floats, requested_time: float, found: Floats) -> None:
    """Forecast one job's wait and run time.

    Args:
        of_waits: Number of trees of the waits, which come first.
        requested_time: Seconds; infinite or NaN where unknown.
        found: float64, shape (2, 2 + levels): Written, the wait first: mean, variance, quantiles. Seconds.
    """
    leaves = _leaves_of(trees, features.astype(np.float32))
    mass = np.empty(BINS)
    for target in range(2):
        own = leaves[:of_waits] if target == 0 else leaves[of_waits:]
        mean = _average(trees, own, mass)
        longest = math.inf if target == 0 or np.isnan(requested_time) else requested_time
        _summarise(mean, mass, longest, found[target], found[target, _QUANTILES:])


@compiled
def _leaves_of(trees: Trees, row: NDArray[np.float32]) -> Integers:
    """Leaf of every tree for a row.

    All trees go down one level at a time, so that their memory loads overlap.
    """
    nodes = trees.roots.copy()
    active = np.empty(len(nodes), np.int32)  # trees not at a leaf yet
    count = 0
    for tree in range(len(nodes)):
        if nodes[tree] >= 0:
            active[count] = tree
            count += 1
    while count > 0:
        remaining = 0
        for index in range(count):
            tree = active[index]
            node = nodes[tree]
            left = 1 if row[trees.nodes[node, 0]] <= trees.thresholds[node, 1] else 0
            child = trees.nodes[node, 3 - left]
            nodes[tree] = child
            active[remaining] = tree
            remaining += 1 if child >= 0 else 0  # without a branch that depends on the row
        count = remaining
    return ~nodes


@compiled
def _average(trees: Trees, leaves: Integers, mass: Floats) -> float:
    """Average the leaves' histograms into ``mass`` (probability of each bin); returns the mean, seconds."""
    count = len(leaves)
    mean = 0.0
    for leaf in leaves:
        mean += trees.leaf_means[leaf] / count
    mass[:] = 0.0
    for leaf in leaves:
        for index in range(trees.leaf_begins[leaf], trees.leaf_begins[leaf + 1]):
            mass[trees.bins[index]] += trees.masses[index] / count
    return mean


@compiled
def _summarise(mean: float, mass: Floats, longest: float, numbers: Floats, quantiles: Floats) -> None:
    """Write mean and variance into ``numbers``, and ``quantiles``; none above ``longest``."""
    fill_quantiles(mass, LEVELS, EDGES, quantiles)
    numbers[0] = min(mean, longest)
    total = 0.0
    for index in range(len(quantiles)):
        quantiles[index] = min(quantiles[index], longest)
        total += (quantiles[index] - numbers[0]) ** 2
    numbers[1] = total / len(quantiles)
