"""The time by which a user wants a job to be done: ``--comment=by=18:00``."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, tzinfo
from typing import Final

_WORD: Final = re.compile(r"(?:^|[\s,;])by=([^\s,;]*)", re.IGNORECASE)
_SPAN: Final = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)(d|h|min|m)", re.IGNORECASE | re.ASCII)
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})")
_SECONDS: Final = {"d": 86_400.0, "h": 3_600.0, "min": 60.0, "m": 60.0}
HOW_TO_WRITE: Final = "by=18:00, by=2026-12-24T18:00 or by=+3h"


def deadline_of(comment: str | None, submit_time: float, zone: tzinfo | None) -> float | None:
    """The time that a comment names after ``by=``.

    Args:
        submit_time: Epoch seconds; a time of day is the next one after it, a span counts from it.
        zone: The users' time zone; None: that of the host.

    Returns:
        Epoch seconds; NaN where it is no time; None where no ``by=`` is there.
    """
    if not comment or (found := _WORD.search(comment)) is None:
        return None
    word = found[1]
    if word.startswith("+"):
        return submit_time + span_seconds(word[1:])
    if (clock := _CLOCK.fullmatch(word)) is not None:
        hour, minute = int(clock[1]), int(clock[2])
        if hour > 23 or minute > 59:
            return math.nan
        here = datetime.fromtimestamp(submit_time, zone)
        named = here.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
        if named.timestamp() <= submit_time:
            named = named.replace(fold=1)  # in the hour that comes twice when clocks are set back
        if named.timestamp() <= submit_time:
            named += timedelta(days=1)  # by the clock, also where that changes meanwhile
        return named.timestamp()
    return _date(word, zone)


def span_seconds(text: str) -> float:
    """A span of time such as ``3h``, ``1.5d`` or ``90min`` in seconds; NaN where it is none."""
    span = _SPAN.fullmatch(text)
    return math.nan if span is None else float(span[1]) * _SECONDS[span[2].lower()]


def _date(word: str, zone: tzinfo | None) -> float:
    try:
        named = datetime.fromisoformat(word.upper())
        seconds = (named if named.tzinfo is not None else named.replace(tzinfo=zone)).timestamp()
        datetime.fromtimestamp(seconds, zone)  # it is shown to the user, whose calendar ends in 9999
    except (ValueError, OverflowError, OSError):
        return math.nan
    return seconds
