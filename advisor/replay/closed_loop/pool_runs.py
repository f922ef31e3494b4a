"""The queue of a pool, simulated with the run times that are expected of its jobs."""

from __future__ import annotations

import math

import numpy as np

from advisor.arrays import Floats
from advisor.predict.run_times.queue_runs import QueueRuns
from advisor.simulate.pool.machines import Machines
from advisor.simulate.pool.pool import Pool


class StartsForecast:
    """Forecast starts by row in one array: to make one each time takes longer where there are many rows."""

    def __init__(self, rows: int) -> None:
        self._starts = np.full(rows, math.nan)
        self._waited = np.empty(0, np.int64)

    def of(self, pool: Pool | Machines, runs: Floats) -> Floats:
        """See :meth:`Pool.forecast`; the next call overwrites the array."""
        self._starts[self._waited] = math.nan
        self._waited = pool.waiting
        return pool.forecast(runs, self._starts)


class PoolRuns(QueueRuns):
    """Expected run times of a pool's jobs by row.

    Args:
        limits: Time limits by row, shape ``(n,)``, seconds.
        edges: See :class:`QueueRuns`.
    """

    def __init__(self, limits: Floats, edges: Floats) -> None:
        super().__init__(edges)
        self._limits = limits
        self._runs = limits.copy()
        self._whole = np.full(len(limits), math.nan)
        self._forecast = StartsForecast(len(limits))

    def see(self, key: int, chances: Floats) -> None:
        """See :meth:`QueueRuns.see`."""
        super().see(key, chances)
        self._whole[key] = math.nan

    def starts(self, pool: Pool | Machines) -> Floats:
        """Forecast starts of waiting jobs, all of which were seen; the next call overwrites the array."""
        running, waiting = pool.running, pool.waiting
        new = waiting[np.isnan(self._whole[waiting])]
        self._whole[new] = self.expected(new.tolist(), self._limits[new], np.zeros(len(new)))
        self._runs[waiting] = self._whole[waiting]
        self._runs[running] = self.expected(running.tolist(), self._limits[running], pool.ran)
        return self._forecast.of(pool, self._runs)
