"""Histograms of run times by context, in a table of fixed size that forgets what was used least recently."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.predict.run_times.grid import BINS

Floats = NDArray[np.float64]
Keys = NDArray[np.uint64]

WAYS: Final = 8
"""A key may lie in this many neighbouring slots; a new key takes the one that was learned least recently."""

_SPREAD: Final = 0.03  # share of an observation that each neighbouring bin gets


class Memory(NamedTuple):
    """The table, one row a slot; the number of slots is a multiple of ``WAYS``.

    Attributes:
        keys: Hash of the slot's context, uint64, shape (slots,).
        learned_at: Clock of the last observation, shape (slots,); -1: the slot is free.
        mass: Decayed number of observations by bin, relative to the expert's origin, shape (slots, BINS).
        observations: Their sum, shape (slots,).
        last: Bins of the last run and of the one before it, shape (slots, 2); -1: there was none.
        clock: Number of jobs learned, shape (1,).
    """

    keys: Keys
    learned_at: NDArray[np.int64]
    mass: NDArray[np.float32]
    observations: Floats
    last: NDArray[np.int8]
    clock: NDArray[np.int64]

    @classmethod
    def empty(cls, slots: int) -> Self:
        """A table that knows nothing."""
        return cls(
            keys=np.zeros(slots, np.uint64),
            learned_at=np.full(slots, -1, np.int64),
            mass=np.zeros((slots, BINS), np.float32),
            observations=np.zeros(slots),
            last=np.full((slots, 2), -1, np.int8),
            clock=np.zeros(1, np.int64),
        )


@compiled
def find(memory: Memory, key: np.uint64) -> int:
    """The slot of a key; -1 if it is not there."""
    first = np.int64(key % np.uint64(len(memory.keys) // WAYS)) * WAYS
    for slot in range(first, first + WAYS):
        if memory.keys[slot] == key and memory.learned_at[slot] >= 0:
            return int(slot)
    return -1


@compiled
def claim(memory: Memory, key: np.uint64) -> int:
    """The slot of a key, emptied for it if it is not there."""
    found = find(memory, key)
    if found >= 0:
        return found
    first = np.int64(key % np.uint64(len(memory.keys) // WAYS)) * WAYS
    oldest = int(first)
    for slot in range(first, first + WAYS):
        if memory.learned_at[slot] < memory.learned_at[oldest]:
            oldest = int(slot)
    memory.keys[oldest] = key
    memory.mass[oldest, :] = 0.0
    memory.observations[oldest] = 0.0
    memory.last[oldest, :] = -1
    return oldest


@compiled
def record(memory: Memory, key: np.uint64, run_bin: int, origin: int, decay: float) -> None:
    """Learn one run time in the slot of a context: what was learned before counts ``decay`` times as much."""
    slot = claim(memory, key)
    memory.learned_at[slot] = memory.clock[0]
    place = min(BINS - 1, max(0, run_bin - origin))
    for k in range(BINS):
        memory.mass[slot, k] *= decay
    memory.mass[slot, place] += 1.0 - 2.0 * _SPREAD
    memory.mass[slot, max(0, place - 1)] += _SPREAD
    memory.mass[slot, min(BINS - 1, place + 1)] += _SPREAD
    memory.observations[slot] = memory.observations[slot] * decay + 1.0
    memory.last[slot, 1] = memory.last[slot, 0]
    memory.last[slot, 0] = run_bin
