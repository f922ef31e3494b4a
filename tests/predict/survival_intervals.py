"""Intervals between changes of nodes, for tests of survival."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from advisor.predict.survival.hazard import POINTS, wasted
from advisor.predict.survival.node_survival import DAY, GROWTH, SHRINK, Intervals, SurvivalModel

NOW = 10 * DAY

ANY_HISTORY = (
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
"""Rows as of `intervals`, an age and a duration in seconds."""


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


def assert_probabilities(known: SurvivalModel, age: float, during: float) -> None:
    """The model of five nodes gives probabilities that fall with time."""
    assert known.hazard.shape == (POINTS,)
    assert np.all(np.diff(known.hazard) >= -1e-12)
    for node in range(5):
        chance = known.completion_probability(node, GROWTH, age, during)
        assert -1e-9 <= chance <= 1.0
        assert known.completion_probability(node, GROWTH, age, during * 2) <= chance + 1e-9
        waste = wasted(known.hazard, known.shape[node], known.rate[node], age, during)
        assert 0.0 <= waste <= during * (1 + 1e-9)
