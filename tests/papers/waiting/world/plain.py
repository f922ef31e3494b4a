"""The same world, stated plainly second by second: what the compiled kernel is compared with.

Whole seconds and work-conserving dispatch only; without forecasts. Slow on purpose: nothing here is clever.
"""

from __future__ import annotations

import math

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.papers.waiting.world.world import Mode, Workload


class PlainWorld:
    """A cluster that may rent, gone through second by second.

    Parameters
    ----------
    workload : Workload
        Whole seconds.
    cores : int
        Fixed.
    modes : int64, shape (n,)
        A `Mode` for each job.
    trial_seconds, longest_wait_seconds : float
        t and b.
    shortest_first : bool
        Least core-seconds first, else first come, first served.

    Attributes
    ----------
    start, spot_seconds, ondemand_seconds : list of float
        As in ``Outcome``, once run.
    on_fixed : list of bool
        The same.
    """

    def __init__(
        self,
        workload: Workload,
        cores: int,
        modes: Ints,
        *,
        trial_seconds: float,
        longest_wait_seconds: float,
        shortest_first: bool = False,
    ) -> None:
        count = len(workload)
        self._load, self._cores, self._modes = workload, cores, modes
        self._trial, self._longest_wait = trial_seconds, longest_wait_seconds
        area: Floats = workload.run * workload.processors
        self._key = area if shortest_first else np.zeros(count)
        self._running: dict[int, float] = {}
        self._trials: dict[int, float] = {}
        self._queue: list[int] = []
        self.start = [math.nan] * count
        self.on_fixed = [False] * count
        self.spot_seconds = [0.0] * count
        self.ondemand_seconds = [0.0] * count

    def run(self) -> None:
        """Go through every second until all is done."""
        now = 0.0
        while now <= self._load.submit[-1] or self._running or self._trials or self._queue:
            self._end(now)
            self._dispatch(now)
            self._end_trials(now)
            for new in np.flatnonzero(self._load.submit == now):
                self._submit(int(new), now)
            for row in self._impatient(now):
                self._queue.remove(row)
                self._rent(row, now)
            now += 1.0

    def _impatient(self, now: float) -> list[int]:
        return [row for row in self._queue if self._load.submit[row] + self._longest_wait <= now]

    def _fits(self, row: int) -> bool:
        busy = sum(int(self._load.processors[other]) for other in self._running)
        return bool(self._load.processors[row] <= self._cores - busy)

    def _begin(self, row: int, now: float) -> None:
        self.start[row], self.on_fixed[row] = now, True
        self._running[row] = now + float(self._load.run[row])

    def _rent(self, row: int, now: float) -> None:
        self.start[row], self.ondemand_seconds[row] = now, float(self._load.run[row])

    def _end(self, now: float) -> None:
        self._running = {row: end for row, end in self._running.items() if end > now}

    def _dispatch(self, now: float) -> None:
        for row in sorted(self._queue, key=lambda row: (self._key[row], row)):
            if self._fits(row):
                self._queue.remove(row)
                self._begin(row, now)

    def _end_trials(self, now: float) -> None:
        for _, row in sorted((end, row) for row, end in self._trials.items() if end <= now):
            del self._trials[row]
            self.spot_seconds[row] = now - self.start[row]
            if self._load.run[row] > min(self._trial, self._load.revoked_after[row]):
                self._join(row, now)

    def _join(self, row: int, now: float) -> None:
        if now >= self._load.submit[row] + self._longest_wait:
            self._rent(row, now)
        elif self._fits(row):
            self._begin(row, now)
        else:
            self._queue.append(row)

    def _submit(self, row: int, now: float) -> None:
        mode = self._modes[row]
        if mode == Mode.RENTS or self._load.processors[row] > self._cores:
            self._rent(row, now)
        elif self._fits(row):
            self._begin(row, now)
        elif mode == Mode.LEAVES:
            self._rent(row, now)
        elif mode == Mode.SPECULATES:
            length = min(self._load.run[row], self._trial, self._load.revoked_after[row])
            self._trials[row], self.start[row] = now + float(length), now
        else:
            self._join(row, now)
