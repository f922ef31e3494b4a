"""A budget of a calendar period (UTC) as tokens: what may be committed now, from what was spent on each day.

The budget accrues evenly, and some of it is there ahead. What is not spent is kept, up to the budget of one
period, and no calendar period ever spends more than its budget. The level follows from the days'
spending alone, so that it is known again as soon as the spending is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

from advisor.model.bill import day_of

Period: TypeAlias = Literal["day", "week", "month"]

_DAY: Final = 86_400.0
_MAX_DAYS: Final = 70.0
"""What accrued and was spent before is taken for equal."""


def period_span(time: float, period: Period) -> tuple[float, float]:
    """Begin and end of the day, week (from Monday) or month of UTC that a time is in, epoch seconds."""
    day = datetime.fromtimestamp(time, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return day.timestamp(), (day + timedelta(days=1)).timestamp()
    if period == "week":
        monday = day - timedelta(days=day.weekday())
        return monday.timestamp(), (monday + timedelta(days=7)).timestamp()
    first = day.replace(day=1)
    return first.timestamp(), (first + timedelta(days=32)).replace(day=1).timestamp()


def spent_in_period(spent_by_day: Mapping[str, float], now: float, period: Period) -> float:
    """US dollars spent since the present period began."""
    begin, _ = period_span(now, period)
    return sum(usd for day, usd in spent_by_day.items() if day_of(begin) <= day <= day_of(now))


def tokens_at_hand(
    *,
    usd: float,
    period: Period,
    since: float,
    now: float,
    spent_by_day: Mapping[str, float],
    promised: float,
    ahead: float = 0.0,
) -> float:
    """US dollars that may be committed now; below 0 where more was spent than was there.

    Args:
        usd: The budget of one period.
        since: When the budget began to accrue, epoch seconds.
        now: Epoch seconds.
        spent_by_day: By day of UTC (``2026-11-23``), US dollars.
        promised: What starts under way may still cost, US dollars.
        ahead: What is there before it accrues, US dollars.
    """
    level, time = ahead, max(since, now - _MAX_DAYS * _DAY)
    while time < now:
        begin, end = period_span(time, period)
        _, midnight = period_span(time, "day")
        until = min(now, midnight)
        level = min(usd, level + usd * (until - time) / (end - begin)) - spent_by_day.get(day_of(time), 0.0)
        time = until
    left = usd - spent_in_period(spent_by_day, now, period)
    return min(level, left) - promised
