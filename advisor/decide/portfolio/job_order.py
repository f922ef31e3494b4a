"""Putting waiting jobs in an order by raising some of them as little as possible. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX_FACTOR: Final = 2_000_000_000
"""Slurm's site factors end a little above."""
STEP: Final = 2
"""Points between two jobs: slurmctld shows a priority of 0 as 1, and of two alike takes the older job."""


def raising_factors(own: Sequence[int], present: Sequence[int], floor: int) -> list[int]:
    """What each job's priority is raised by, so that the jobs stand in the order given.

    Nobody is lowered: a job that is moved out of this queue meanwhile, and whose factor is taken back late,
    has then not lost its place. Where the present factors do it already they stay.

    Parameters
    ----------
    own : sequence of int
        Priorities without factors, in the order wanted: the next job first.
    present : sequence of int
        Their factors now.
    floor : int
        Largest priority of the jobs that stand behind all of these.

    Returns
    -------
    list of int
        Factors, 0 or more, in the same order.

    Examples
    --------
    >>> raising_factors([10, 30, 20], [0, 0, 0], floor=5)
    [22, 0, 0]
    """
    totals = [priority + factor for priority, factor in zip(own, present, strict=True)]
    if all(factor >= 0 for factor in present) and all(
        before > after for before, after in zip(totals, [*totals[1:], floor], strict=False)
    ):
        return list(present)
    factors: list[int] = []
    below = floor
    for priority in reversed(own):
        below = max(priority, below + STEP)
        factors.append(min(below - priority, MAX_FACTOR))
    factors.reverse()
    return factors
