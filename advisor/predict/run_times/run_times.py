"""Run times as distributions: asked at a submission, learned when a job ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.model.errors import BadInput
from advisor.predict.run_times._contexts import EXPERTS, Integers, look_up, request_bin
from advisor.predict.run_times._memory import WAYS, Floats, Keys, Memory
from advisor.predict.run_times._pool import Weights, adjust, ask_experts, pool, remember, spread
from advisor.predict.run_times.grid import BINS, bin_of

FORMAT: Final = 1
SLOTS: Final = 32_768


class RunTimes:
    """Forecasts of run times over the bins of :data:`~advisor.predict.run_times.grid.GRID`.

    The experts are histograms of jobs with the same user, request, processors, executable, queue or account,
    in several combinations: of their run times, or relative to the request or to former run times. A pool
    weighs them by how well they forecast on this site. Ended jobs alone teach; nothing is drawn by chance.

    Users, accounts, executables and queues are numbers, -1 where unknown. A requested time is in seconds, NaN
    where there is none.

    Args:
        slots: Histograms kept, 300 bytes each; those that were learned least recently are forgotten.
    """

    def __init__(self, slots: int = SLOTS) -> None:
        slots = max(1, slots // WAYS) * WAYS
        self._memory = Memory.empty(slots)
        self._weights = Weights.untrained()
        self._scratch = _Scratch()

    def forecast(
        self,
        user: int,
        account: int,
        executable: int,
        queue: int,
        processors: int,
        requested_seconds: float,
    ) -> Floats:
        """Probability of each bin, shape (BINS,).

        Nothing lies above the requested time: a run that would be longer is killed in the request's bin.
        """
        scratch, out = self._scratch, np.empty(BINS)
        _forecast(
            self._memory,
            self._weights,
            user,
            account,
            executable,
            queue,
            processors,
            _known(requested_seconds),
            scratch.keys,
            scratch.origins,
            scratch.sizes,
            scratch.said,
            scratch.logs,
            out,
        )
        return out

    def learn(
        self,
        user: int,
        account: int,
        executable: int,
        queue: int,
        processors: int,
        requested_seconds: float,
        run_seconds: float,
    ) -> None:
        """Learn a job that has ended; a run time above the requested time counts as the requested time."""
        scratch = self._scratch
        _learn(
            self._memory,
            self._weights,
            user,
            account,
            executable,
            queue,
            processors,
            _known(requested_seconds),
            run_seconds,
            scratch.keys,
            scratch.origins,
            scratch.sizes,
            scratch.said,
            scratch.logs,
            scratch.pooled,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Copies of all that was learned, as plain arrays for a state file."""
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
                mend="Delete the file; `advisor control` learns run times anew.",
                code="run_times.arrays",
            )
        return result


class _Scratch:
    """Arrays that every call writes anew."""

    def __init__(self) -> None:
        self.keys = np.zeros(EXPERTS, np.uint64)
        self.origins = np.zeros(4, np.int64)
        self.sizes = np.zeros(EXPERTS, np.int64)
        self.said, self.logs = np.zeros((EXPERTS, BINS)), np.zeros((EXPERTS, BINS))
        self.pooled = np.zeros(BINS)


def _known(requested_seconds: float) -> float:
    return requested_seconds if 0.0 < requested_seconds < math.inf else math.nan


@compiled
def _forecast(  # noqa: PLR0917 (compiled functions take positions only)
    memory: Memory,
    weights: Weights,
    user: int,
    account: int,
    executable: int,
    queue: int,
    processors: int,
    requested: float,
    keys: Keys,
    origins: Integers,
    sizes: Integers,
    said: Floats,
    logs: Floats,
    out: Floats,
) -> None:
    look_up(memory, user, account, executable, queue, processors, requested, keys, origins)
    top = request_bin(requested)
    ask_experts(memory, keys, origins, top, said, sizes)
    pool(weights, said, sizes, top, logs, out)
    spread(out, top)


@compiled
def _learn(  # noqa: PLR0917 (compiled functions take positions only)
    memory: Memory,
    weights: Weights,
    user: int,
    account: int,
    executable: int,
    queue: int,
    processors: int,
    requested: float,
    run: float,
    keys: Keys,
    origins: Integers,
    sizes: Integers,
    said: Floats,
    logs: Floats,
    pooled: Floats,
) -> None:
    look_up(memory, user, account, executable, queue, processors, requested, keys, origins)
    top = request_bin(requested)
    run_bin = min(top, bin_of(run))
    ask_experts(memory, keys, origins, top, said, sizes)
    pool(weights, said, sizes, top, logs, pooled)
    adjust(weights, sizes, top, logs, pooled, run_bin)
    remember(memory, keys, origins, run_bin)
