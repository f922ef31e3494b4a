"""The input of a choice of market at one tick, and the rule that no choice may miss the deadline.

The world is that of Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines", NSDI 2024:
on-demand can always be had, spot only at some ticks; a job that begins, or goes on elsewhere, first loses the
changeover (boot, and reading its checkpoint), and keeps the work it had done when spot is taken away.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

_ROUNDING: Final = 1e-6  # seconds


class Market(enum.IntEnum):
    """Where a job runs during a tick."""

    IDLE = 0
    SPOT = 1
    ON_DEMAND = 2


@dataclass(frozen=True, slots=True)
class Moment:
    """A job at a tick. All times are in seconds.

    Attributes:
        work_left: C(t), run time that is left.
        time_left: R(t), time to the deadline.
        running: The capacity on which the job has run until now; IDLE if EC2 has taken the spot instance
            away.
        starting: What is left of the changeover of `running`.
        has_spot: Whether spot can be had now, or goes on.
        changeover: d, time without work at each start.
        tick: Time to the next choice.
    """

    work_left: float
    time_left: float
    running: Market
    starting: float
    has_spot: bool
    changeover: float
    tick: float

    @property
    def slack(self) -> float:
        """Time that may still pass without work, a changeover included."""
        return self.time_left - self.work_left

    def starting_in(self, market: Market) -> float:
        """Changeover before the job works in a market."""
        return self.starting if market is self.running else self.changeover


def worked(moment: Moment, market: Market) -> float:
    """Work done until the next tick, seconds."""
    if market is Market.IDLE:
        return 0.0
    return min(moment.work_left, max(0.0, moment.tick - moment.starting_in(market)))


def _keeps_deadline(moment: Moment, market: Market) -> bool:
    """Whether a start on-demand at the next tick is still in time, if spot then has gone.

    With R(t) - C(t) >= d at the first tick, on-demand is in time there and at each tick that follows a choice
    which was tested here, or was on-demand. So such a job ends in time.
    """
    if market is Market.ON_DEMAND:
        return True
    if market is Market.SPOT:
        if not moment.has_spot:
            return False
        until_end = moment.starting_in(market) + moment.work_left
        if until_end <= moment.tick + _ROUNDING:
            return until_end <= moment.time_left + _ROUNDING
    left = moment.work_left - worked(moment, market)
    return moment.time_left - moment.tick + _ROUNDING >= left + moment.changeover


def safe(moment: Moment, wanted: Market) -> Market:
    """The market that is wanted; on-demand where that could miss the deadline."""
    return wanted if _keeps_deadline(moment, wanted) else Market.ON_DEMAND
