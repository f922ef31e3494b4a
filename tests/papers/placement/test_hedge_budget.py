"""G17: what hedges use is never above the number given in advance."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.papers.placement.hedge_budget import Budget


def test_g17_the_worst_case_is_reserved_and_what_was_not_used_is_free_again() -> None:
    budget = Budget(100.0)
    assert budget.reserve("a", 70.0)
    assert not budget.reserve("b", 40.0)
    assert budget.left == pytest.approx(30.0)
    budget.use("a", 10.0)
    budget.use("a", 5.0)
    assert (budget.spent, budget.left) == (10.0, pytest.approx(30.0))
    assert not budget.reserve("a", 101.0)
    assert budget.reserve("a", 60.0), "less than it has changes nothing"
    budget.settle("a", 20.0)
    assert (budget.spent, budget.left) == (20.0, pytest.approx(80.0))
    assert budget.reserve("b", 79.0)


def test_g17_a_new_period_begins_with_what_is_reserved_still() -> None:
    budget = Budget(100.0)
    assert budget.reserve("a", 90.0)
    budget.use("a", 50.0)
    budget.begin(100.0)
    assert (budget.spent, budget.left) == (0.0, pytest.approx(60.0))
    budget.settle("a", 90.0)
    assert (budget.spent, budget.left) == (pytest.approx(40.0), pytest.approx(60.0))


class _Step(NamedTuple):
    """One thing that happens to one of a few hedges."""

    what: str
    key: int
    amount: float


STEPS = st.lists(
    st.builds(
        _Step,
        what=st.sampled_from(["reserve", "use", "settle", "begin"]),
        key=st.integers(0, 5),
        amount=st.floats(0.0, 1e9),
    ),
    max_size=80,
)


@settings(max_examples=300, deadline=None)
@given(st.floats(0.0, 1e9), STEPS)
def test_g17_no_life_of_hedges_uses_more_than_the_number(number: float, steps: list[_Step]) -> None:
    """Each hedge is stopped when its reservation is used up: all that is asked of whoever runs it."""
    budget = Budget(number)
    used, in_period = dict.fromkeys(range(6), 0.0), 0.0
    for step in steps:
        if step.what == "reserve":
            budget.reserve(step.key, step.amount)
        elif step.what == "begin":
            budget.begin(number)
            in_period = 0.0
        elif step.key in budget:
            total = max(used[step.key], min(step.amount, budget.reserved(step.key)))
            in_period += total - used[step.key]
            used[step.key] = total
            if step.what == "use":
                budget.use(step.key, total)
            else:
                budget.settle(step.key, total)
                used[step.key] = 0.0
        assert in_period <= number
        assert budget.left >= -1e-6 * (1.0 + number)
