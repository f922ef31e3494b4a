"""``--since``: how long ago, or when."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from advisor.model.errors import BadInput

_AGO: Final = re.compile(r"(\d{1,6})\s*([smhdw])\Z")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_since(text: str, now: float) -> float:
    """Epoch seconds of ``30d``, ``12h``, ``90m``, ``2026-11-21`` or ``2026-11-21T06:00`` (local time).

    Parameters
    ----------
    text : str
        As typed.
    now : float
        Epoch seconds, for the first form.

    Raises
    ------
    BadInput
        Neither form.
    """
    if match := _AGO.match(text.strip()):
        return now - int(match[1]) * _SECONDS[match[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadInput(
            f"{text!r} is no time", where="--since", mend="Write it like 30d, 12h or 2026-11-21"
        ) from None


def clock_text(seconds: float) -> str:
    """A time for people, local, to the second."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
