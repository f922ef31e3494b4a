"""Compiled profile of the processors that stay free: what Slurm's backfill scheduler plans with.

A profile is a step function: ``free[i]`` processors from ``times[i]`` to ``times[i + 1]``, the last for ever.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@compiled
def add_end(times: Floats, free: Ints, size: int, time: float, processors: int) -> int:
    """Add the planned end of a running job, in ascending order of time; the new size."""
    if time <= times[size - 1]:
        free[size - 1] += processors
        return size
    times[size] = time
    free[size] = free[size - 1] + processors
    return size + 1


@compiled
def earliest_start(times: Floats, free: Ints, size: int, processors: int, limit: float, steps: int) -> float:
    """When so many processors are free for ``limit`` seconds on end, at one of the first ``steps`` times.

    Infinite: at none of them.
    """
    first = 0
    while first < min(size, steps):
        end = times[first] + limit
        step = first
        while step < size and times[step] < end and free[step] >= processors:
            step += 1
        if step == size or times[step] >= end:
            return float(times[first])
        first = step + 1
    return np.inf


@compiled
def take(times: Floats, free: Ints, size: int, start: float, end: float, processors: int) -> int:
    """Take processors from ``start`` to ``end``; the new size, larger by 2 at most."""
    size = _split(times, free, size, start)
    size = _split(times, free, size, end)
    for step in range(size):
        if start <= times[step] < end:
            free[step] -= processors
    return size


@compiled
def _split(times: Floats, free: Ints, size: int, time: float) -> int:
    """Let a step begin at ``time``."""
    position = size
    while position > 0 and times[position - 1] > time:
        position -= 1
    if position == 0 or times[position - 1] == time:
        return size
    for step in range(size, position, -1):
        times[step], free[step] = times[step - 1], free[step - 1]
    times[position], free[position] = time, free[position - 1]
    return size + 1
