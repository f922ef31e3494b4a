"""Single forecasts equal those of a replay up to rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from advisor.papers.placement.forecast_rows import ForecastColumns, forecast_rows
from advisor.predict.forecast import forecaster as forecaster_module
from advisor.predict.forecast.distribution import BINS, LEVELS, DistributionForest, ForestSettings
from advisor.predict.forecast.forecaster import Forecaster, Trees
from advisor.predict.forecast.placement_replay import features_of
from advisor.predict.forecast.rolling import TARGETS, ForecastOptions, Known, RollingForests
from advisor.replay.sources import load_table

OPTIONS = ForecastOptions(first=200, retrain_jobs=200, forests=3, forest=ForestSettings(trees=4))
TABLE = load_table("synthetic:900:3")
ROWS = np.flatnonzero(TABLE.run > 0)


@pytest.fixture(scope="module")
def replayed() -> tuple[RollingForests, dict[str, ForecastColumns]]:
    rolling = RollingForests(OPTIONS)
    return rolling, forecast_rows(TABLE, ROWS, OPTIONS, rolling=rolling)


def test_single_forecasts_equal_those_of_a_log(
    replayed: tuple[RollingForests, dict[str, ForecastColumns]],
) -> None:
    rolling, columns = replayed
    forecaster, features = Forecaster(rolling), features_of(TABLE)
    last = len(ROWS) - (len(ROWS) - OPTIONS.first) % OPTIONS.retrain_jobs
    assert len(ROWS) - last > 20, "the last forests' own rows"
    for index in range(last, len(ROWS)):
        row = ROWS[index]
        found = forecaster.forecast(features[row], float(TABLE.requested_time[row]))
        for target in TARGETS:
            expected = columns[target].estimate(index)
            assert found[target].seconds == pytest.approx(expected.seconds, rel=1e-9)
            assert found[target].quantiles == pytest.approx(expected.quantiles, rel=1e-9, abs=1e-9)
            assert found[target].variance == pytest.approx(expected.variance, rel=1e-7, abs=1e-6)


def test_compiled_and_as_python(
    replayed: tuple[RollingForests, dict[str, ForecastColumns]], interpreted: Callable[[ModuleType], None]
) -> None:
    features = features_of(TABLE)

    def forecasts() -> list[float]:
        forecaster = Forecaster(replayed[0])
        found = [forecaster.forecast(features[row], 900.0) for row in ROWS[-5:]]
        return [
            number
            for one in found
            for target in TARGETS
            for number in (one[target].seconds, one[target].variance, *one[target].quantiles)
        ]

    compiled = forecasts()
    interpreted(forecaster_module)
    assert forecasts() == pytest.approx(compiled, rel=1e-6)  # sums of single precision


def grown(seed: int, jobs: int = 400) -> DistributionForest:
    seconds = np.abs(POINTS[:jobs, 0] * 40.0 + GENERATOR.exponential(500.0, jobs))
    return DistributionForest.train(POINTS[:jobs], seconds, ForestSettings(trees=7, seed=seed))


GENERATOR = np.random.default_rng(20)
POINTS = np.floor(GENERATOR.normal(0.0, 30.0, (400, 6)))


def of_leaves(trees: Trees, count: int, row: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean and histogram by the first trees."""
    mass = np.empty(BINS)
    leaves = forecaster_module._leaves_of(trees, row.astype(np.float32))[:count]
    return forecaster_module._average(trees, leaves, mass), mass


def test_every_row_falls_into_the_forests_leaves() -> None:
    """To the last bit: the same sum in the same order."""
    waits, runs = grown(1), grown(2)
    for forest, trees in ((waits, Trees.of(waits, runs)), (runs, Trees.of(runs, waits))):
        expected = forest.predict(POINTS)
        for index in range(0, len(POINTS), 3):
            mean, mass = of_leaves(trees, 7, POINTS[index])
            assert mean == expected.mean[index]
            np.testing.assert_array_equal(mass, expected.mass[index])


def test_a_threshold_that_single_precision_cannot_hold() -> None:
    """Half way between two features that differ in their last bit only: both stay on their side."""
    below = np.float32(1e6)
    above = np.nextafter(below, np.float32(np.inf))
    stump = DistributionForest(
        roots=np.zeros(1, np.int32),
        feature=np.array([0, -1, -1], np.int32),
        threshold=np.array([(float(below) + float(above)) / 2.0, 0.0, 0.0]),
        children=np.array([[1, 2], [0, 0], [0, 0]], np.int32),
        leaf=np.array([0, 0, 1], np.int32),
        leaf_mean=np.array([10.0, 20.0]),
        leaf_mass=np.eye(2, BINS, dtype=np.float32),
    )
    trees = Trees.of(stump, stump)
    assert of_leaves(trees, 1, np.array([below]))[0] == 10.0
    assert of_leaves(trees, 1, np.array([above]))[0] == 20.0


def test_trees_that_are_one_leaf() -> None:
    leaf = grown(3, jobs=1)
    mean, mass = of_leaves(Trees.of(leaf, grown(4)), 7, POINTS[7])
    assert mean == pytest.approx(float(leaf.leaf_mean[0]))
    assert mass.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("bins", [1, 3, 4, 7, 13, BINS])
def test_leaves_of_many_bins(bins: int) -> None:
    mass = np.zeros((3, BINS), np.float32)
    mass[0, :bins], mass[1, BINS - bins :], mass[2, ::2] = 1.0 / bins, 1.0 / bins, 2.0 / BINS
    forest = DistributionForest(
        roots=np.zeros(1, np.int32),
        feature=np.array([0, -1, 1, -1, -1], np.int32),
        threshold=np.array([0.5, 0.0, 0.5, 0.0, 0.0]),
        children=np.array([[1, 2], [0, 0], [3, 4], [0, 0], [0, 0]], np.int32),
        leaf=np.array([0, 0, 0, 1, 2], np.int32),
        leaf_mean=np.array([1.5, 2.5, 3.5]),
        leaf_mass=mass,
    )
    for row, leaf in (([0.0, 0.0], 0), ([1.0, 0.0], 1), ([1.0, 1.0], 2)):
        mean, found = of_leaves(Trees.of(forest, forest), 1, np.array(row))
        assert mean == forest.leaf_mean[leaf]
        np.testing.assert_array_equal(found, mass[leaf].astype(np.float64))


def test_no_forecast_run_time_exceeds_the_request(
    replayed: tuple[RollingForests, dict[str, ForecastColumns]],
) -> None:
    forecaster = Forecaster(replayed[0])
    row = features_of(TABLE)[ROWS[-1]]
    short = forecaster.forecast(row, 5.0)
    assert max(short["run"].quantiles) <= 5.0
    assert short["wait"] == forecaster.forecast(row, None)["wait"]
    assert forecaster.forecast(row, math.nan) == forecaster.forecast(row, None)


def test_quantiles_against_the_plain_definition(
    replayed: tuple[RollingForests, dict[str, ForecastColumns]],
) -> None:
    from advisor.predict.forecast.distribution import EDGES, Distributions

    mass = replayed[1]["wait"].mass[OPTIONS.first :]
    found = Distributions(mean=np.zeros(len(mass)), mass=mass).quantiles(LEVELS)
    for row in range(0, len(mass), 37):
        below = np.concatenate([[0.0], np.cumsum(mass[row])])
        # where the distribution function first comes to each level, linear within a bin
        inner = np.flatnonzero(mass[row] > 0)
        xs, ys = [EDGES[inner[0]]], [0.0]
        for number in inner:
            xs += [EDGES[number], EDGES[number + 1]]
            ys += [below[number], below[number + 1]]
        np.testing.assert_allclose(found[row], np.interp(LEVELS, ys, xs), rtol=1e-6, atol=1e-6)


def test_nothing_is_learned_from_the_future() -> None:
    from dataclasses import replace

    wait, run = TABLE.wait.copy(), TABLE.run.copy()
    wait[ROWS[5]], run[ROWS[5]], run[ROWS[6]] = np.inf, np.inf, np.inf
    under_way = replace(TABLE, wait=wait, run=run)
    assert ROWS[5] not in Known.of(under_way, "wait").rows
    assert ROWS[6] in Known.of(under_way, "wait").rows
    assert ROWS[6] not in Known.of(under_way, "run").rows
