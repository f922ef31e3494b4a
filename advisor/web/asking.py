"""What may be asked in an address, and its bounds."""

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
    """Epoch seconds of ``since``.

    Raises
    ------
    RefusedError
        No time, or longer ago than pages go back.
    """
    try:
        found = parse_since(text, now)
    except BadInput as error:
        raise RefusedError(400, f"since: {error.what}. {error.mend}") from None
    if now - found > MAX_DAYS * 86_400.0:
        raise RefusedError(400, f"since: pages go back {MAX_DAYS} days; the commands go further")
    return found


def limit_of(text: str) -> int:
    """Rows of a page; empty: as many as is usual."""
    number = whole(text, "limit", MAX_ROWS)
    return _ROWS if number is None else number


def job_id_of(text: str) -> JobId | None:
    """A job as Slurm writes it; empty: any.

    Raises
    ------
    RefusedError
        It is not one.
    """
    if not text.strip():
        return None
    try:
        return parse_job_id(text, where="job")
    except BadInput as error:
        raise RefusedError(400, f"job: {error.what}. {error.mend}") from None


def whole(text: str, name: str, most: int) -> int | None:
    """A number from 1 on; None where nothing is asked.

    Raises
    ------
    RefusedError
        Something else.
    """
    word = text.strip()
    if not word:
        return None
    if not (word.isascii() and word.isdecimal() and len(word) <= 19 and 1 <= int(word) <= most):
        raise RefusedError(400, f"{name} is a whole number from 1 to {most:,}")
    return int(word)


def word_of(text: str, name: str) -> str | None:
    """A name to look for; empty: any.

    Raises
    ------
    RefusedError
        Longer than a name is, or not printable.
    """
    word = text.strip()
    if len(word) > _WORD or not word.isprintable():
        raise RefusedError(400, f"{name} is a name of at most {_WORD} characters")
    return word or None


def placement_of(text: str) -> Placement | None:
    """A placement; empty: any.

    Raises
    ------
    RefusedError
        There is none such.
    """
    if not text.strip():
        return None
    try:
        return Placement(text.strip())
    except ValueError:
        known = " or ".join(placement.value for placement in Placement)
        raise RefusedError(400, f"placement is {known}") from None


def before_of(text: str) -> tuple[float, str] | None:
    """Where the page before ended, as :func:`before_text` wrote it.

    Raises
    ------
    RefusedError
        It did not.
    """
    if not text:
        return None
    seconds, tilde, advice_id = text.partition("~")
    try:
        time = float(seconds)
    except ValueError:
        time = math.nan
    if not (tilde and math.isfinite(time) and len(advice_id) <= 100 and advice_id.isprintable()):
        raise RefusedError(400, "before is where a page ended: take the link to the older ones")
    return time, advice_id


def before_text(time: float, advice_id: str) -> str:
    """Where a page ends."""
    return f"{time!r}~{advice_id}"
