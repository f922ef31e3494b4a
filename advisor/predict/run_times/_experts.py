"""The forecast of each expert for a job, and its update when a job has ended."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.predict.run_times._contexts import DECAY_OF, EXPERTS, ORIGIN_OF, PARENT_OF, Integers
from advisor.predict.run_times._memory import Floats, Memory, find, record
from advisor.predict.run_times._pool import SIZES, Pooled
from advisor.predict.run_times.grid import BINS

_PRIOR_COUNT: Final = 2.0  # observations that an expert's parent counts for
_PRIOR_PLACE: Final = 0.75  # of the request's bin
_PRIOR_WIDTH: Final = 10.0  # bins


@compiled
def ask(memory: Memory, place: Integers, top: int, pooled: Pooled) -> None:
    """Write each expert's distribution, with nothing above ``top``, and the size of its sample."""
    for i in range(EXPERTS):
        of_expert = pooled.said[i]
        if PARENT_OF[i] < 0:
            _fill_prior(of_expert, top)
        else:
            of_expert[:] = pooled.said[PARENT_OF[i]]
        slot = find(memory, np.uint64(place[i]))
        pooled.sizes[i] = 0
        if slot >= 0:
            count = memory.observations[slot]
            pooled.sizes[i] = min(SIZES - 1, int(math.log2(1.0 + count) * 1.3 + 0.5))
            _blend(of_expert, memory.mass[slot], count, place[EXPERTS + ORIGIN_OF[i]])
        for k in range(top + 1, BINS):  # a site kills there
            of_expert[top] += of_expert[k]
            of_expert[k] = 0.0


@compiled
def _fill_prior(out: Floats, top: int) -> None:
    """Before any job has ended: wide, with its mode at a share of the request."""
    total = 0.0
    for k in range(BINS):
        out[k] = math.exp(-0.5 * ((k - _PRIOR_PLACE * top) / _PRIOR_WIDTH) ** 2)
        total += out[k]
    for k in range(BINS):
        out[k] /= total


@compiled
def _blend(out: Floats, mass: NDArray[np.float32], count: float, origin: int) -> None:
    """Mix a histogram, moved to its origin, into the parent's distribution in ``out``."""
    share = 1.0 / (count + _PRIOR_COUNT)
    for k in range(BINS):
        out[k] *= _PRIOR_COUNT * share
    for k in range(max(0, origin), min(BINS, origin + BINS)):
        out[k] += mass[k - origin] * share
    for k in range(max(0, BINS - origin), BINS):  # beyond the grid's end
        out[BINS - 1] += mass[k] * share
    for k in range(min(BINS, -origin)):  # before its beginning
        out[0] += mass[k] * share


@compiled
def tell(memory: Memory, place: Integers, run_bin: int) -> None:
    """Tell every expert the run time of a job that has ended."""
    memory.clock[0] += 1
    for i in range(EXPERTS):
        record(memory, np.uint64(place[i]), run_bin, place[EXPERTS + ORIGIN_OF[i]], DECAY_OF[i])
