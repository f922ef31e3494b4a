"""Periods of a budget, and who pays from it: the words that settings say them in, and the calendar of UTC."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Final, NamedTuple, TypeAlias

from pydantic import AfterValidator

ANY: Final = "*"
"""Stands for each account, or each user, that is not named."""
USER: Final = "user "
"""Before the name of a user, where accounts and users are in one table: no account's name has a space."""
FORM: Final = (
    "`day`, `week`, `month`, `quarter`, `year` or a number of days such as `14d`; it may say where it "
    "begins: `14d from 2026-09-28`; or two days, for money that is there once: `2026-10-01 until 2027-04-01`"
)
"""What a period is, for the admin."""
_FORM: Final = re.compile(
    r"(?P<unit>day|week|month|quarter|year|(?P<days>[1-9]\d{0,2})d)( from (?P<begin>\d{4}-\d\d-\d\d))?"
    r"|(?P<first>{0}) until (?P<end>{0})".replace("{0}", r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?)?")
)
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_MEAN_MONTH: Final = 365.25 / 12.0
_MONDAY: Final = date(1970, 1, 5)
_NEW_YEAR: Final = date(1970, 1, 1)
_DAY_SECONDS: Final = 86_400.0
_MAX_DAY: Final = 28  # every month has it


class _Calendar(NamedTuple):
    """Periods of so many days, or of so many months, counted from a date in both directions."""

    days: int
    months: int
    begin: date


class _Once(NamedTuple):
    """The one period that has money, epoch seconds; those of the same length before and after have none."""

    begin: float
    end: float


def _checked(text: str) -> str:
    _calendar(text)
    return text


Period: TypeAlias = Annotated[str, AfterValidator(_checked)]
"""``day``, ``week``, ``month``, ``quarter``, ``year`` or days (``14d``), and where they begin (``91d from
2026-09-28``); or begin and end of the only one (``2026-10-01 until 2027-04-01``; ``2026-10-01T08:00``)."""


@lru_cache
def _calendar(period: str) -> _Calendar | _Once:
    match = _FORM.fullmatch(period)
    if match is None:
        raise ValueError("is no period")
    if match["first"] is not None:
        return _once(match["first"], match["end"])
    unit, begin = match["unit"], match["begin"]
    try:
        first = None if begin is None else date.fromisoformat(begin)
    except ValueError:
        raise ValueError(f"there is no day {begin}") from None
    if unit in _MONTHS:
        if first is not None and first.day > _MAX_DAY:
            raise ValueError(f"a {unit} must begin on one of the first {_MAX_DAY} days of a month")
        return _Calendar(0, _MONTHS[unit], first or _NEW_YEAR)
    days = {"day": 1, "week": 7}.get(unit) or int(match["days"])
    return _Calendar(days, 0, first or _MONDAY)


def _once(begin: str, end: str) -> _Once:
    try:
        first, last = (datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() for text in (begin, end))
    except ValueError:
        raise ValueError(f"{begin} or {end} is no time") from None
    if first >= last:
        raise ValueError(f"{end} is not after {begin}")
    return _Once(first, last)


def period_span(time: float, period: str) -> tuple[float, float]:
    """Begin and end of the period that a time is in, epoch seconds; midnights of UTC, unless it says a time.

    Weeks begin on Monday, quarters and years in January, and periods of days are counted from Monday 5
    January 1970, unless the period says where it begins.
    """
    calendar, day = _calendar(period), _NEW_YEAR + timedelta(days=time // _DAY_SECONDS)
    if isinstance(calendar, _Once):
        length = calendar.end - calendar.begin
        begin = calendar.begin + length * ((time - calendar.begin) // length)
        return begin, begin + length
    if calendar.days:
        first = day - timedelta(days=(day - calendar.begin).days % calendar.days)
        return _midnight(first), _midnight(first + timedelta(days=calendar.days))
    gone = 12 * (day.year - calendar.begin.year) + day.month - calendar.begin.month
    gone -= day.day < calendar.begin.day
    months = gone - gone % calendar.months
    return _midnight(_later(calendar.begin, months)), _midnight(
        _later(calendar.begin, months + calendar.months)
    )


def _later(first: date, months: int) -> date:
    whole = first.month - 1 + months
    return first.replace(year=first.year + whole // 12, month=whole % 12 + 1)


def _midnight(day: date) -> float:
    return (day - _NEW_YEAR).days * _DAY_SECONDS


def period_days(period: str) -> float:
    """Days of a period; of months, in the mean."""
    calendar = _calendar(period)
    if isinstance(calendar, _Once):
        return (calendar.end - calendar.begin) / _DAY_SECONDS
    return float(calendar.days) if calendar.days else calendar.months * _MEAN_MONTH


def period_usd(usd: float, time: float, period: str) -> float:
    """What a budget gives to the period that a time (epoch seconds) is in: ``usd``, or nothing after once."""
    calendar = _calendar(period)
    return 0.0 if isinstance(calendar, _Once) and not calendar.begin <= time < calendar.end else usd


def comes_again(period: str) -> bool:
    """Whether the next period has money, too."""
    return not isinstance(_calendar(period), _Once)


def period_name(period: str) -> str:
    """``month``, or ``14 days``: what follows *the next*; ``period`` for one that comes once."""
    if not comes_again(period):
        return "period"
    unit = period.partition(" ")[0]
    return f"{unit[:-1]} days" if unit[:-1].isdecimal() else unit


def period_now(period: str) -> str:
    """``today``, ``this month``, ``these 14 days``."""
    name = period_name(period)
    return "today" if name == "day" else f"these {name}" if name[0].isdecimal() else f"this {name}"


def user_payer(user: str) -> str:
    """The key of a user in a table that has accounts, too."""
    return USER + user


def user_name(payer: str) -> str:
    """The name of a user, from the key."""
    return payer.removeprefix(USER)


def is_user(payer: str) -> bool:
    """Whether a key is that of a user."""
    return payer.startswith(USER)


def any_of(payer: str) -> str:
    """The key that stands for a payer which is not named itself."""
    return USER + ANY if is_user(payer) else ANY


def payer_words(payer: str) -> str:
    """``the site``, ``account chem``, ``user ann``, ``any other user``."""
    if not payer:
        return "the site"
    name = payer if is_user(payer) else f"account {payer}"
    return f"any other {name.partition(' ')[0]}" if name.endswith(f" {ANY}") else name
