"""Prices and spot lives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.papers.waiting.world.costs import CostModel


def test_spot_lives_are_exponential_with_the_stated_mean():
    lives = CostModel(spot_mean_seconds=3600.0).revoked_after(20_000, np.random.default_rng(1))
    assert lives.mean() == pytest.approx(3600.0, rel=0.03)
    assert np.mean(lives > 3600.0) == pytest.approx(math.exp(-1), abs=0.02)


def test_never_revoked():
    lives = CostModel(spot_mean_seconds=math.inf).revoked_after(3, np.random.default_rng(1))
    assert np.all(np.isinf(lives))


@pytest.mark.parametrize("wrong", [{"spot": -0.1}, {"reserved": math.nan}, {"spot_mean_seconds": 0.0}])
def test_refuses_impossible_prices(wrong):
    with pytest.raises(BadInput):
        CostModel(**wrong)
