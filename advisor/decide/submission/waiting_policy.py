"""The waiting policy of one job at one moment, as two pure functions (Ambati et al. 2021, sections 2.1, 3).

The submit server and the simulated cluster call these same functions, one on the live forecasts of a
submission or of a waiting job, the other compiled inside its kernel. They live below both, so that neither
has a policy of its own (`advisor.decide.submission.waiting`, ``_kernel``).

Long jobs wait (LJW): a job that runs at most t is short and never waits. Short waits wait (SWW): no job waits
longer than b, and a job that would is sent away at once. Together: short jobs never wait, all others wait at
most b. With t = 0 no job is short and SWW stands alone; with b infinite LJW stands alone.
"""

from __future__ import annotations

import math
from typing import Final

WAITS, LEAVES, SPECULATES, RENTS = range(4)
"""What a job does that cannot start at once.

``WAITS``: it queues. ``LEAVES``: it is rented for until it ends. ``SPECULATES``: it gets t on rented cores to
end, and then queues. ``RENTS`` (simulated worlds only): it does not even try the fixed cores.
"""

SHORT: Final = 0.5
"""A job is taken to be short from this chance on, where it cannot be tried out."""
SKIP_TRIAL_BELOW: Final = 0.1
"""A job that is short with less than this chance is not tried out: it would nearly always be restarted."""
IN_TIME: Final = 0.5
"""A job leaves when its chance to start in time is less than this (SWW as published)."""


def by_length(short_chance: float, may_try: bool, skip_below: float = SKIP_TRIAL_BELOW) -> int:  # noqa: FBT001 - numba knows no keyword-only arguments
    """The answer by the job's length alone: short jobs never wait.

    Args:
        short_chance: Predicted chance that the job runs at most t, 0 to 1; NaN where nothing is known of its
            length.
        may_try: Whether it may be run for t on rented cores and restarted here afterwards.

    Returns:
        ``WAITS`` (then `by_wait` is asked), ``LEAVES`` or ``SPECULATES``.
    """
    if may_try:
        return WAITS if short_chance < skip_below else SPECULATES
    return LEAVES if short_chance >= SHORT else WAITS


def by_wait(waited: float, longest_wait: float, in_time: float) -> int:
    """The answer by the wait: no job waits longer than b; one that likely would leaves at once (SWW).

    Args:
        waited: Seconds it has waited so far.
        longest_wait: b, seconds; infinite: it waits as long as it takes.
        in_time: Predicted chance that it starts here before it has waited b, 0 to 1.

    Returns:
        ``WAITS`` or ``LEAVES``.
    """
    if waited >= longest_wait:
        return LEAVES
    if math.isinf(longest_wait):
        return WAITS
    return LEAVES if in_time < IN_TIME else WAITS
