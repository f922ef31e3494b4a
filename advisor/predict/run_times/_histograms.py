"""Histograms of run times by context: the jobs that share one, and the table in which they are kept.

An expert is a way to say which jobs share a histogram, and to which time its bins are relative. The table has
a fixed size, and forgets what was used least recently.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled_in_place
from advisor.predict.run_times.grid import BINS, bin_of
from advisor.predict.run_times.job_numbers import JobNumbers

Keys = NDArray[np.uint64]
Whole = int | np.int64

# an expert, by what its jobs have in common; the table below has one line for each
EXPERTS: Final = 23
_NUMBERS: Final[tuple[np.int64, ...]] = tuple(np.arange(EXPERTS))
"""numba compiles a function anew for each plain integer that it is called with, but once for these."""
_ALL, _ALL_BY_REQUEST, _SAME_REQUEST, _SAME_QUEUE, _USER, _USER_BY_REQUEST = _NUMBERS[:6]
_USER_REQUEST, _USER_WIDTH, _USER_PROGRAM, _SAME_JOB, _LAST_TWO, _USER_LAST = _NUMBERS[6:12]
_USER_REQUEST_LAST, _STEP, _JOB_STEP, _JOB_LAST_TWO, _ACCOUNT, _ACCOUNT_BY_REQUEST = _NUMBERS[12:18]
_USER_PROCESSORS, _WIDTH_LAST, _WIDTH_STEP, _USER_LATELY, _JOB_LATELY = _NUMBERS[18:]
_NONE: Final = np.int64(0)  # in place of a further part of a key

_ABSOLUTE, _REQUEST, _LAST_OF_USER, _LAST_OF_WIDTH, _LAST_OF_JOB = range(5)
ORIGINS: Final = 5
PLACES: Final = EXPERTS + ORIGINS
"""Length of the array that :func:`look_up` writes."""

_LONG, _MEDIUM, _SHORT = 0.995, 0.95, 0.7  # factors by which a histogram forgets at each observation


class _Expert(NamedTuple):
    """An expert uses its parent's forecast while it has learned from few jobs; -1: it uses the prior."""

    number: Whole
    parent: Whole
    origin: int
    decay: float


_TABLE: Final = (
    _Expert(_ALL, -1, _ABSOLUTE, _LONG),
    _Expert(_ALL_BY_REQUEST, -1, _REQUEST, _LONG),
    _Expert(_SAME_REQUEST, _ALL, _ABSOLUTE, _LONG),
    _Expert(_SAME_QUEUE, _SAME_REQUEST, _ABSOLUTE, _LONG),
    _Expert(_USER, _ALL, _ABSOLUTE, _MEDIUM),
    _Expert(_USER_BY_REQUEST, _ALL_BY_REQUEST, _REQUEST, _MEDIUM),
    _Expert(_USER_REQUEST, _USER, _ABSOLUTE, _MEDIUM),
    _Expert(_USER_WIDTH, _USER_REQUEST, _ABSOLUTE, _MEDIUM),
    _Expert(_USER_PROGRAM, _USER, _ABSOLUTE, _MEDIUM),
    _Expert(_SAME_JOB, _USER_WIDTH, _ABSOLUTE, _MEDIUM),
    _Expert(_LAST_TWO, _SAME_REQUEST, _ABSOLUTE, _LONG),
    _Expert(_USER_LAST, _USER, _ABSOLUTE, _MEDIUM),
    _Expert(_USER_REQUEST_LAST, _USER_REQUEST, _ABSOLUTE, _MEDIUM),
    _Expert(_STEP, _ALL, _LAST_OF_USER, _LONG),
    _Expert(_JOB_STEP, _STEP, _LAST_OF_JOB, _LONG),
    _Expert(_JOB_LAST_TWO, _SAME_REQUEST, _ABSOLUTE, _LONG),
    _Expert(_ACCOUNT, _SAME_REQUEST, _ABSOLUTE, _MEDIUM),
    _Expert(_ACCOUNT_BY_REQUEST, _ALL_BY_REQUEST, _REQUEST, _MEDIUM),
    _Expert(_USER_PROCESSORS, _USER, _ABSOLUTE, _MEDIUM),
    _Expert(_WIDTH_LAST, _USER_WIDTH, _ABSOLUTE, _MEDIUM),
    _Expert(_WIDTH_STEP, _STEP, _LAST_OF_WIDTH, _LONG),
    _Expert(_USER_LATELY, _USER, _ABSOLUTE, _SHORT),
    _Expert(_JOB_LATELY, _SAME_JOB, _ABSOLUTE, _SHORT),
)
PARENT_OF: Final[Ints] = np.array([expert.parent for expert in _TABLE])
ORIGIN_OF: Final[Ints] = np.array([expert.origin for expert in _TABLE])
DECAY_OF: Final = np.array([expert.decay for expert in _TABLE])

_NEAR: Final = 12  # bins; larger distances of a former run time from the request are not distinguished
_UNKNOWN: Final = 99
_GUESS: Final = 8  # bins below the request, if no former run time is known
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_START: Final = np.uint64(0x9E3779B97F4A7C15)

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


@compiled_in_place
def find(memory: Memory, key: np.uint64) -> int:
    """The slot of a key; -1 if it is not there."""
    first = np.int64(key % np.uint64(len(memory.keys) // WAYS)) * WAYS
    for slot in range(first, first + WAYS):
        if memory.keys[slot] == key and memory.learned_at[slot] >= 0:
            return int(slot)
    return -1


@compiled_in_place
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


@compiled_in_place
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


@compiled_in_place
def request_bin(requested: float) -> int:
    """Bin of the requested time, seconds; the last bin where it is unknown."""
    return bin_of(requested) if _is_known(requested) else BINS - 1


@compiled_in_place
def _is_known(requested: float) -> bool:
    return 0.0 < requested < math.inf


@compiled_in_place
def look_up(memory: Memory, job: JobNumbers, out: Ints) -> None:
    """Write each expert's key for a job, shape (EXPERTS,), then the origins, shape (ORIGINS,)."""
    user, account, executable, queue, processors, requested = job
    top = request_bin(requested)
    quarter = round(4.0 * math.log2(max(1.0, requested))) if _is_known(requested) else -1
    width = int(math.log2(max(1, processors)))
    out[_ALL] = _key(_ALL, _NONE, _NONE, _NONE, _NONE)
    out[_ALL_BY_REQUEST] = _key(_ALL_BY_REQUEST, _NONE, _NONE, _NONE, _NONE)
    out[_SAME_REQUEST] = _key(_SAME_REQUEST, quarter, _NONE, _NONE, _NONE)
    out[_SAME_QUEUE] = _key(_SAME_QUEUE, queue, quarter // 4, width, _NONE)
    out[_USER] = _key(_USER, user, _NONE, _NONE, _NONE)
    out[_USER_BY_REQUEST] = _key(_USER_BY_REQUEST, user, _NONE, _NONE, _NONE)
    out[_USER_REQUEST] = _key(_USER_REQUEST, user, quarter, _NONE, _NONE)
    out[_USER_WIDTH] = _key(_USER_WIDTH, user, quarter, width, _NONE)
    out[_USER_PROGRAM] = _key(_USER_PROGRAM, user, executable, account, queue)
    out[_SAME_JOB] = _key(_SAME_JOB, user, quarter, processors, executable)
    out[_ACCOUNT] = _key(_ACCOUNT, account, executable, quarter, width)
    out[_ACCOUNT_BY_REQUEST] = _key(_ACCOUNT_BY_REQUEST, queue, account, width, _NONE)
    out[_USER_PROCESSORS] = _key(_USER_PROCESSORS, user, processors, _NONE, _NONE)
    out[_USER_LATELY] = _key(_USER_LATELY, user, _NONE, _NONE, _NONE)
    out[_JOB_LATELY] = _key(_JOB_LATELY, user, quarter, processors, executable)
    last, former = _last_two(memory, out[_USER])
    out[_LAST_TWO] = _key(_LAST_TWO, last, former, top // 2, _NONE)
    out[_USER_LAST] = _key(_USER_LAST, user, last, _NONE, _NONE)
    out[_USER_REQUEST_LAST] = _key(_USER_REQUEST_LAST, user, last, quarter, _NONE)
    out[_STEP] = _step_key(_STEP, last, former, top)
    guess = last if last >= 0 else top - _GUESS
    out[EXPERTS + _ABSOLUTE] = 0
    out[EXPERTS + _REQUEST] = top - (BINS - 1)
    out[EXPERTS + _LAST_OF_USER] = guess - BINS // 2
    last, former = _last_two(memory, out[_USER_WIDTH])
    out[_WIDTH_LAST] = _key(_WIDTH_LAST, user, quarter, width, last)
    out[_WIDTH_STEP] = _step_key(_WIDTH_STEP, last, former, top)
    out[EXPERTS + _LAST_OF_WIDTH] = (last if last >= 0 else guess) - BINS // 2
    last, former = _last_two(memory, out[_SAME_JOB])
    out[_JOB_LAST_TWO] = _key(_JOB_LAST_TWO, last, former, top, _NONE)
    out[_JOB_STEP] = _step_key(_JOB_STEP, last, former, top)
    out[EXPERTS + _LAST_OF_JOB] = (last if last >= 0 else guess) - BINS // 2


@compiled_in_place
def _step_key(expert: Whole, last: int, former: int, top: int) -> int:
    """How much the last run time differed from the one before it, and how near the request it was."""
    step = last - former if former >= 0 else _UNKNOWN
    room = min(top - last, _NEAR) if last >= 0 else _UNKNOWN
    return _key(expert, step, room, _NONE, _NONE)


@compiled_in_place
def _last_two(memory: Memory, key: int) -> tuple[int, int]:
    slot = find(memory, np.uint64(key))
    if slot < 0:
        return -1, -1
    return int(memory.last[slot, 0]), int(memory.last[slot, 1])


@compiled_in_place
def _key(expert: Whole, a: Whole, b: Whole, c: Whole, d: Whole) -> int:
    state = _mixed(_START, expert)
    return int(np.int64(_mixed(_mixed(_mixed(_mixed(state, a), b), c), d)))


@compiled_in_place
def _mixed(state: np.uint64, value: Whole) -> np.uint64:
    x = (state ^ np.uint64(np.int64(value) + 1_000_003)) * _MIX_1
    x = (x ^ (x >> np.uint64(29))) * _MIX_2
    return x ^ (x >> np.uint64(32))
