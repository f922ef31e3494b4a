"""Periods of a budget, in words and on the calendar of UTC."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from advisor.model.job import payers_of
from advisor.model.periods import (
    Period,
    comes_again,
    payer_words,
    period_days,
    period_name,
    period_now,
    period_span,
    period_usd,
)

DAY = 86_400.0
ONCE = "2026-10-01T08:00 until 2026-12-01"
KNOWN = (
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "14d",
    "91d from 2026-09-28",
    "quarter from 2026-10-15",
    ONCE,
)


def at(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("period", "begin", "end"),
    [
        ("day", "2026-11-26", "2026-11-27"),
        ("week", "2026-11-23", "2026-11-30"),
        ("month", "2026-11-01", "2026-12-01"),
        ("month from 2020-01-15", "2026-11-15", "2026-12-15"),
        ("quarter", "2026-10-01", "2027-01-01"),
        ("quarter from 2026-09-28", "2026-09-28", "2026-12-28"),
        ("quarter from 2030-02-10", "2026-11-10", "2027-02-10"),
        ("year from 2019-07-01", "2026-07-01", "2027-07-01"),
        ("7d", "2026-11-23", "2026-11-30"),
        ("91d from 2026-09-28", "2026-09-28", "2026-12-28"),
        ("14d from 2026-11-27", "2026-11-13", "2026-11-27"),
        (ONCE, "2026-10-01 08:00", "2026-12-01"),
    ],
)
def test_the_period_that_a_time_is_in(period: str, begin: str, end: str) -> None:
    assert period_span(at("2026-11-26 13:00"), period) == (at(begin), at(end))


@given(time=st.floats(0.0, at("2100-01-01")), period=st.sampled_from(KNOWN))
def test_periods_follow_one_another(time: float, period: str) -> None:
    begin, end = period_span(time, period)
    assert begin <= time < end
    assert period_span(end, period)[0] == end
    assert period_span(begin, period) == (begin, end)
    assert (end - begin) / DAY == pytest.approx(period_days(period), rel=0.11)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fortnight", "is no period"),
        ("0d", "is no period"),
        ("1000d", "is no period"),
        ("month from 2026-02-31", "there is no day 2026-02-31"),
        ("month from 2026-01-31", "one of the first 28 days"),
        ("month from tomorrow", "is no period"),
        ("2026-12-01 until 2026-11-31", "is no time"),
        ("2026-12-01 until 2026-12-01", "2026-12-01 is not after 2026-12-01"),
        ("2026-12-01 until", "is no period"),
    ],
)
def test_what_is_no_period_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        TypeAdapter(Period).validate_python(text)


def test_a_period_that_comes_once_has_money_once() -> None:
    begin, end = period_span(at("2026-11-26"), ONCE)
    given = [period_usd(5.0, time, ONCE) for time in (begin - 1.0, begin, end - 1.0, end)]
    assert given == [0.0, 5.0, 5.0, 0.0]
    assert period_usd(5.0, end, "month") == 5.0
    assert comes_again("month")
    assert not comes_again(ONCE)
    assert period_name(ONCE) == "period"


def test_words() -> None:
    assert [period_now(period) for period in ("day", "month", "quarter from 2026-10-15", "14d")] == [
        "today",
        "this month",
        "this quarter",
        "these 14 days",
    ]
    payers = payers_of("chem", "ann")
    assert [payer_words(payer) for payer in ("", *payers, "*", "user *")] == [
        "the site",
        "account chem",
        "user ann",
        "any other account",
        "any other user",
    ]
    assert payers_of(None, None) == ()
