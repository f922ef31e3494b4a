"""A compiled heap of the moments at which running jobs truly end."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from advisor.compiled import compiled

Records: TypeAlias = Any
"""A record array; numba reads its fields as attributes, which the type checker does not know."""

ENDING = np.dtype([("time", np.float64), ("row", np.int64)], align=True)


@compiled
def heap_push(ending: Records, size: int, time: float, row: int) -> None:
    """Add to a heap of ``size`` true ends, smallest (time, row) on top."""
    position = size
    while position > 0:
        parent = (position - 1) >> 1
        above = ending[parent]
        if above.time < time or (above.time == time and above.row < row):
            break
        ending[position].time = above.time
        ending[position].row = above.row
        position = parent
    ending[position].time = time
    ending[position].row = row


@compiled
def heap_pop(ending: Records, size: int) -> None:
    """Remove the top of a heap of ``size`` true ends."""
    size -= 1
    time, row = ending[size].time, ending[size].row
    position = 0
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        if child + 1 < size:
            left, right = ending[child], ending[child + 1]
            child += int(right.time < left.time or (right.time == left.time and right.row < left.row))
        below = ending[child]
        if time < below.time or (time == below.time and row < below.row):
            break
        ending[position].time = below.time
        ending[position].row = below.row
        position = child
    ending[position].time = time
    ending[position].row = row
