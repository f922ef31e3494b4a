"""Advance reservations (``brsvadd``), as ``brsvs -w`` shows them. Pure.

Sources: IBM, "Viewing advance reservation information" (Spectrum LSF 10.1), and answers of brsvs that others
have published: releases differ in the blanks around strokes and in whether the year is said.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Final

from advisor.model.snapshot import Reservation

_STROKE: Final = re.compile(r"[ \t]*/[ \t]*")
_HOST: Final = re.compile(r"(?<!\S)([A-Za-z0-9][A-Za-z0-9_.-]*):(?:[0-9]{1,9}|-)/([0-9]{1,9})(?!\S)")
_MOMENT: Final = r"((?:[0-9]{4}/)?[0-9]{1,2}/[0-9]{1,2}/[0-9]{1,2}/[0-9]{1,2})"
_ONCE: Final = re.compile(rf"(?<!\S){_MOMENT}-{_MOMENT}(?!\S)")
_AGAIN: Final = re.compile(r"(?<!\S)([0-9]{1,2}(?::[0-9]{1,2}){0,2})-([0-9]{1,2}(?::[0-9]{1,2}){0,2})\s*\*")
_DAYS_AHEAD: Final = 7


def read_reservations(text: str, now: float) -> tuple[Reservation, ...]:
    """The reservations that have not ended; of one that recurs, those of the next seven days.

    Times are those of this host's zone. A row that cannot be read is left out.

    Args:
        now: Epoch seconds.
    """
    found: list[Reservation] = []
    for block in _blocks(text):
        hosts = {name: int(slots) for name, slots in _HOST.findall(block)}
        if not hosts:
            continue
        name = block.split(maxsplit=1)[0]
        found += (
            Reservation(
                name=name, begin=begin, end=end, nodes=frozenset(hosts), processors=sum(hosts.values())
            )
            for begin, end in _windows(block, now)
            if end > now
        )
    return tuple(found)


def _blocks(text: str) -> Iterator[str]:
    """The rows, each with those that go on with it."""
    block = ""
    for line in text.splitlines()[1:]:
        if line[:1].strip():
            yield from [block] if block else []
            block = ""
        block += " " * bool(block) + _STROKE.sub("/", line)
    yield from [block] if block else []


def _windows(block: str, now: float) -> Iterator[tuple[float, float]]:
    try:
        if (once := _ONCE.search(block)) is not None:
            yield _once(once[1], once[2], now)
        elif (again := _AGAIN.search(block)) is not None:
            yield from _again(again[1], again[2], now)
    except (ValueError, OverflowError):  # a year that no clock has
        return


def _once(begin: str, end: str, now: float) -> tuple[float, float]:
    """Without a year it is the window that ends next."""
    first, last = ([int(word) for word in moment.split("/")] for moment in (begin, end))
    if len(first) == len(last) == 5:
        return _epoch(*first), _epoch(*last)
    first, last = first[-4:], last[-4:]
    this = time.localtime(now).tm_year
    windows = (
        (_epoch(year, *first), _epoch(year + (last < first), *last)) for year in range(this - 1, this + 2)
    )
    return next(window for window in windows if window[1] > now)


def _again(begin: str, end: str, now: float) -> Iterator[tuple[float, float]]:
    """``[day:]hour[:minute]``, 0 is Sunday; without a day it is on each."""
    first, last = _hours(begin), _hours(end)
    today = time.localtime(now)
    sunday = -((today.tm_wday + 1) % 7)
    days = range(-1, _DAYS_AHEAD) if len(first) == 2 else (sunday - 7, sunday, sunday + 7)
    length = (last[0] - first[0]) % 7 if len(first) == 3 else int(last < first)
    for day in days:
        opens = first[0] if len(first) == 3 else 0
        begins, ends = (today.tm_mday + day + opens + more for more in (0, length))
        yield (
            _epoch(today.tm_year, today.tm_mon, begins, *first[-2:]),
            _epoch(today.tm_year, today.tm_mon, ends, *last[-2:]),
        )


def _hours(moment: str) -> list[int]:
    """Hour and minute, before them the day of the week where it is said."""
    words = [int(word) for word in moment.split(":")]
    return words if len(words) > 1 else [*words, 0]


def _epoch(year: int, month: int, day: int, hour: int, minute: int) -> float:
    """Of a wall clock; days beyond the month's last are in the next one."""
    return time.mktime((year, month, day, hour, minute, 0, 0, 0, -1))
