"""Run times as distributions, forecast at a submission and learned when a job ends.

The learn loop of `advisor control` teaches and saves them; `advisor serve` forecasts by the last saved ones.

`RunTimes` knows jobs by numbers, `RunTimesOfJobs` by the names and the limit that they were submitted with.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled_in_place
from advisor.model.errors import BadInput
from advisor.model.estimate import NO_ESTIMATE, Estimate, Estimates, SizeEstimate
from advisor.model.job import Job, JobOutcome, family, limit_seconds
from advisor.predict.intervals import Intervals
from advisor.predict.promised.known import PromisesKnown
from advisor.predict.promised.waits import Plans
from advisor.predict.run_times._histograms import PLACES, WAYS, Memory, look_up, request_bin
from advisor.predict.run_times._pool import Pooled, Weights, adjust, ask, pool, tell
from advisor.predict.run_times.grid import BINS, GRID, bin_of, quantile
from advisor.predict.run_times.job_numbers import JobNumbers

FORMAT: Final = 2
SLOTS: Final = 32_768
_LEVELS: Final[Floats] = np.concatenate(((np.arange(20) + 0.5) / 20, [0.05, 0.95]))
"""Twenty equally likely values, and the bounds of nine tenths."""


class RunTimes:
    """Forecasts of run times over the bins of :data:`~advisor.predict.run_times.grid.GRID`.

    The experts are histograms of jobs with the same user, request, processors, executable, queue or account,
    in several combinations: of their run times, or relative to the request or to former run times. A pool
    weighs them by how well they forecast on this site. They learn from ended jobs only, and use no random
    numbers.

    Args:
        slots: Number of histograms, 300 bytes each; the least recently updated ones are dropped.
    """

    def __init__(self, slots: int = SLOTS) -> None:
        slots = max(1, slots // WAYS) * WAYS
        self._memory = Memory.empty(slots)
        self._weights = Weights.untrained()
        self._pooled = Pooled.empty()

    def forecast(self, job: JobNumbers) -> Floats:
        """Probability of each bin, shape (BINS,).

        Nothing lies above the requested time: a run that would be longer is killed in the request's bin.
        """
        _forecast(self._memory, self._weights, self.look_up(job), job.requested_seconds, self._pooled)
        return self._pooled.mixed.copy()

    def look_up(self, job: JobNumbers) -> Ints:
        """The keys of the experts' histograms for a job now, shape (PLACES,), for :meth:`learn`."""
        place = np.empty(PLACES, np.int64)
        look_up(self._memory, job, place)
        return place

    def learn(self, job: JobNumbers, run_seconds: float, *, place: Ints | None = None) -> None:
        """Learn a job that has ended; a run time above the requested time counts as the requested time.

        Args:
            place: The result of :meth:`look_up` at the job's submission. With it the experts that use the
                last run times learn what followed the run times of that moment; without it, those of now.
        """
        if place is None:
            place = self.look_up(job)
        _learn(self._memory, self._weights, place, job.requested_seconds, run_seconds, self._pooled)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Copies of the learned arrays, for a state file."""
        arrays: dict[str, NDArray[Any]] = {"format": np.array([FORMAT], np.int64)}
        for part in (self._memory, self._weights):
            arrays |= {name: array.copy() for name, array in part._asdict().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild from :meth:`to_arrays`. Raises BadInput for damaged arrays and for other formats."""
        try:
            result = cls(len(arrays["keys"]))
            is_sound = int(arrays["format"][0]) == FORMAT
            for part in (result._memory, result._weights):
                for name, own in part._asdict().items():
                    given = arrays[name]
                    is_sound &= given.shape == own.shape and given.dtype == own.dtype
                    is_sound &= bool(np.all(np.isfinite(given)))
                    own[...] = given
            is_sound &= bool(np.all((result._memory.last >= -1) & (result._memory.last < BINS)))
        except (KeyError, ValueError, IndexError, TypeError):
            is_sound = False
        if not is_sound:
            raise BadInput(
                "the arrays of the run times are damaged",
                where="run times",
                mend="Remove the folder models/run-times of paths.state: `advisor control` learns them anew",
                code="run_times.arrays",
            )
        return result


@compiled_in_place
def _forecast(memory: Memory, weights: Weights, place: Ints, requested: float, pooled: Pooled) -> None:
    top = request_bin(requested)
    ask(memory, place, top, pooled)
    pool(weights, pooled, top)


@compiled_in_place
def _learn(
    memory: Memory, weights: Weights, place: Ints, requested: float, run: float, pooled: Pooled
) -> None:
    _forecast(memory, weights, place, requested, pooled)
    top = request_bin(requested)
    run_bin = min(top, bin_of(run))
    adjust(weights, pooled, top, run_bin)
    tell(memory, place, run_bin)


class RunTimesOfJobs:
    """A :class:`RunTimes` that knows jobs by their user, account, application and partition. Thread-safe.

    Attributes:
        intervals: The learned intervals of waits, beside those by time limits, and of run times on this site.
        errors: The same beside the expected waits, of which the variance is told.
        promises: The spread of waits around their plan, and how often promises are kept.
    """

    def __init__(
        self,
        known: RunTimes | None = None,
        intervals: Intervals | None = None,
        promises: PromisesKnown | None = None,
        errors: Intervals | None = None,
    ) -> None:
        self._known = RunTimes() if known is None else known
        self.intervals = Intervals() if intervals is None else intervals
        self.promises = PromisesKnown() if promises is None else promises
        self.errors = Intervals() if errors is None else errors
        self._lock = threading.Lock()

    def chances(self, job: Job) -> Floats:
        """Probability of each bin of `GRID`, shape ``(bins,)``; nothing above the job's time limit."""
        with self._lock:
            return self._known.forecast(_numbers(job))

    def look_up(self, job: Job) -> Ints:
        """Where the experts look for a job now, for :meth:`learn`; see :meth:`RunTimes.look_up`."""
        with self._lock:
            return self._known.look_up(_numbers(job))

    def learn(self, outcome: JobOutcome, *, place: Ints | None = None) -> None:
        """Learn a job that has ended, with the run time that it would have on-premise.

        Args:
            place: The result of :meth:`look_up` at the job's submission; None: it was not seen then.
        """
        with self._lock:
            self._known.learn(_numbers(outcome.job), outcome.run_seconds, place=place)

    def estimate(self, chances: Floats, job: Job) -> Estimate:
        """The result of :meth:`chances` as an estimate with its interval."""
        limit = math.inf if job.requested_time is None else job.requested_time
        return self.intervals.run(estimate_of(chances, limit), limit)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Copies of the learned arrays."""
        with self._lock:
            arrays = self._known.to_arrays() | self.promises.to_arrays()
            return arrays | {"intervals": self.intervals.to_array(), "errors": self.errors.to_array()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> RunTimesOfJobs:
        """Rebuild from :meth:`to_arrays`. Raises BadInput for damaged arrays and for other formats."""
        known = RunTimes.from_arrays(arrays)
        intervals = Intervals.from_array(arrays.get("intervals", np.empty(0)))
        # an earlier release did not learn them
        errors = Intervals.from_array(arrays["errors"]) if "errors" in arrays else None
        return cls(known, intervals, PromisesKnown.from_arrays(arrays), errors)


def priced_estimates(
    known: RunTimesOfJobs | None,
    job: Job,
    wait_seconds: float | None,
    size: SizeEstimate,
    *,
    planned_wait: float | None = None,
    promised_jobs: int | None = None,
) -> Estimates:
    """The forecasts for a job under the policy "price"; without known run times the job stays on-premise.

    Args:
        wait_seconds: The wait in the simulated queue, seconds; None if it is unknown.
        planned_wait: The same if jobs ran to their limits; None: it is the same.
        promised_jobs: Of the job's user in the queue; None: no time is named by which it is to be done.
    """
    intervals, errors = (Intervals(), Intervals()) if known is None else (known.intervals, known.errors)
    planned = wait_seconds if planned_wait is None else planned_wait
    wait = NO_ESTIMATE
    if wait_seconds is not None and planned is not None:
        beside = intervals.wait(planned)
        wait = Estimate(
            seconds=wait_seconds,
            variance=errors.wait(wait_seconds).variance,
            lower=min(beside.lower, wait_seconds),
            upper=max(beside.upper, wait_seconds),
        )
    if known is None:
        return Estimates(wait=wait, size=size, planned_wait=planned_wait)
    chances = known.chances(job)
    run = known.estimate(chances, job)
    promise = None
    if promised_jobs is not None and planned is not None and math.isfinite(planned) and wait.is_usable:
        requested, expected = job.processors * limit_seconds(job), job.processors * run.seconds
        plans = Plans(planned, wait.seconds)
        promise = known.promises.chances(plans, requested, expected, promised_jobs)
    return Estimates(
        wait=wait,
        run=run,
        size=size,
        run_chances=tuple(chances.tolist()),
        promise=promise,
        planned_wait=planned_wait,
    )


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


@compiled_in_place
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
