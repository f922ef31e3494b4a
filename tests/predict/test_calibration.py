"""Adaptive intervals: the promised share holds whatever the times do."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.predict.calibration import AdaptiveLevel


def test_it_starts_at_the_promise_and_moves_by_the_equation() -> None:
    level = AdaptiveLevel(0.9, rate=0.1)
    assert level.bounds == pytest.approx((0.05, 0.95))
    level.learn(inside=False)  # 0.1 + 0.1 * (0.1 - 1) = 0.01
    assert level.bounds == pytest.approx((0.005, 0.995))
    level.learn(inside=True)  # 0.01 + 0.1 * 0.1 = 0.02
    assert level.bounds == pytest.approx((0.01, 0.99))


def test_the_level_never_leaves_probabilities() -> None:
    level = AdaptiveLevel(0.9, rate=0.5)
    for _ in range(10):
        level.learn(inside=False)
    assert level.bounds == (0.0, 1.0)
    for _ in range(1000):
        level.learn(inside=True)
    assert level.bounds == (0.5, 0.5)


@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_a_forecast_that_is_wrong_about_its_spread_still_covers(spread: float) -> None:
    generator = np.random.default_rng(1)
    believed = np.sort(generator.normal(size=4001))
    level, held = AdaptiveLevel(0.9), list[bool]()
    for truth in generator.normal(scale=spread, size=6000):
        low, high = np.quantile(believed, level.bounds)
        # the interval at level 0 is everything
        inside = bool(low <= truth <= high) or level.bounds == (0.0, 1.0)
        level.learn(inside=inside)
        held.append(inside)
    assert np.mean(held[1000:]) == pytest.approx(0.9, abs=0.01)
