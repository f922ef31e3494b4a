"""Read the parameters of addresses, within limits; empty means any, and RefusedError names what is wrong."""

from __future__ import annotations

import math
from typing import Final

from advisor.model.advice import Placement
from advisor.model.errors import BadInput
from advisor.model.job_id import JobId, parse_job_id
from advisor.service.admin.since import parse_since
from advisor.web.answers import RefusedError

MAX_DAYS: Final = 400
MAX_ROWS: Final = 200
_ROWS: Final = 50
_WORD: Final = 80


def since_of(text: str, now: float) -> float:
    """Epoch seconds of ``since``; pages go back 400 days."""
    try:
        found = parse_since(text, now)
    except BadInput as error:
        raise RefusedError(400, f"since: {error.what}. {error.mend}") from None
    if now - found > MAX_DAYS * 86_400.0:
        raise RefusedError(400, f"since: pages go back {MAX_DAYS} days; use the commands for older ones")
    return found


def limit_of(text: str) -> int:
    """Rows of a page; empty: 50."""
    number = whole(text, "limit", MAX_ROWS)
    return _ROWS if number is None else number


def job_id_of(text: str) -> JobId | None:
    """A job as Slurm writes it; empty: any."""
    if not text.strip():
        return None
    try:
        return parse_job_id(text, where="job")
    except BadInput as error:
        raise RefusedError(400, f"job: {error.what}. {error.mend}") from None


def whole(text: str, name: str, most: int) -> int | None:
    """A whole number from 1 to `most`; empty: None."""
    word = text.strip()
    if not word:
        return None
    if not (word.isascii() and word.isdecimal() and len(word) <= 19 and 1 <= int(word) <= most):
        raise RefusedError(400, f"{name} must be a whole number from 1 to {most:,}")
    return int(word)


def word_of(text: str, name: str) -> str | None:
    """A name of at most 80 printable characters; empty: any."""
    word = text.strip()
    if len(word) > _WORD or not word.isprintable():
        raise RefusedError(400, f"{name} must be a name of at most {_WORD} printable characters")
    return word or None


def placement_of(text: str) -> Placement | None:
    """A placement; empty: any."""
    if not text.strip():
        return None
    try:
        return Placement(text.strip())
    except ValueError:
        known = " or ".join(placement.value for placement in Placement)
        raise RefusedError(400, f"placement must be {known}") from None


def before_of(text: str) -> tuple[float, str] | None:
    """Time and advice id at which the previous page ended, written by :func:`before_text`."""
    if not text:
        return None
    seconds, tilde, advice_id = text.partition("~")
    try:
        time = float(seconds)
    except ValueError:
        time = math.nan
    if not (tilde and math.isfinite(time) and len(advice_id) <= 100 and advice_id.isprintable()):
        raise RefusedError(400, "before cannot be read: follow the link to the older decisions")
    return time, advice_id


def before_text(time: float, advice_id: str) -> str:
    """Value of ``before`` for the page after one that ends here."""
    return f"{time!r}~{advice_id}"
