"""The time that a comment names."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from advisor.model.deadline import deadline_of

NOON = datetime(2026, 11, 24, 12, 0, tzinfo=UTC).timestamp()
HOUR = 3600.0


@pytest.mark.parametrize(
    ("comment", "hours"),
    [
        ("by=18:00", 6.0),
        ("by=9:30", 21.5),
        ("by=12:00", 24.0),
        ("paper, by=18:00; no-hedge", 6.0),
        ("BY=+3h", 3.0),
        ("by=+90min", 1.5),
        ("by=+1.5d", 36.0),
        ("by=2026-11-25T06:00", 18.0),
        ("by=2026-11-25T06:00:00+01:00", 17.0),
        ("by=2026-11-24t13:00", 1.0),
    ],
)
def test_times_of_day_dates_and_spans(comment: str, hours: float) -> None:
    assert deadline_of(comment, NOON, UTC) == pytest.approx(NOON + hours * HOUR)


def test_the_clock_is_the_users() -> None:
    assert deadline_of("by=18:00", NOON, ZoneInfo("Africa/Cairo")) == NOON + 4 * HOUR
    assert deadline_of("by=2026-11-25T06:00", NOON, ZoneInfo("Africa/Cairo")) == NOON + 16 * HOUR


def test_the_clock_is_the_hosts_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        found = [deadline_of(word, NOON, None) for word in ("by=18:00", "by=2026-07-01T18:00")]
    time.tzset()
    assert found == [NOON + 5 * HOUR, datetime(2026, 7, 1, 16, 0, tzinfo=UTC).timestamp()]


def test_the_clock_may_change_before_the_time() -> None:
    """Berlin's clocks went back an hour at 3:00 of 25 October, and forward at 2:00 of 29 March."""
    berlin = ZoneInfo("Europe/Berlin")
    evening = datetime(2026, 10, 24, 20, 0, tzinfo=berlin).timestamp()
    assert deadline_of("by=18:00", evening, berlin) == evening + 23 * HOUR
    assert deadline_of("by=08:00", evening, berlin) == evening + 13 * HOUR
    assert deadline_of("by=2026-10-25T08:00", evening, berlin) == evening + 13 * HOUR
    evening = datetime(2026, 3, 28, 20, 0, tzinfo=berlin).timestamp()
    assert deadline_of("by=08:00", evening, berlin) == evening + 11 * HOUR
    assert deadline_of("by=02:30", evening, berlin) == evening + 6.5 * HOUR  # there is no such time


def test_an_hour_that_comes_twice_is_the_next_one() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for fold in (0, 1):
        submitted = datetime(2026, 10, 25, 2, 10, fold=fold, tzinfo=berlin).timestamp()
        assert deadline_of("by=02:30", submitted, berlin) == submitted + 20.0 * 60.0
    submitted = datetime(2026, 10, 25, 2, 40, tzinfo=berlin).timestamp()
    assert deadline_of("by=02:30", submitted, berlin) == submitted + 50.0 * 60.0


def test_a_year_that_no_clock_has_is_no_time() -> None:
    found = deadline_of("by=0001-01-01T00:00", NOON, None)
    assert found is not None


@pytest.mark.parametrize(
    "comment",
    [
        *("by=soon", "by=25:00", "by=12:75", "by=+3y", "by=2026-13-01T00:00"),
        *("by=", "by=24/12/2026", 'by="18:00"', "by=" + "9" * 40, "by=18:00|no-hedge"),
        *("by=+10m\u0131n", "by=+10m\u0130n"),
        *("by=9999-12-31T23:59-12:00", "by=0001-01-01T00:00+14:00"),
    ],
)
def test_what_is_no_time(comment: str) -> None:
    found = deadline_of(comment, NOON, UTC)
    assert found is not None
    assert math.isnan(found)


@pytest.mark.parametrize("comment", [None, "", "standby=18:00", "bye", "by =18:00"])
def test_a_comment_without_it(comment: str | None) -> None:
    assert deadline_of(comment, NOON, UTC) is None
