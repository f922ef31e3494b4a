"""Distribution forests: equal to their definition, calibrated, and safe to load."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.papers.forests import distribution
from advisor.papers.forests.distribution import (
    BINS,
    EDGES,
    LEVELS,
    DistributionForest,
    Distributions,
    ForestSettings,
)
from advisor.papers.forests.sklearn_forest import grown

SMALL = ForestSettings(trees=5, leaf_jobs=3)


def make_jobs(n: int = 400, seed: int = 0):
    generator = np.random.default_rng(seed)
    features = generator.random((n, 4))
    return features, 1000.0 * features[:, 0] * generator.lognormal(0, 0.5, n)


@pytest.fixture(scope="module")
def forest() -> DistributionForest:
    return DistributionForest.train(*make_jobs(), SMALL)


@pytest.fixture(params=["compiled", "as Python"])
def both_ways(request: pytest.FixtureRequest, interpreted: Callable[[ModuleType], None]) -> None:
    if request.param == "as Python":
        interpreted(distribution)


@pytest.mark.usefixtures("both_ways")
def test_a_prediction_is_the_mean_over_the_leaves_a_job_falls_into(forest: DistributionForest) -> None:
    from sklearn.ensemble import RandomForestRegressor

    features, seconds = make_jobs()
    model = RandomForestRegressor(
        SMALL.trees,
        min_samples_leaf=SMALL.leaf_jobs,
        max_features=SMALL.feature_share,
        max_samples=SMALL.job_share,
        random_state=SMALL.seed,
    ).fit(features, np.log1p(seconds))
    rows = make_jobs(20, seed=1)[0]
    trained, asked = model.apply(features), model.apply(rows)
    found = forest.predict(rows)
    for row in range(len(rows)):
        leaves = [seconds[trained[:, tree] == asked[row, tree]] for tree in range(SMALL.trees)]
        assert found.mean[row] == pytest.approx(np.mean([leaf.mean() for leaf in leaves]))
        masses = [np.histogram(leaf, EDGES)[0] / len(leaf) for leaf in leaves]
        np.testing.assert_allclose(found.mass[row], np.mean(masses, axis=0), atol=1e-6)
    assert grown(model).feature.shape == forest.feature.shape


def test_masses_sum_to_one_and_quantiles_ascend(forest: DistributionForest) -> None:
    found = forest.predict(make_jobs(200, seed=2)[0])
    np.testing.assert_allclose(found.mass.sum(axis=1), 1.0, atol=1e-6)
    assert np.all(np.diff(found.quantiles(), axis=1) >= 0)


def test_intervals_cover_jobs_outside_the_training_set() -> None:
    forest = DistributionForest.train(*make_jobs(3000), ForestSettings(trees=20))
    features, seconds = make_jobs(2000, seed=3)
    found = forest.predict(features)
    guess = np.abs(seconds - seconds.mean()).mean()
    assert np.abs(seconds - found.mean).mean() < 0.75 * guess
    low, high = found.quantiles(np.array([0.05, 0.95])).T
    assert 0.86 < np.mean((seconds >= low) & (seconds <= high)) < 0.96


@given(st.lists(st.floats(0, 1), min_size=BINS, max_size=BINS).filter(lambda masses: sum(masses) > 0.1))
def test_quantiles_invert_the_distribution(masses: list[float]) -> None:
    mass = np.array([masses]) / sum(masses)
    found = Distributions(mean=np.array([1.0]), mass=mass).quantiles()[0]
    below = np.interp(found, EDGES, np.concatenate([[0.0], np.cumsum(mass[0])]))
    np.testing.assert_allclose(below, LEVELS, atol=1e-6)


def test_a_site_whose_jobs_are_all_alike() -> None:
    forest = DistributionForest.train(np.zeros((50, 4)), np.full(50, 77.0), SMALL)
    found = forest.predict(np.ones((1, 4)))
    assert found.mean[0] == pytest.approx(77.0)
    low, high = found.quantiles(np.array([0.0, 1.0]))[0]
    assert low <= 77.0 <= high


def test_one_job_and_times_beyond_the_last_bin() -> None:
    forest = DistributionForest.train(np.zeros((1, 4)), np.array([1e9]), SMALL)
    found = forest.predict(np.zeros((1, 4)))
    assert found.mean[0] == pytest.approx(1e9)
    assert found.quantiles()[0, -1] <= EDGES[-1]


def test_nothing_to_learn_from() -> None:
    with pytest.raises(ValueError, match="no job"):
        DistributionForest.train(np.zeros((0, 4)), np.zeros(0))
