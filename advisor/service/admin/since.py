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


def moment_text(seconds: float) -> str:
    """A time for people, local, to the second, where its zone is named beside it (:func:`zone_text`)."""
    return _local(seconds).strftime("%Y-%m-%d %H:%M:%S")


def clock_text(seconds: float) -> str:
    """A time for people, local, to the second, with the zone's short name: ``2026-11-21 06:00:00 CET``."""
    return f"{moment_text(seconds)} {_local(seconds).tzname()}"


def zone_text(seconds: float | None = None) -> str:
    """The zone that times are shown in, as it is at that moment (now): ``CET (UTC+01:00)``."""
    moment = datetime.now(UTC).astimezone() if seconds is None else _local(seconds)
    name, offset = str(moment.tzname()), moment.strftime("%z")
    away = f"UTC{offset[:3]}:{offset[3:5]}"
    return "UTC" if name == "UTC" else away if name[:1] in "+-" else f"{name} ({away})"


def _local(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).astimezone()
