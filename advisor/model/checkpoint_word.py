"""How often a job saves its work: ``--comment=checkpoint=10min``. Pure.

Its user says by this word that the job, when it is started again under its id, here or in the cloud, goes on
from what it saved last.
"""

from __future__ import annotations

import math
import re
from typing import Final

from advisor.model.deadline import span_seconds

_WORD: Final = re.compile(r"(?:^|[\s,;])checkpoint=([^\s,;]{0,32})", re.IGNORECASE)
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
    seconds = span_seconds(found[1])
    return seconds if seconds > 0.0 else math.nan


def at_risk_seconds(comment: str | None) -> float:
    """The run time that a job loses at most when it is stopped and started again, seconds.

    Infinite where its user says nothing of checkpoints, or nothing that is a time: all of its work is lost.
    """
    said = checkpoint_of(comment)
    return said if said is not None and said > 0.0 else NO_CHECKPOINT
