"""Which of two numbers is the run limit."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.lsf.answers import read_has_absolute_limits
from advisor.lsf.run_limit import choose_run_limit

minutes = st.integers(1, 10 * 366 * 1440)


@pytest.mark.parametrize(
    ("one", "other", "run", "limit"),
    [  # pairs that were seen in records, the first six with a limit that is known from elsewhere
        (43200, 0, 40368, 43200.0),
        (3600, 16, 119, 3600.0),
        (432000, 64, 60, 432000.0),
        (2419200, 33554432, None, 2419200.0),
        (-1, 4194304, 3, None),
        (-1, 64, 240307, None),
        (-1, 0, 12345, None),
        (0, 0, 839, None),
    ],
)
def test_pairs_that_lsf_has_written(one: int, other: int, run: float | None, limit: float | None) -> None:
    assert choose_run_limit(one, other, run) == limit
    assert choose_run_limit(other, one, run) == limit  # whatever the order


@given(limit_minutes=minutes, bits=st.sets(st.integers(0, 30), max_size=3), limit_first=st.booleans())
def test_up_to_three_flags_are_never_taken_for_a_limit(
    limit_minutes: int, bits: set[int], *, limit_first: bool
) -> None:
    limit, flags = limit_minutes * 60, sum(1 << bit for bit in bits)
    pair = (limit, flags) if limit_first else (flags, limit)
    assert choose_run_limit(*pair, None) == limit
    assert choose_run_limit(-1, flags, None) is None
    assert choose_run_limit(flags, 0, None) is None


def test_no_three_flags_are_a_multiple_of_sixty() -> None:
    for count in (1, 2, 3):
        for bits in itertools.combinations(range(32), count):
            assert sum(1 << bit for bit in bits) % 60


def test_where_it_cannot_be_told_it_is_unknown() -> None:
    assert choose_run_limit(3600, 7200, None) is None
    assert choose_run_limit(90, 0, None) is None  # not whole minutes
    assert choose_run_limit(10**12, 0, None) is None
    assert choose_run_limit(3600, 3600, None) == 3600.0  # whichever it is


def test_a_limit_far_below_the_run_is_none_in_seconds() -> None:
    """120 minutes, were they written as minutes, would be taken for two minutes."""
    assert choose_run_limit(120, 0, 7000.0) is None
    assert choose_run_limit(120, 0, 700.0) == 120.0


@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_the_order_never_matters(one: int, other: int) -> None:
    assert choose_run_limit(one, other, None) == choose_run_limit(other, one, None)


def test_absolute_limits_are_read_of_bparams() -> None:
    said = "System default queues:\n    DEFAULT_QUEUE = normal\n\nRun limits:\n    ABS_RUNLIMIT = {}\n"
    assert read_has_absolute_limits(said.format("Y"))
    assert not read_has_absolute_limits(said.format("N"))
    assert not read_has_absolute_limits("    MAX_USER_PRIORITY = 100\n")
