"""One submission's wait and run time as distributions, in tens of microseconds: the submit path's side.

What a replay computes a column at a time (``advisor.predict.forecast.forecast_rows``) for one job: all
trees of a target in
one pass, quantiles (of run times, none above the request), the interval where the calibration cuts it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.model.estimate import Estimate
from advisor.predict._addresses import (
    WORD_BYTES,
    Placed,
    address_of,
    block,
    by_address,
    bytes_at,
    doubles_at,
    entry,
    integers_at,
    singles_at,
    words_at,
)
from advisor.predict.forecast.calibration import COVERAGE, IntervalCalibration, cut_interval
from advisor.predict.forecast.distribution import BINS, EDGES, LEVELS, DistributionForest, cut
from advisor.predict.forecast.placement_features import PlacementFeatures
from advisor.predict.forecast.placement_look import FEATURES, FEATURES_AT, look_at
from advisor.predict.forecast.rolling import TARGETS, RollingForests
from advisor.predict.knn.fitness import Target
from advisor.predict.trees.packed_trees import PackedTrees, average, descend

Floats = NDArray[np.float64]

Bounds = Mapping[Target, tuple[float, float]]
"""Per target, where its interval is cut (:attr:`IntervalCalibration.cut`)."""

_NUMBERS: Final = 4  # mean, variance, lower, upper
_LEVELS: Final = len(LEVELS)

# The block of one forecast, in words: where the features are, and what to fill them from (0: they are there);
# the trees; what is asked; what is told, of waits and then of run times; room to work in.
(
    _FEATURES,
    _LOOK,
    _ROOTS,
    _TREES,
    _OF_WAITS,
    _PLACES,
    _UNDER_WAY,
    _NODES,
    _NODE_COUNT,
    _LEAVES,
    _LEAF_NUMBERS,
    _ASKED,
) = range(12)
_BOUNDS: Final = _ASKED + 1
_TOLD: Final = _BOUNDS + 2 * len(TARGETS)
_QUANTILES: Final = _TOLD + 2 * _NUMBERS
_MASS: Final = _QUANTILES + 2 * _LEVELS
_SINGLE: Final = _MASS + BINS
_BLOCK: Final = _SINGLE + (len(FEATURES) + 1) // 2
_TOLD_NUMBERS: Final = struct.Struct(f"={2 * _NUMBERS}d")
_TOLD_QUANTILES: Final = struct.Struct(f"={_LEVELS}d")


class Forecaster(Placed):
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
        forecaster.forecast(np.zeros(len(FEATURES)), None, dict.fromkeys(TARGETS, IntervalCalibration().cut))

    def use(self, trees: PackedTrees) -> None:
        """Forecast by those trees; numbers go in and out by a block that is made once."""
        self._trees = trees  # the block says where they are
        words, numbers = block(_BLOCK)
        words[_ROOTS], words[_TREES], words[_OF_WAITS] = (
            address_of(trees.roots),
            len(trees.roots),
            trees.of_waits,
        )
        words[_PLACES], words[_UNDER_WAY] = address_of(trees.places), address_of(trees.under_way)
        words[_NODES], words[_NODE_COUNT] = address_of(trees.nodes), len(trees.nodes)
        words[_LEAVES], words[_LEAF_NUMBERS] = address_of(trees.leaves), len(trees.masses)
        self._words, self._numbers = words.data, cast("memoryview[float]", numbers.data)
        self._address = address_of(words)
        self._run = entry(forecast_at)
        self._bounds: Bounds | None = None
        self._look: PlacementFeatures | None = None

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
            Where the intervals are cut; not to be changed afterwards.
        """
        self._look = None
        features = np.ascontiguousarray(features, np.float64)
        self._words[_FEATURES], self._words[_LOOK] = address_of(features), 0
        return self._forecast(requested_time, bounds)

    def forecast_asked(
        self, look: PlacementFeatures, requested_time: float | None, bounds: Bounds
    ) -> dict[Target, Estimate]:
        """Forecast the job that was asked of `look` last: its features and the forecast are one call."""
        if look is not self._look:
            self._look = look
            self._words[_LOOK] = look.address
            self._words[_FEATURES] = look.address + WORD_BYTES * FEATURES_AT
        return self._forecast(requested_time, bounds)

    def _forecast(self, requested_time: float | None, bounds: Bounds) -> dict[Target, Estimate]:
        numbers = self._numbers
        if bounds is not self._bounds:
            self._bounds = bounds
            for at, bound in enumerate((*bounds["wait"], *bounds["run"]), start=_BOUNDS):
                numbers[at] = bound
        numbers[_ASKED] = math.inf if requested_time is None else requested_time
        self._run(self._address)
        mean, variance, lower, upper, run_mean, run_variance, run_lower, run_upper = (
            _TOLD_NUMBERS.unpack_from(numbers, WORD_BYTES * _TOLD)
        )
        return {
            "wait": Estimate(
                seconds=mean,
                variance=variance,
                lower=lower,
                upper=upper,
                coverage=COVERAGE,
                neighbours=0,
                quantiles=_TOLD_QUANTILES.unpack_from(numbers, WORD_BYTES * _QUANTILES),
            ),
            "run": Estimate(
                seconds=run_mean,
                variance=run_variance,
                lower=run_lower,
                upper=run_upper,
                coverage=COVERAGE,
                neighbours=0,
                quantiles=_TOLD_QUANTILES.unpack_from(numbers, WORD_BYTES * (_QUANTILES + _LEVELS)),
            ),
        }


@by_address
def forecast_at(address: int) -> None:
    """Forecast one job's wait and run time in one call: what it costs inside sbatch is mostly the calling."""
    words = words_at(address, _ASKED)
    numbers = doubles_at(address, _SINGLE)
    single = singles_at(address + WORD_BYTES * _SINGLE, len(FEATURES))
    if words[_LOOK] != 0:
        look_at(words[_LOOK])
    features = doubles_at(words[_FEATURES], len(FEATURES))
    for feature in range(len(FEATURES)):
        single[feature] = features[feature]
    trees, of_waits = words[_TREES], words[_OF_WAITS]
    places, roots = integers_at(words[_PLACES], trees), integers_at(words[_ROOTS], trees)
    nodes, node_numbers = words[_NODE_COUNT], 4 * words[_NODE_COUNT]
    descend(
        single,
        roots,
        integers_at(words[_NODES], node_numbers).reshape((nodes, 4)),
        singles_at(words[_NODES], node_numbers).reshape((nodes, 4)),
        places,
        integers_at(words[_UNDER_WAY], trees),
    )
    count = words[_LEAF_NUMBERS]
    leaves, masses = bytes_at(words[_LEAVES], 4 * count), singles_at(words[_LEAVES], count)
    means = doubles_at(words[_LEAVES], count // 2)
    longest = numbers[_ASKED]
    mass = numbers[_MASS:_SINGLE]
    for target in range(2):
        own = places[:of_waits] if target == 0 else places[of_waits:]
        mean = average(own, leaves, masses, means, mass)
        most = math.inf if target == 0 or np.isnan(longest) else longest
        told = numbers[_TOLD + _NUMBERS * target : _TOLD + _NUMBERS * (target + 1)]
        quantiles = numbers[_QUANTILES + _LEVELS * target : _QUANTILES + _LEVELS * (target + 1)]
        _summarise(mean, mass, most, told, quantiles)
        where = numbers[_BOUNDS + 2 * target : _BOUNDS + 2 * target + 2]
        cut_interval(mass, features, target, most, where, told[2:])


@compiled
def _summarise(mean: float, mass: Floats, longest: float, numbers: Floats, quantiles: Floats) -> None:
    """Fill ``numbers`` (mean, variance) and ``quantiles``. Nothing above ``longest``."""
    cut(mass, LEVELS, EDGES, quantiles)
    numbers[0] = min(mean, longest)
    total = 0.0
    for index in range(len(quantiles)):
        quantiles[index] = min(quantiles[index], longest)
        total += (quantiles[index] - numbers[0]) ** 2
    numbers[1] = total / len(quantiles)
