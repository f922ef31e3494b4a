"""Who gives way on a node that has shrunk: the compiled search against its plain definition."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, combinations
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.papers.stability import giving_way
from advisor.papers.stability.giving_way import least_lost


def by_definition(cores: list[int], elapsed: list[int], excess: int) -> tuple[int, int]:
    """Least work lost of all sets that give back enough, and the fewest tasks that lose so little."""
    rows = range(len(cores))
    sets = chain.from_iterable(combinations(rows, count) for count in range(len(cores) + 1))
    enough = (chosen for chosen in sets if sum(cores[row] for row in chosen) >= excess)
    return min((sum(cores[row] * elapsed[row] for row in chosen), len(chosen)) for chosen in enough)


def lost(cores: list[int], elapsed: list[int], ends: np.ndarray) -> tuple[int, int]:
    return sum(cores[row] * elapsed[row] for row in ends), len(ends)


running = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 40)), min_size=1, max_size=9)


@given(running, st.integers(0, 45))
def test_as_by_definition(tasks, excess):
    cores, elapsed = map(list, zip(*tasks, strict=True))
    excess = min(excess, sum(cores))
    ends = least_lost(np.array(cores), np.array(elapsed, float), excess)
    assert sum(cores[row] for row in ends) >= excess
    assert lost(cores, elapsed, ends) == by_definition(cores, elapsed, excess)


def test_compiled_and_as_python(interpreted: Callable[[ModuleType], None]):
    generator = np.random.default_rng(3)
    moments = [
        (generator.integers(1, 5, 20), generator.uniform(0, 4500, 20), int(excess))
        for excess in generator.integers(1, 20, 10)
    ]
    compiled = [least_lost(*moment).tolist() for moment in moments]
    interpreted(giving_way)
    assert [least_lost(*moment).tolist() for moment in moments] == compiled


def test_two_small_ones_may_be_cheaper_than_the_cheapest_first():
    """One after another the youngest would end first, and then in vain."""
    cores, elapsed = np.array([4, 2, 2, 1]), np.array([600.0, 500.0, 500.0, 60.0])
    assert least_lost(cores, elapsed, 4).tolist() == [1, 2]
    assert least_lost(cores, elapsed, 1).tolist() == [3]


def test_of_tasks_that_have_just_started_as_few_as_possible_end():
    assert least_lost(np.array([1, 1, 2]), np.zeros(3), 2).tolist() == [2]


def test_nobody_ends_for_nothing_and_more_than_all_is_refused():
    assert least_lost(np.array([1, 2]), np.array([5.0, 5.0]), 0).tolist() == []
    with pytest.raises(ValueError, match="4 cores too many"):
        least_lost(np.array([1, 2]), np.array([5.0, 5.0]), 4)
