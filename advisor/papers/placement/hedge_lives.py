"""Hedges of a log's jobs from start to end, within a budget: what each reserves, uses and wins."""

from __future__ import annotations

import enum
import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Bools, Floats
from advisor.papers.placement.hedge_budget import Budget
from advisor.papers.placement.hedging import STOPS, choose_stop

STOP_AT_ONE = 1e5
"""Core-seconds of the stop-loss without forecasts at a price of 1."""
_LONGER = 1.25
"""A hedge that has used up what it reserved by its time limit, and runs on, asks for a quarter more."""


@dataclass(frozen=True, slots=True, eq=False)
class HedgeTable:
    """Jobs as forecast and as they were, and what the clairvoyant does.

    ``seconds``: in the cloud at every level of the price (shape (jobs, levels)). ``gain`` and
    ``stay_seconds`` are expected, for each of `STOPS` (shape (jobs, stops)): NaN where there is no forecast,
    no columns where nothing is forecast at all. ``stays``: whether the job had better stay when its slot
    comes. ``optimal``: the clairvoyant's core-seconds, and ``optimal_saved`` the seconds they save.
    """

    seconds: NDArray[np.float32]
    gain: Floats
    stay_seconds: Floats
    stays: Bools
    processors: Floats
    slowdown: Floats
    limit: Floats
    wait: Floats
    run: Floats
    optimal: Floats
    optimal_saved: Floats


class _Next(enum.IntEnum):
    """What happens next to a hedge."""

    DONE = 0  # it ends in the cloud
    BACK = 1  # its stop-loss, or its slot, ends it
    SLOT = 2  # its slot comes, and it had better stay
    USED_UP = 3  # its reservation ends


class HedgeLives:
    """Starts hedges while their worst case is left, and follows each to its end.

    Args:
        jobs: Truth and forecasts.
        submit: float64, shape (jobs,): Seconds.
        core_seconds: The budget.
    """

    def __init__(self, jobs: HedgeTable, submit: Floats, core_seconds: float) -> None:
        self.budget = Budget(core_seconds)
        self.saved = self.lost = 0.0
        self.hedged = self.restarted = 0
        self._jobs = jobs
        self._submit = submit
        self._plan: dict[int, tuple[float, _Next]] = {}
        self._events = list[tuple[float, int, _Next]]()

    def settle(self, now: float) -> None:
        """Go on to `now` (seconds)."""
        while self._events and self._events[0][0] < now:
            _, index, what = heapq.heappop(self._events)
            if what is _Next.USED_UP:
                self._go_on(index)
            elif what is _Next.SLOT:
                self._stay(index)
            else:
                self._end(index, self._plan[index][0], what)

    def hedge(self, index: int, price: float) -> None:
        """Start a job hedged where that is worth the price, seconds of turnaround for a core-second."""
        jobs, processors = self._jobs, float(self._jobs.processors[index])
        longest = float(jobs.slowdown[index] * jobs.limit[index])
        most = max(0.0, self.budget.left) / processors
        if jobs.gain.shape[1]:
            if np.isnan(jobs.gain[index, 0]):
                return
            gain, seconds = jobs.gain[index], jobs.stay_seconds[index]
            stop = float(STOPS[choose_stop(gain, seconds, price * processors, longest=longest, most=most)])
        else:  # without forecasts a price stands for a stop-loss
            stop = min(STOP_AT_ONE / price / processors, most)
        reserved = min(stop, longest)
        if stop <= 0.0 or not self.budget.reserve(index, processors * reserved):
            return
        self.hedged += 1
        wait = float(jobs.wait[index])
        in_cloud = float(jobs.slowdown[index] * jobs.run[index])
        if in_cloud <= min(wait, stop):
            self._plan[index] = in_cloud, _Next.DONE
        elif stop < wait:
            self._plan[index] = stop, _Next.BACK
        else:
            self._plan[index] = wait, _Next.SLOT if jobs.stays[index] else _Next.BACK
        self._schedule(index)

    def _schedule(self, index: int) -> None:
        seconds, what = self._plan[index]
        until = self.budget.reserved(index) / float(self._jobs.processors[index])
        if until < seconds * (1.0 - 1e-12):
            seconds, what = until, _Next.USED_UP
        heapq.heappush(self._events, (float(self._submit[index]) + seconds, index, what))

    def _stay(self, index: int) -> None:
        """Its slot has come: it stays if the rest of its run can be paid for, as long as it may last."""
        jobs, longest = self._jobs, float(self._jobs.slowdown[index] * self._jobs.limit[index])
        if np.isfinite(longest) and self.budget.reserve(index, float(jobs.processors[index]) * longest):
            self._plan[index] = float(jobs.slowdown[index] * jobs.run[index]), _Next.DONE
            self._schedule(index)
        else:
            self._end(index, float(jobs.wait[index]), _Next.BACK)

    def _go_on(self, index: int) -> None:
        """It runs on after its time limit, and has used up what it reserved: more, or it is stopped."""
        reserved = self.budget.reserved(index)
        if self.budget.reserve(index, _LONGER * reserved):
            self._schedule(index)
        else:
            self._end(index, reserved / float(self._jobs.processors[index]), _Next.USED_UP)

    def _end(self, index: int, seconds: float, what: _Next) -> None:
        jobs = self._jobs
        self.budget.settle(index, float(jobs.processors[index]) * seconds)
        wait, saved = float(jobs.wait[index]), 0.0
        if what is _Next.DONE:
            saved = wait + float(jobs.run[index]) - seconds
        elif what is _Next.USED_UP and seconds > wait:
            saved = -seconds  # its slot is gone: it waits anew, as long as before for all that is known
        self.restarted += what is not _Next.DONE
        self.saved += saved
        self.lost += max(0.0, -saved)
