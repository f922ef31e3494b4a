"""Read ``--since``, and write times for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from advisor.model.errors import BadInput

_AGO: Final = re.compile(r"(\d{1,6})\s*([smhdw])\Z")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_since(text: str, now: float) -> float:
    """Epoch seconds of ``30d``, ``12h``, ``90m``, ``2026-11-21`` or ``2026-11-21T06:00`` (local time).

    Raises BadInput for other texts. `now` is in epoch seconds.
    """
    match = _AGO.match(text.strip())
    try:
        if match:
            since = now - int(match[1]) * _SECONDS[match[2]]
        else:
            since = datetime.fromisoformat(text.strip()).timestamp()
        _local(since)  # it is shown
    except (ValueError, OverflowError, OSError):
        raise BadInput(
            f"{text!r} is not a time", where="--since", mend="Write it like 30d, 12h or 2026-11-21"
        ) from None
    return since


def moment_text(seconds: float) -> str:
    """A local time to the second; name its zone beside it by :func:`zone_text`."""
    return _local(seconds).strftime("%Y-%m-%d %H:%M:%S")


def clock_text(seconds: float) -> str:
    """A local time to the second with its zone's short name: ``2026-11-21 06:00:00 CET``."""
    return f"{moment_text(seconds)} {_local(seconds).tzname()}"


def zone_text() -> str:
    """The local time zone now: ``CET (UTC+01:00)``."""
    moment = datetime.now(UTC).astimezone()
    name, offset = str(moment.tzname()), moment.strftime("%z")
    away = f"UTC{offset[:3]}:{offset[3:5]}"
    return "UTC" if name == "UTC" else away if name[:1] in "+-" else f"{name} ({away})"


def _local(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).astimezone()
