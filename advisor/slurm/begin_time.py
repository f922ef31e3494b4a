"""Read the times that ``sbatch --begin`` takes, for `advisor advise`."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Final

_LATER: Final = re.compile(r"now\s*\+\s*(\d{1,9})\s*([a-z]*)\Z")
_SECONDS: Final = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400, "weeks": 604_800}
_HOURS: Final = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(am|pm)?\Z")
_ISO: Final = re.compile(r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})(?:t(?P<clock>.+))?\Z")
_AMERICAN: Final = re.compile(
    r"(?P<month>\d{1,2})([/.])(?P<day>\d{1,2})(?:\2(?P<year>\d{2,4}))?(?:-(?P<clock>.+))?\Z"
)
_DIGITS: Final = re.compile(r"(?P<month>\d{2})(?P<day>\d{2})(?P<year>\d{2})?(?:-(?P<clock>.+))?\Z")


def begin_time(text: str, now: float) -> int:
    """Epoch seconds of a time as sbatch takes it, in this host's time zone; `now` in epoch seconds.

    ``now+1hour``, ``16:00``, ``teatime``, ``tomorrow``, ``2026-11-30T08:00``, ``11/30/26-08:00``, ``113026``.
    A time of day that has passed means tomorrow.

    Raises:
        ValueError: The text is no such time.
    """
    word = text.strip().lower()
    moment = datetime.fromtimestamp(now).astimezone()
    if word in {"now", "today"}:
        return int(now)
    if match := _LATER.match(word):
        return int(now) + int(match[1]) * _unit(match[2])
    if word in _HOURS:
        return _next(moment, _HOURS[word], 0, 0)
    if word == "tomorrow":
        return _on(moment.date() + timedelta(days=1), "")
    if _CLOCK.match(word):
        return _next(moment, *_clock(word))
    for pattern in (_ISO, _AMERICAN, _DIGITS):
        if match := pattern.match(word):
            year = int(match["year"] or moment.year)
            day = date(year + 2000 if year < 100 else year, int(match["month"]), int(match["day"]))
            if not match["year"] and day < moment.date():
                day = day.replace(year=day.year + 1)
            return _on(day, match["clock"] or "")
    raise ValueError(text)


def _unit(word: str) -> int:
    if not word:
        return 1
    for name, seconds in _SECONDS.items():
        if name.startswith(word):
            return seconds
    raise ValueError(word)


def _clock(word: str) -> tuple[int, int, int]:
    match = _CLOCK.match(word)
    if match is None:
        raise ValueError(word)
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if match[4]:
        if not 1 <= hour <= 12:
            raise ValueError(word)
        hour = hour % 12 + (12 if match[4] == "pm" else 0)
    return hour, minute, second


def _next(moment: datetime, hour: int, minute: int, second: int) -> int:
    """Epoch seconds of the next moment at which the local clock shows this time."""
    found = _at(moment.date(), hour, minute, second)
    return (
        found if found > moment.timestamp() else _at(moment.date() + timedelta(days=1), hour, minute, second)
    )


def _on(day: date, clock: str) -> int:
    return _at(day, *_clock(clock)) if clock else _at(day, 0, 0, 0)


def _at(day: date, hour: int, minute: int, second: int) -> int:
    return int(datetime(day.year, day.month, day.day, hour, minute, second).astimezone().timestamp())
