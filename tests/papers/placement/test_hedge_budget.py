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
    assert not budget.reserve("a", 101.0)
    assert budget.reserve("a", 60.0), "less than it has changes nothing"
    budget.settle("a", 20.0)
    assert (budget.spent, budget.left) == (20.0, pytest.approx(80.0))
    assert budget.reserve("b", 79.0)


class _Step(NamedTuple):
    """One thing that happens to one of a few hedges."""

    what: str
    key: int
    amount: float


STEPS = st.lists(
    st.builds(
        _Step,
        what=st.sampled_from(["reserve", "settle"]),
        key=st.integers(0, 5),
        amount=st.floats(0.0, 1e9),
    ),
    max_size=80,
)


@settings(max_examples=300, deadline=None)
@given(st.floats(0.0, 1e9), STEPS)
def test_g17_no_life_of_hedges_uses_more_than_the_number(number: float, steps: list[_Step]) -> None:
    """Each hedge is stopped when its reservation is used up: all that is asked of whoever runs it."""
    budget, running = Budget(number), set[int]()
    for step in steps:
        if step.what == "reserve":
            if budget.reserve(step.key, step.amount):
                running.add(step.key)
        elif step.key in running:
            running.remove(step.key)
            budget.settle(step.key, min(step.amount, budget.reserved(step.key)))
        assert budget.spent + sum(map(budget.reserved, running)) <= number
        assert budget.left >= -1e-6 * (1.0 + number)
