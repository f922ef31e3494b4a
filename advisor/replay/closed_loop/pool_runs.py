"""The queue of a pool, simulated with the run times that are expected of its jobs."""

from __future__ import annotations

import numpy as np

from advisor.arrays import Floats
from advisor.predict.run_times.queue_runs import QueueRuns
from advisor.simulate.pool.machines import Machines
from advisor.simulate.pool.pool import Pool


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

    def starts(self, pool: Pool | Machines) -> Floats:
        """Forecast starts of waiting jobs, all of which were seen, as :meth:`Pool.forecast` gives them."""
        rows = np.concatenate((pool.running, pool.waiting))
        ran = np.zeros(len(rows))
        ran[: len(pool.running)] = pool.ran
        self._runs[rows] = self.expected(rows.tolist(), self._limits[rows], ran)
        return pool.forecast(self._runs)
