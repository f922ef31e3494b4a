"""Which tasks give way when a node shrinks to less than they use. Pure.

YARN ends the oldest (Agarwal et al., NSDI 2023, section 4.1): those that have most to lose. Who runs the
nodes may choose. A task ended now starts again from nothing, so its job waits for as long as the task had
run, and its cores have worked in vain for as long: work lost and delay are the same seconds. Those end that
lose the fewest core-seconds together: the exact answer, not the cheapest one after another.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled


def least_lost(cores: Ints, elapsed: Floats, excess: int) -> Ints:
    """Tasks that give back at least so many cores and lose the least work.

    Args:
        cores: int64 array, shape (tasks,): What each task on the node uses; 1 or more.
        elapsed: float64 array, shape (tasks,): What each would have run in vain, seconds.
        excess: Cores the node lacks.

    Returns:
        Places of the tasks that end, ascending; of several sets that lose as little, one of the fewest tasks.

    Raises:
        ValueError: All tasks together do not use so many cores.

    Examples:
        >>> least_lost(np.array([4, 1, 2]), np.array([60.0, 900.0, 100.0]), 2).tolist()
        [2]
    """
    if excess > cores.sum():
        raise ValueError(f"{excess} cores too many where tasks use {cores.sum()}")
    found: Ints = np.flatnonzero(_cheapest_cover(cores, elapsed * cores, max(excess, 0)))
    return found


@compiled
def _cheapest_cover(cores: Ints, loss: Floats, excess: int) -> NDArray[np.bool_]:
    """Whether each task is in the set; shape (tasks,). A knapsack, in tasks times cores steps."""
    least, number = np.full(excess + 1, math.inf), np.zeros(excess + 1, np.int64)
    least[0] = 0.0
    taken = np.zeros((len(cores), excess + 1), np.bool_)
    for task in range(len(cores)):
        for lacking in range(excess, 0, -1):  # downwards: what lacks less does not hold this task yet
            rest = max(lacking - cores[task], 0)
            total, count = least[rest] + loss[task], number[rest] + 1
            is_equal = total == least[lacking] and count < number[lacking]
            if total < least[lacking] or is_equal:
                least[lacking], number[lacking] = total, count
                taken[task, lacking] = True
    ends = np.zeros(len(cores), np.bool_)
    lacking = excess
    for task in range(len(cores) - 1, -1, -1):
        if taken[task, lacking]:
            ends[task] = True
            lacking = max(lacking - cores[task], 0)
    return ends
