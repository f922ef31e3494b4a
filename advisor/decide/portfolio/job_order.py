"""Order waiting jobs by raising the priorities of some as little as possible, for the portfolio loop."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

MAX_FACTOR: Final = 2_000_000_000
"""Largest site factor that is set; Slurm's limit is a little above."""
STEP: Final = 2
"""Priority points between two jobs: slurmctld shows 0 as 1, and of equal priorities starts the older job."""


def raising_factors(own: Sequence[int], present: Sequence[int], floor: int) -> list[int]:
    """Site factors that put jobs in the given order.

    No factor is negative, so that a job that leaves this queue before its factor is reset has lost nothing.
    Present factors that already give the order are kept.

    Args:
        own: Priorities without site factors, in the wanted order, first job first.
        floor: Largest priority of the jobs that come after all of these.

    Returns:
        Factors, 0 or more, in the same order.

    Examples:
        >>> raising_factors([10, 30, 20], [0, 0, 0], floor=5)
        [22, 0, 0]
    """
    totals = [priority + factor for priority, factor in zip(own, present, strict=True)]
    if min(present, default=0) >= 0 and all(before > after for before, after in pairwise([*totals, floor])):
        return list(present)
    factors: list[int] = []
    below = floor
    for priority in reversed(own):
        below = max(priority, below + STEP)
        factors.append(min(below - priority, MAX_FACTOR))
    factors.reverse()
    return factors
