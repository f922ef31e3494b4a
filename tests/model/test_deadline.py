"""The time that a comment names."""

from __future__ import annotations

import math
from datetime import UTC, datetime

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
    assert deadline_of(comment, NOON, 0.0) == pytest.approx(NOON + hours * HOUR)


def test_the_clock_is_the_users() -> None:
    assert deadline_of("by=18:00", NOON, 2 * HOUR) == pytest.approx(NOON + 4 * HOUR)
    assert deadline_of("by=2026-11-25T06:00", NOON, 2 * HOUR) == pytest.approx(NOON + 16 * HOUR)


@pytest.mark.parametrize("comment", ["by=soon", "by=25:00", "by=12:75", "by=+3y", "by=2026-13-01T00:00"])
def test_what_is_no_time(comment: str) -> None:
    found = deadline_of(comment, NOON, 0.0)
    assert found is not None
    assert math.isnan(found)


@pytest.mark.parametrize("comment", [None, "", "standby=18:00", "bye", "by =18:00", "by="])
def test_a_comment_without_it(comment: str | None) -> None:
    assert deadline_of(comment, NOON, 0.0) is None
