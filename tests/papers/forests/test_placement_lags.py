"""Kept summaries of a category's numbers equal new ones."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from advisor.papers.forests._placement_lags import Lags, lagged, mean, median

LENGTH = 3


def _summary(lags: tuple[float, ...]) -> tuple[float, ...]:
    return lagged(lags, 1), lagged(lags, 2), mean(lags), mean(lags, 2), median(lags) if lags else -2.0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.floats(0, 1e6)), max_size=40))
def test_a_kept_summary_equals_a_new_one(steps: list[tuple[bool, int, float]]) -> None:
    lags = Lags(LENGTH, _summary)
    plain: dict[int, list[float]] = defaultdict(list)
    for adds, category, number in steps:
        if adds:
            lags.add(category, number)
            plain[category].append(number)
        assert lags.of(category) == _summary(tuple(plain[category][-LENGTH:]))
