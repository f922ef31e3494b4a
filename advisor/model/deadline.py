"""The time by which a user wants a job to be done: ``--comment=by=18:00``. Pure."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

_WORD: Final = re.compile(r"(?:^|[\s,;])by=([0-9A-Za-z:+.-]{1,32})(?=$|[\s,;])", re.IGNORECASE)
_SPAN: Final = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)(d|h|min|m)", re.IGNORECASE)
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})")
_SECONDS: Final = {"d": 86_400.0, "h": 3_600.0, "min": 60.0, "m": 60.0}
_DAY: Final = 86_400.0
HOW_TO_WRITE: Final = "by=18:00, by=2026-12-24T18:00 or by=+3h"


def deadline_of(comment: str | None, submit_time: float, utc_offset_seconds: float) -> float | None:
    """The time that a comment names after ``by=``.

    Args:
        submit_time: Epoch seconds; a time of day is the next one after it, a span counts from it.
        utc_offset_seconds: Offset of the users' clock from UTC.

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
        here = submit_time + utc_offset_seconds
        found_time = here - here % _DAY + 3_600.0 * hour + 60.0 * minute
        return found_time + (_DAY if found_time <= here else 0.0) - utc_offset_seconds
    return _date(word, utc_offset_seconds)


def span_seconds(text: str) -> float:
    """A span of time such as ``3h``, ``1.5d`` or ``90min`` in seconds; NaN where it is none."""
    span = _SPAN.fullmatch(text)
    return math.nan if span is None else float(span[1]) * _SECONDS[span[2].lower()]


def _date(word: str, utc_offset_seconds: float) -> float:
    try:
        named = datetime.fromisoformat(word.upper())
    except ValueError:
        return math.nan
    if named.tzinfo is not None:
        return named.timestamp()
    return named.replace(tzinfo=UTC).timestamp() - utc_offset_seconds
