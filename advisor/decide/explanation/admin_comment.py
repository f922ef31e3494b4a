"""The AdminComment read back from Slurm: the advice of a job, as the job carries it.

It is written inside ``sbatch`` by :func:`advisor.decide.explanation.reply_texts.admin_comment`. The loops of
`advisor control` know by it what a live job was advised, and sacct gives it back for ended ones. What is read
is data from outside: an operator may have changed it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from advisor.decide.explanation.reply_texts import ADMIN_COMMENT_LIMIT, COMMENT_VERSION
from advisor.model.advice import Hedge, HedgeKind, TimeLimit

_MAX_LIMIT: Final = 60 * 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAdvice:
    """The content of an AdminComment.

    Attributes:
        advice_id: Finds the whole advice in the ledger.
        placement, mode, reason, size: Those of :class:`~advisor.model.advice.Advice`; the reason is that of
            the decisive answer.
        time_limit: The user's limit, and the limit to which it was raised.
        origin: The partition it was moved from, unless it was the first on-premise one.
        numbers: The advice's numbers by name, in its units (``advisor.decide.explanation.phrases.UNITS``,
            else seconds), to four digits or whole.
    """

    advice_id: str
    placement: str
    mode: str
    reason: str
    size: str
    capacity: str | None = None
    detail: str = ""
    time_limit: TimeLimit | None = None
    hedge: Hedge | None = None
    origin: str | None = None
    numbers: dict[str, float] = field(default_factory=dict)

    def users_limit(self, limit_seconds: float | None) -> float | None:
        """The time limit that the user set, given Slurm's present one; that one, if it was changed since."""
        raised = self.time_limit
        if raised is None or limit_seconds is None:
            return limit_seconds
        is_ours = raised.asked_seconds < limit_seconds <= raised.given_seconds
        return raised.asked_seconds if is_ours else limit_seconds


@lru_cache(maxsize=4096)
def parse_admin_comment(text: str | None) -> RecordedAdvice | None:
    """Read an AdminComment back; None for anything that is not one of ours (data from outside).

    The last ones are kept: every poll shows the same comments again. The record is not to be changed.
    """
    if not text or len(text) > 4 * ADMIN_COMMENT_LIMIT:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("burst_advisor") != COMMENT_VERSION:
        return None
    if not isinstance(found.get("id"), str) or not found["id"]:
        return None
    words = {key: found[name] for key, name in _KEYS.items() if isinstance(found.get(name), str)}
    capacity, origin = found.get("on"), found.get("from")
    return RecordedAdvice(
        advice_id=found["id"],
        placement=words.get("placement", ""),
        mode=words.get("mode", ""),
        reason=words.get("reason", ""),
        size=words.get("size", "unknown"),
        capacity=capacity if isinstance(capacity, str) else None,
        detail=words.get("detail", ""),
        time_limit=_parsed_limit(found.get("limit")),
        hedge=_parsed_hedge(found.get("hedge")),
        origin=origin if isinstance(origin, str) else None,
        numbers=_parsed_numbers(found.get("n")),
    )


_KEYS: Final = {"placement": "to", "mode": "mode", "reason": "why", "size": "size", "detail": "d"}


def _parsed_limit(found: object) -> TimeLimit | None:
    match found:
        case [int() as asked, int() as given] if 0 < asked < given < _MAX_LIMIT:
            return TimeLimit(asked_seconds=float(asked), given_seconds=float(given))
    return None


def _parsed_hedge(found: object) -> Hedge | None:
    match found:
        case [str() as kind, float() | int() | None as stop] if kind in set(HedgeKind):
            seconds = math.inf if stop is None else float(stop)
            return Hedge(kind=HedgeKind(kind), stop_seconds=seconds) if seconds > 0.0 else None
    return None


def _parsed_numbers(found: object) -> dict[str, float]:
    if not isinstance(found, dict):
        return {}
    return {
        str(name): float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    }
