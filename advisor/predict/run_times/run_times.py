"""Run times as distributions, forecast at a submission and learned when a job ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.model.errors import BadInput
from advisor.predict.run_times._contexts import PLACES, Integers, look_up, request_bin
from advisor.predict.run_times._experts import ask, tell
from advisor.predict.run_times._memory import WAYS, Floats, Memory
from advisor.predict.run_times._pool import Pooled, Weights, adjust, pool
from advisor.predict.run_times.grid import BINS, bin_of
from advisor.predict.run_times.job_numbers import JobNumbers

FORMAT: Final = 2
SLOTS: Final = 32_768


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

    def look_up(self, job: JobNumbers) -> Integers:
        """The keys of the experts' histograms for a job now, shape (PLACES,), for :meth:`learn`."""
        place = np.empty(PLACES, np.int64)
        look_up(self._memory, job, place)
        return place

    def learn(self, job: JobNumbers, run_seconds: float, *, place: Integers | None = None) -> None:
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
                mend="Remove the folder run-times below paths.models: `advisor control` learns them anew",
                code="run_times.arrays",
            )
        return result


@compiled
def _forecast(memory: Memory, weights: Weights, place: Integers, requested: float, pooled: Pooled) -> None:
    top = request_bin(requested)
    ask(memory, place, top, pooled)
    pool(weights, pooled, top)


@compiled
def _learn(
    memory: Memory, weights: Weights, place: Integers, requested: float, run: float, pooled: Pooled
) -> None:
    _forecast(memory, weights, place, requested, pooled)
    top = request_bin(requested)
    run_bin = min(top, bin_of(run))
    adjust(weights, pooled, top, run_bin)
    tell(memory, place, run_bin)
