"""The published survival estimate, by the paper's figures and beside ours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from advisor.papers.stability.evidence import survival_with_evidence
from advisor.papers.stability.published_survival import kaplan_meier, published
from advisor.predict.survival.hazard import stays
from advisor.predict.survival.node_survival import DAY, GROWTH, SHRINK
from tests.predict.survival_intervals import ANY_HISTORY, NOW, assert_probabilities, intervals, simple


def test_kaplan_meier_of_a_textbook_sample():
    # Kaplan and Meier's own example: deaths at 0.8, 3.1, 5.4, 9.2; losses at 1.0, 2.7, 7.0, 12.1
    lasted = np.array([0.8, 1.0, 2.7, 3.1, 5.4, 7.0, 9.2, 12.1])
    died = np.array([True, False, False, True, True, False, True, False])
    times, left = kaplan_meier(lasted, died)
    assert times.tolist() == [0.8, 3.1, 5.4, 9.2]
    expected = [7 / 8, 7 / 8 * 4 / 5, 7 / 8 * 4 / 5 * 3 / 4, 7 / 8 * 4 / 5 * 3 / 4 * 1 / 2]
    np.testing.assert_allclose(left, expected)


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
    as_published, ours = published(seen, NOW, 10), survival_with_evidence(seen, NOW, 10)
    assert as_published.completion_probability(5, GROWTH, 0.0, 3600.0) < 0.1
    assert ours.completion_probability(5, GROWTH, 2 * DAY, 3600.0) > 0.97
    assert ours.completion_probability(0, GROWTH, 300.0, 3600.0) < 0.4


@settings(deadline=None)  # compiles on first use
@given(*ANY_HISTORY)
def test_any_history_gives_probabilities(rows, age, during):
    seen = intervals(rows)
    for known in (
        published(seen, NOW, 5),
        published(seen, NOW, 5, to_shrink=True),
        survival_with_evidence(seen, NOW, 5),
    ):
        assert_probabilities(known, age, during)
