"""Survival curves by hand, and what must hold for any history."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.predict.survival._hazard import AGES, POINTS, cumulative_at, stays, wasted
from advisor.predict.survival.survival import (
    DAY,
    GROWTH,
    SHRINK,
    Intervals,
    SurvivalRules,
    kaplan_meier,
    published,
    shrink_probabilities,
    shrink_sizes,
    survival,
)

NOW = 10 * DAY


def intervals(rows: list[tuple[int, float, bool, int, int, float]], now: float = NOW) -> Intervals:
    """Rows of (node, seconds lasted, completed, began, ended, size), all seen to end just now."""
    node, lasted, completed, began, ended, size = (
        (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [], [], [])
    )
    end = np.full(len(rows), now)
    return Intervals(
        node=np.array(node, np.int64),
        start=end - np.array(lasted, np.float64),
        end=end,
        completed=np.array(completed, np.bool_),
        began=np.array(began, np.int64),
        ended=np.array(ended, np.int64),
        size=np.array(size, np.float64),
    )


def simple(
    lasted: list[float], completed: list[bool] | None = None, node: list[int] | None = None
) -> Intervals:
    completed = completed or [True] * len(lasted)
    node = node or [0] * len(lasted)
    return intervals(
        [(n, x, c, GROWTH, SHRINK, 4.0) for n, x, c in zip(node, lasted, completed, strict=True)]
    )


def test_kaplan_meier_of_a_textbook_sample():
    # Kaplan and Meier's own example: deaths at 0.8, 3.1, 5.4, 9.2; losses at 1.0, 2.7, 7.0, 12.1
    lasted = np.array([0.8, 1.0, 2.7, 3.1, 5.4, 7.0, 9.2, 12.1])
    died = np.array([True, False, False, True, True, False, True, False])
    times, left = kaplan_meier(lasted, died)
    assert times.tolist() == [0.8, 3.1, 5.4, 9.2]
    expected = [7 / 8, 7 / 8 * 4 / 5, 7 / 8 * 4 / 5 * 3 / 4, 7 / 8 * 4 / 5 * 3 / 4 * 1 / 2]
    np.testing.assert_allclose(left, expected)


def test_kaplan_meier_counts_late_entries_only_once_they_are_watched():
    times, left = kaplan_meier(np.array([2.0, 5.0]), np.array([True, True]), np.array([0.0, 3.0]))
    assert times.tolist() == [2.0, 5.0]
    assert left.tolist() == [0.0, 0.0]  # at 2 s only one was watched, and it ended


def test_figure_8_of_the_paper():
    # P(X > e) = 0.8, P(X > e + d) = 0.6: the change comes within d with probability 1 - 0.6/0.8
    seen = simple([100.0] * 2 + [1000.0] * 2 + [9000.0] * 6)
    known = published(seen, NOW, 1)
    assert stays(known.hazard, math.inf, 1.0, 500.0, 3000.0) == pytest.approx(0.6 / 0.8, rel=1e-6)


def test_eq_1_combines_change_and_direction():
    rows = [(0, 100.0, True, GROWTH, SHRINK, 1.0)] * 3 + [(0, 7200.0, True, GROWTH, GROWTH, 1.0)] * 3
    known = published(intervals(rows), NOW, 1)
    assert known.shrink_after[GROWTH] == pytest.approx((3 + 1) / (6 + 2))
    assert known.completion_probability(0, GROWTH, 0.0, 3600.0) == pytest.approx(1 - 0.5 * 0.5)


def test_appendix_b2_asks_for_shrinks_only():
    rows = [(0, 100.0, True, GROWTH, GROWTH, 1.0)] * 5 + [(0, 5000.0, True, GROWTH, SHRINK, 1.0)] * 5
    known = published(intervals(rows), NOW, 1, to_shrink=True)
    assert known.completion_probability(0, SHRINK, 0.0, 3600.0) == pytest.approx(1.0)
    assert published(intervals(rows), NOW, 1).completion_probability(0, GROWTH, 0.0, 3600.0) < 0.8


def test_only_the_past_day_counts_as_published():
    old = intervals([(0, 60.0, True, GROWTH, SHRINK, 1.0)], now=NOW - 2 * DAY)
    known = published(old, NOW, 1)
    assert known.completion_probability(0, GROWTH, 0.0, DAY) == 1.0


def test_open_intervals_make_the_difference():
    # nine nodes have lasted two days, one changed every ten minutes: completed intervals know only the one
    seen = simple([600.0] * 40 + [2 * DAY] * 9, [True] * 40 + [False] * 9, [0] * 40 + list(range(1, 10)))
    as_published, ours = published(seen, NOW, 10), survival(seen, NOW, 10)
    assert as_published.completion_probability(5, GROWTH, 0.0, 3600.0) < 0.1
    assert ours.completion_probability(5, GROWTH, 2 * DAY, 3600.0) > 0.97
    assert ours.completion_probability(0, GROWTH, 300.0, 3600.0) < 0.4


def test_each_node_has_its_own_rate():
    generator = np.random.default_rng(3)
    fast, slow = generator.exponential(300.0, 60), generator.exponential(20_000.0, 60)
    seen = simple([*fast, *slow], node=[0] * 60 + [1] * 60)
    known = survival(seen, NOW, 2)
    assert known.shape[0] / known.rate[0] > 3 * known.shape[1] / known.rate[1]
    alike = survival(seen, NOW, 2, SurvivalRules(own_rate=False))
    assert np.all(np.isinf(alike.shape))


def test_a_smoothed_curve_follows_many_ends():
    lasted = np.random.default_rng(1).exponential(3600.0, 4000)
    known = survival(simple(list(lasted)), NOW, 1)
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
@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.floats(1.0, 40 * DAY),
            st.booleans(),
            st.integers(0, 1),
            st.integers(0, 1),
            st.floats(1, 400),
        ),
        max_size=40,
    ),
    st.floats(0, 30 * DAY),
    st.floats(1.0, 5 * DAY),
)
def test_any_history_gives_probabilities(rows, age, during):
    seen = intervals(rows)
    for known in (published(seen, NOW, 5), survival(seen, NOW, 5), published(seen, NOW, 5, to_shrink=True)):
        assert known.hazard.shape == (POINTS,)
        assert np.all(np.diff(known.hazard) >= -1e-12)
        for node in range(5):
            chance = known.completion_probability(node, GROWTH, age, during)
            assert -1e-9 <= chance <= 1.0
            assert known.completion_probability(node, GROWTH, age, during * 2) <= chance + 1e-9
            waste = wasted(known.hazard, known.shape[node], known.rate[node], age, during)
            assert 0.0 <= waste <= during * (1 + 1e-9)
