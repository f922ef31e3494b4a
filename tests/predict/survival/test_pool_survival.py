"""Survival by pool, from a site's own lives and without any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.predict.survival.pool_survival import HOUR, Life, pool_survival

NOW = 40 * 24 * HOUR


def lives(pool: str, hours: list[float], *, was_taken: bool = True) -> list[Life]:
    return [Life(pool=pool, start=NOW - h * HOUR, end=NOW, was_taken=was_taken) for h in hours]


def test_without_a_history_pools_are_alike_and_older_nodes_likelier_to_stay() -> None:
    known = pool_survival([], NOW, ["a", "b"])
    assert known.survives("a", 0.0, HOUR) == known.survives("b", 0.0, HOUR)
    assert known.survives("never heard of", 0.0, HOUR) == known.survives("a", 0.0, HOUR)
    by_age = [known.survives("a", age, HOUR) for age in (0.0, HOUR, 6 * HOUR, 24 * HOUR)]
    assert by_age == sorted(by_age)
    assert 0.8 < by_age[0] < 0.98


def test_pools_differ_by_the_lives_of_their_own_instances() -> None:
    known = pool_survival(
        lives("shaky", [0.5, 1.0, 0.7, 0.3] * 5) + lives("steady", [20.0] * 10, was_taken=False), NOW
    )
    shaky, steady = (known.survives(pool, HOUR, HOUR) for pool in ("shaky", "steady"))
    assert shaky < 0.5
    assert steady > 0.9
    assert shaky < known.survives("unknown", HOUR, HOUR) < steady


def test_survival_of_a_known_distribution_is_estimated() -> None:
    """A day of a pool whose nodes live five hours on average, whatever their age."""
    generator = np.random.default_rng(1)
    seen = []
    for _ in range(300):
        start = NOW - generator.uniform(0.0, 24.0) * HOUR
        end = start + generator.exponential(5.0) * HOUR
        seen.append(Life(pool="a", start=start, end=min(end, NOW), was_taken=end <= NOW))
    assert pool_survival(seen, NOW).survives("a", HOUR, 2 * HOUR) == pytest.approx(np.exp(-2 / 5), abs=0.07)


def test_a_node_that_is_not_spot_stays() -> None:
    known = pool_survival(lives("a", [0.1] * 20), NOW)
    assert known.survives(None, 0.0, 1000 * HOUR) == 1.0
    of_nodes = known.of_nodes([None, "a"])
    assert of_nodes.completion_probability(0, 0, 0.0, 1000 * HOUR) == pytest.approx(1.0)
    assert of_nodes.completion_probability(1, 0, 0.0, HOUR) == pytest.approx(known.survives("a", 0.0, HOUR))


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0.0, 2000.0), st.floats(0.0, 900.0), st.booleans()),
        max_size=30,
    )
)
@settings(deadline=None, max_examples=50)
def test_survival_is_a_falling_probability_for_any_lives(rows) -> None:
    seen = [
        Life(pool=pool, start=NOW - begin * HOUR, end=NOW - (begin - lasted) * HOUR, was_taken=taken)
        for pool, begin, lasted, taken in rows
    ]
    known = pool_survival(seen, NOW, ["a"])
    course = [known.survives("a", HOUR, during) for during in (60.0, HOUR, 10 * HOUR, 200 * HOUR)]
    assert all(0.0 <= value <= 1.0 for value in course)
    assert course == sorted(course, reverse=True)
