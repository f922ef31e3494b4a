"""Survival curves by hand, and what must hold for any history."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from advisor.predict.survival.hazard import AGES, cumulative_at, wasted
from advisor.predict.survival.node_survival import (
    GROWTH,
    SHRINK,
    Intervals,
    fit_survival,
    shrink_probabilities,
    shrink_sizes,
)
from tests.predict.survival_intervals import ANY_HISTORY, NOW, assert_probabilities, intervals, simple


def test_each_node_has_its_own_rate():
    generator = np.random.default_rng(3)
    fast, slow = generator.exponential(300.0, 60), generator.exponential(20_000.0, 60)
    seen = simple([*fast, *slow], node=[0] * 60 + [1] * 60)
    known = fit_survival(seen, NOW, 2)
    assert known.shape[0] / known.rate[0] > 3 * known.shape[1] / known.rate[1]


def test_a_smoothed_curve_follows_many_ends():
    lasted = np.random.default_rng(1).exponential(3600.0, 4000)
    known = fit_survival(simple(list(lasted)), NOW, 1)
    for age in (600.0, 3600.0, 7200.0):
        assert cumulative_at(known.hazard, age) == pytest.approx(age / 3600.0, rel=0.08)


def test_waste_of_a_constant_rate():
    hazard = AGES / 1000.0
    during = 2000.0
    expected = 1000.0 - during * math.exp(-2.0) / (1 - math.exp(-2.0))  # mean of a cut exponential
    assert wasted(hazard, math.inf, 1.0, 50.0, during) == pytest.approx(expected, rel=0.01)


def test_bigrams_and_sizes():
    rows = [(0, 5.0, True, SHRINK, GROWTH, 2.0)] * 8 + [(0, 5.0, True, GROWTH, SHRINK, 7.0)] * 8
    seen = intervals([*rows, (0, 5.0, False, SHRINK, SHRINK, 99.0)])
    assert shrink_probabilities(seen).tolist() == [0.9, 0.1]
    larger = shrink_sizes(seen)
    assert larger[6] == 1.0
    assert larger[7] == pytest.approx(1 / 9)
    assert np.all(shrink_sizes(Intervals.empty()) == 1.0)


@settings(deadline=None)  # compiles on first use
@given(*ANY_HISTORY)
def test_any_history_gives_probabilities(rows, age, during):
    seen = intervals(rows)
    assert_probabilities(fit_survival(seen, NOW, 5), age, during)
