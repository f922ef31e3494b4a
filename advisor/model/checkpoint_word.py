"""How often a job saves its work: ``--comment=checkpoint=10min``. Pure.

Its user says by this word that the job, when it is started again under its id, here or in the cloud, goes on
from what it saved last.
"""

from __future__ import annotations

import math
import re
from typing import Final

_WORD: Final = re.compile(r"(?:^|[\s,;])checkpoint=([^\s,;]{0,32})", re.IGNORECASE)
_SPAN: Final = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)(d|h|min|m)", re.IGNORECASE)
_SECONDS: Final = {"d": 86_400.0, "h": 3_600.0, "min": 60.0, "m": 60.0}
HOW_TO_WRITE: Final = "checkpoint=10min or checkpoint=1h"
NO_CHECKPOINT: Final = math.inf
"""The work at risk of a job that saves nothing: all of it."""


def checkpoint_of(comment: str | None) -> float | None:
    """The time between two checkpoints that a comment names after ``checkpoint=``.

    Returns:
        Seconds; NaN where the text is no time; None where no ``checkpoint=`` is there.
    """
    if not comment or "=" not in comment or (found := _WORD.search(comment)) is None:
        return None
    span = _SPAN.fullmatch(found[1])
    seconds = math.nan if span is None else float(span[1]) * _SECONDS[span[2].lower()]
    return seconds if seconds > 0.0 else math.nan


def at_risk_seconds(comment: str | None) -> float:
    """The run time that a job loses at most when it is stopped and started again, seconds.

    Infinite where its user says nothing of checkpoints, or nothing that is a time: all of its work is lost.
    """
    said = checkpoint_of(comment)
    return said if said is not None and said > 0.0 else NO_CHECKPOINT
