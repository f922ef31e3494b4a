"""Raising waiting jobs as little as possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from advisor.decide.portfolio.job_order import raising_factors

PRIORITIES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=20)


@given(jobs=PRIORITIES, floor=st.integers(0, 10**6))
def test_the_order_holds_and_nobody_is_lowered(jobs: list[tuple[int, int]], floor: int) -> None:
    own, present = [job[0] for job in jobs], [job[1] for job in jobs]
    factors = raising_factors(own, present, floor)
    totals = [priority + factor for priority, factor in zip(own, factors, strict=True)]
    assert min(factors) >= 0
    assert all(before > after for before, after in zip(totals, [*totals[1:], floor], strict=True))
    assert raising_factors(own, factors, floor) == factors  # nothing is changed twice


@given(jobs=PRIORITIES)
def test_jobs_in_order_are_left_as_they_are(jobs: list[tuple[int, int]]) -> None:
    own = sorted({job[0] + 1 for job in jobs}, reverse=True)
    assert raising_factors(own, [0] * len(own), floor=0) == [0] * len(own)


def test_a_lowered_job_is_raised() -> None:
    assert raising_factors([10], [-5], floor=3) == [0]


def test_no_job_no_factor() -> None:
    assert raising_factors([], [], floor=100) == []
