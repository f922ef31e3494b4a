"""The heap of true ends of running jobs, and a sort, for compiled kernels."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled, compiled_in_place

Records: TypeAlias = Any
"""A record array; numba reads its fields as attributes, which the type checker does not know."""

ENDING = np.dtype([("time", np.float64), ("job", np.int64)], align=True)
"""The true end of a running attempt, seconds."""


@compiled_in_place
def heap_push(ending: Records, size: int, time: float, job: int) -> None:
    """Add to a heap of ``size`` entries, smallest (time, job) on top."""
    position = size
    while position > 0:
        parent = (position - 1) >> 1
        above = ending[parent]
        if above.time < time or (above.time == time and above.job < job):
            break
        ending[position].time = above.time
        ending[position].job = above.job
        position = parent
    ending[position].time = time
    ending[position].job = job


@compiled_in_place
def heap_pop(ending: Records, size: int) -> None:
    """Remove the top of a heap of ``size`` entries."""
    size -= 1
    time, job = ending[size].time, ending[size].job
    position = 0
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        left, right = ending[child], ending[child + 1]
        if child + 1 < size:
            is_right = right.time < left.time or (right.time == left.time and right.job < left.job)
            child += int(is_right)
        below = ending[child]
        if time < below.time or (time == below.time and job < below.job):
            break
        ending[position].time = below.time
        ending[position].job = below.job
        position = child
    ending[position].time = time
    ending[position].job = job


@compiled
def sort_values(values: Floats) -> None:
    """Sort values in place, ascending (Shell's sort).

    numba's own sorts of several cached functions may be linked to one another, and crash (seen with 0.68). So
    one function of the package alone has one (`advisor.decide.matching`).
    """
    gap = len(values) // 2
    while gap > 0:
        for i in range(gap, len(values)):
            value, j = values[i], i
            while j >= gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value
        gap //= 2
