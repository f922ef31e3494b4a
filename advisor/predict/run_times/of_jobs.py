"""Run-time distributions and estimates for jobs, whose names become the numbers that `RunTimes` uses."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.model.estimate import NO_ESTIMATE, Estimate
from advisor.model.job import Job, JobOutcome, family
from advisor.predict.intervals import Intervals
from advisor.predict.promised.known import PromisesKnown
from advisor.predict.run_times.grid import GRID, Floats, quantile
from advisor.predict.run_times.job_numbers import JobNumbers
from advisor.predict.run_times.run_times import RunTimes

_LEVELS: Final[Floats] = np.concatenate(((np.arange(20) + 0.5) / 20, [0.05, 0.95]))
"""Twenty equally likely values, and the bounds of nine tenths."""


class RunTimesOfJobs:
    """A :class:`RunTimes` that knows jobs by their user, account, application and partition. Thread-safe.

    Attributes:
        intervals: The learned intervals of waits and run times on this site.
        promises: The spread of waits around their plan, and how often promises are kept.
    """

    def __init__(
        self,
        known: RunTimes | None = None,
        intervals: Intervals | None = None,
        promises: PromisesKnown | None = None,
    ) -> None:
        self._known = RunTimes() if known is None else known
        self.intervals = Intervals() if intervals is None else intervals
        self.promises = PromisesKnown() if promises is None else promises
        self._lock = threading.Lock()

    @property
    def edges(self) -> Floats:
        """Upper edges of the bins, seconds, shape ``(bins,)``, ascending."""
        return GRID

    def chances(self, job: Job) -> Floats:
        """Probability of each bin, shape ``(bins,)``; nothing above the job's time limit."""
        with self._lock:
            return self._known.forecast(_numbers(job))

    def learn(self, outcome: JobOutcome) -> None:
        """Learn a job that has ended, with the run time that it would have on-premise."""
        with self._lock:
            self._known.learn(_numbers(outcome.job), outcome.run_seconds)

    def estimate(self, chances: Floats, job: Job) -> Estimate:
        """The result of :meth:`chances` as an estimate with its interval."""
        limit = math.inf if job.requested_time is None else job.requested_time
        return self.intervals.run(estimate_of(chances, limit), limit)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Copies of the learned arrays."""
        with self._lock:
            arrays = self._known.to_arrays() | {"intervals": self.intervals.to_array()}
            return arrays | self.promises.to_arrays()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> RunTimesOfJobs:
        """Rebuild from :meth:`to_arrays`. Raises BadInput for damaged arrays and for other formats."""
        known = RunTimes.from_arrays(arrays)
        intervals = Intervals.from_array(arrays.get("intervals", np.empty(0)))
        return cls(known, intervals, PromisesKnown.from_arrays(arrays))


def _numbers(job: Job) -> JobNumbers:
    return JobNumbers(
        _number(job.user),
        _number(job.account),
        _number(family(job.name)),
        _number(job.queue),
        job.processors,
        math.nan if job.requested_time is None else job.requested_time,
    )


@lru_cache(maxsize=65_536)
def _number(name: str | None) -> int:
    """A number for a name, the same in every process; -1 for no name."""
    if name is None:
        return -1
    return int.from_bytes(blake2b(name.encode(), digest_size=6).digest())


def estimate_of(probabilities: Floats, limit: float) -> Estimate:
    """The estimate of a distribution: mean, deviation, interval and quantiles.

    Args:
        probabilities: Probability of each bin of :data:`~advisor.predict.run_times.grid.GRID`, shape
            ``(bins,)``.
        limit: The longest possible run time, seconds.
    """
    found = np.empty(2 + len(_LEVELS))
    _summarise(probabilities, GRID, limit, _LEVELS, found)
    mean, variance, *values, lower, upper = found.tolist()
    if not math.isfinite(mean):
        return NO_ESTIMATE
    return Estimate(seconds=mean, variance=variance, lower=lower, upper=upper, quantiles=tuple(values))


@compiled
def _summarise(probabilities: Floats, edges: Floats, limit: float, levels: Floats, found: Floats) -> None:
    mean, square = 0.0, 0.0
    for k in range(probabilities.shape[0]):
        low = edges[k - 1] if k else edges[0] * edges[0] / edges[1]
        run = min(math.sqrt(low * edges[k]), limit)
        mean += probabilities[k] * run
        square += probabilities[k] * run * run
    found[0], found[1] = mean, max(0.0, square - mean * mean)
    for i in range(levels.shape[0]):
        found[2 + i] = min(quantile(probabilities, levels[i]), limit)
