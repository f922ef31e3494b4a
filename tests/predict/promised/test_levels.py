"""Levels follow how often promises are kept."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.predict.promised.levels import THIRDS, PromiseLevels


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("bias", [0.5, 1.0, 1.5])
def test_promises_are_kept_as_often_as_said_though_forecasts_are_biased(
    confidence: float, bias: float
) -> None:
    levels, draw = PromiseLevels(confidence, 1), np.random.default_rng(3)
    kept = []
    for _ in range(6_000):
        # the forecaster's quantile of an exponential truth whose mean is `bias` times what it thinks
        ready = -np.log(1.0 - levels.level(0, 1))
        kept.append(draw.exponential(bias) <= ready)
        levels.learn(0, 1, is_kept=bool(kept[-1]))
    tail = 1.0 - confidence
    assert confidence <= np.mean(kept[1_000:]) <= confidence + 0.25 * tail


def test_each_kind_and_third_has_its_own_level() -> None:
    levels = PromiseLevels(0.95, 2)
    for _ in range(20):
        levels.learn(1, 2, is_kept=False)
    assert levels.level(1, 2) > levels.level(0, 2) == levels.level(1, 1)


def test_thirds_are_those_of_the_jobs_seen() -> None:
    levels, draw = PromiseLevels(0.95, 1), np.random.default_rng(4)
    found = []
    for size in np.exp(draw.normal(8.0, 3.0, 6_000)):
        found.append(levels.third_of(size))
        levels.learn_size(size)
    assert np.bincount(found[1_000:], minlength=THIRDS) / 5_000 == pytest.approx([1 / 3] * 3, abs=0.05)


def test_promises_to_one_user_that_are_open_together_are_spread() -> None:
    levels = PromiseLevels(0.95, 1)
    spread = {levels.level(0, 0, alike) for alike in range(50)}
    assert len(spread) == 50
    assert min(spread) < 0.9
    assert max(spread) > 0.97
    assert levels.level(0, 0, 0) == levels.level(0, 0)
