"""The expected run times of the jobs in a queue, by which the queue is simulated, live and in replays.

A queue that is simulated by time limits is too long, for most jobs end before them (docs/measurements.md,
"Forecasts of waits"). So each job is expected to run as long as forecast: what has run already is known.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.predict.run_times.grid import GRID

_ROUNDING: Final = 1e-9


class QueueRuns:
    """Expected run times of jobs, each by the forecast that was made when it was first seen.

    Args:
        edges: Upper edges of the forecasts' bins, shape ``(bins,)``, seconds, ascending.
    """

    def __init__(self, edges: Floats = GRID) -> None:
        self._edges = edges
        self._chances: dict[int, Floats] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._chances

    def see(self, key: int, chances: Floats) -> None:
        """Take in a job, and the probability of each bin of its run time, shape ``(bins,)``."""
        self._chances[key] = chances

    def forget(self, key: int) -> None:
        """Forget a job that has ended."""
        self._chances.pop(key, None)

    def forget_all_but(self, keys: Container[int]) -> None:
        """Forget the jobs that have left the queue."""
        self._chances = {key: chances for key, chances in self._chances.items() if key in keys}

    def expected(self, keys: Sequence[int], limits: Floats, ran: Floats) -> Floats:
        """Expected run times of jobs that were seen, from their starts, seconds, shape ``(n,)``.

        Args:
            limits: Time limits, seconds, shape ``(n,)``.
            ran: The time that each has run, seconds, shape ``(n,)``.
        """
        if not keys:
            return np.empty(0)
        chances = np.concatenate([self._chances[key] for key in keys]).reshape(len(keys), -1)
        return _means_after(chances, self._edges, limits, ran)


@compiled
def _means_after(probabilities: Floats, edges: Floats, limits: Floats, ran: Floats) -> Floats:
    """Expected run times given what has run; a job that has outrun its forecast needs as long again."""
    found = np.empty(len(ran))
    for i in range(len(ran)):
        left, total = 0.0, 0.0
        for k in range(len(edges)):
            low = edges[k - 1] if k else edges[0] * edges[0] / edges[1]
            middle = math.sqrt(low * edges[k])
            if middle > ran[i]:
                left += probabilities[i, k]
                total += probabilities[i, k] * min(middle, limits[i])
        expected = total / left if left > _ROUNDING else 2.0 * ran[i]
        found[i] = min(max(expected, ran[i]), limits[i])
    return found
