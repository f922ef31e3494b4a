"""Run times as distributions, asked and taught by a site's jobs instead of by numbers."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.model.estimate import Estimate
from advisor.model.job import Job, JobOutcome, family
from advisor.predict.intervals import Intervals
from advisor.predict.promised.known import PromisesKnown
from advisor.predict.run_times.as_estimate import estimate_of
from advisor.predict.run_times.grid import GRID, Floats
from advisor.predict.run_times.job_numbers import JobNumbers
from advisor.predict.run_times.run_times import RunTimes


class RunTimesOfJobs:
    """A :class:`RunTimes` that knows jobs by their user, account, application and partition. Thread-safe.

    Attributes:
        intervals: How sure forecasts of waits and run times are on this site.
        promises: How waits are spread around their plan, and how often promises are kept.
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
        """Learn an ended job, as it would have run on-premise."""
        with self._lock:
            self._known.learn(_numbers(outcome.job), outcome.run_seconds)

    def estimate(self, chances: Floats, job: Job) -> Estimate:
        """What :meth:`chances` has given as an estimate, with its interval."""
        limit = math.inf if job.requested_time is None else job.requested_time
        return self.intervals.run(estimate_of(chances, limit), limit)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Copies of all that was learned."""
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
    """A number of a name that is the same in every process; -1 for none."""
    if name is None:
        return -1
    return int.from_bytes(blake2b(name.encode(), digest_size=6).digest())
