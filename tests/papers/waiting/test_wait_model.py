"""The rolling forest: chances at any threshold, calibrated, from the newest weeks."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.papers.forests.distribution import DistributionForest, ForestSettings
from advisor.papers.waiting.wait_model import MIN_EXAMPLES, RollingForest, merged
from advisor.papers.waiting.world._trees import outlook

HOUR = 3600.0


def examples(count, seed):
    """Waits exponential with a mean that the first feature says."""
    generator = np.random.default_rng(seed)
    rows = generator.uniform(1.0, 10.0, (count, 3))
    return rows, generator.exponential(rows[:, 0] * HOUR)


@pytest.fixture(scope="module")
def model():
    grown = RollingForest(settings=ForestSettings(trees=5, leaf_jobs=40, feature_share=1.0))
    for week in range(4):
        assert grown.grow(*examples(4_000, week), seed=week)
    return grown


@pytest.mark.parametrize("hours", [1.0, 3.0, 6.0, 12.0, 24.0])
def test_chances_are_calibrated_at_any_threshold_without_training_again(model, hours):
    rows, waits = examples(4_000, 99)
    chance = model.chance_of_more(rows, hours * HOUR)
    true = np.exp(-hours / rows[:, 0])
    assert np.abs(chance - true).mean() < 0.06
    for low in (0.0, 0.25, 0.5, 0.75):
        those = (chance >= low) & (chance < low + 0.25)
        if those.sum() > 200:
            assert chance[those].mean() == pytest.approx((waits[those] > hours * HOUR).mean(), abs=0.07)


def test_chance_falls_as_the_threshold_rises(model):
    rows, _ = examples(50, 5)
    chances = np.array([model.chance_of_more(rows, seconds) for seconds in np.geomspace(1.0, 1e6, 30)])
    assert np.all(np.diff(chances, axis=0) <= 1e-6)
    assert np.all((chances >= 0.0) & (chances <= 1.0))


def test_outlook_is_the_wait_cut_off_at_what_is_left(model):
    row = np.array([5.0, 5.0, 5.0])
    in_time, to_come = outlook(model.trees, row, 24 * HOUR)
    assert in_time == pytest.approx(1.0 - np.exp(-24 / 5), abs=0.03)
    assert to_come == pytest.approx(5 * HOUR * (1 - np.exp(-24 / 5)), rel=0.12)
    grid = np.linspace(0.0, 24 * HOUR, 4_000)
    summed = np.mean([model.chance_of_more(row[None], seconds)[0] for seconds in grid]) * 24 * HOUR
    assert to_come == pytest.approx(summed, rel=0.01)


def test_asked_as_one_the_forests_say_their_mean():
    rows, waits = examples(1_000, 1)
    forests = [DistributionForest.train(rows, waits, ForestSettings(trees=3, seed=seed)) for seed in (1, 2)]
    both, _ = examples(20, 2)
    single = RollingForest()
    chances = []
    for forest in forests:
        single._trees = merged((forest,))
        chances.append(single.chance_of_more(both, 2 * HOUR))
    single._trees = merged(tuple(forests))
    assert single.chance_of_more(both, 2 * HOUR) == pytest.approx(np.mean(chances, axis=0))


def test_old_weeks_are_forgotten():
    model = RollingForest(settings=ForestSettings(trees=3), kept=2)
    rows = np.zeros((600, 1))
    model.grow(rows, np.full(600, 60.0), seed=1)
    for week in range(2):
        model.grow(rows, np.full(600, 10 * HOUR), seed=week)
    assert model.chance_of_more(rows[:1], HOUR)[0] == pytest.approx(1.0)


def test_too_few_examples_say_nothing():
    model = RollingForest()
    rows, waits = examples(MIN_EXAMPLES - 1, 1)
    assert not model.grow(rows, waits, seed=1)
    assert model.trees is None
    assert model.chance_of_more(rows[:2], HOUR).tolist() == [0.0, 0.0]
