"""The experts: for which jobs each has a histogram, and relative to what."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.predict.run_times._memory import Keys, Memory, find
from advisor.predict.run_times.grid import BINS, bin_of

Integers = NDArray[np.int64]

_USER: Final = 4
_SAME_JOB: Final = 9
_NEAR: Final = 12  # bins; a run is told apart from the request only if it is nearer
_UNKNOWN: Final = 99

EXPERTS: Final = 18
ABSOLUTE, REQUEST, LAST_OF_USER, LAST_OF_JOB = 0, 1, 2, 3
ORIGIN_OF: Final[Integers] = np.array([0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 1])
"""What an expert's histogram is relative to: run times themselves, the request, a former run time."""
PARENT_OF: Final[Integers] = np.array([-1, -1, 0, 2, 0, 1, 4, 6, 4, 7, 2, 4, 6, 0, 13, 2, 2, 1])
"""The expert that an expert falls back on while it has seen little; -1: the prior."""
_IS_SHARED: Final = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0])
DECAY_OF: Final = np.where(_IS_SHARED == 1, 0.995, 0.95)
"""Factor by which a histogram forgets at each observation: the histograms of all users remember longer."""

_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_START: Final = np.uint64(0x9E3779B97F4A7C15)


@compiled
def _mixed(state: int, value: int) -> int:
    x = (np.uint64(state) ^ np.uint64(np.int64(value) + 1_000_003)) * _MIX_1
    x = (x ^ (x >> np.uint64(29))) * _MIX_2
    return x ^ (x >> np.uint64(32))  # type: ignore[return-value]


@compiled
def _key(expert: int, a: int, b: int, c: int, d: int) -> int:
    x = _mixed(_START, expert)  # type: ignore[arg-type]
    return _mixed(_mixed(_mixed(_mixed(x, a), b), c), d)


@compiled
def request_bin(requested: float) -> int:
    """Bin of the requested time, seconds; the last bin where it is unknown (NaN)."""
    return BINS - 1 if math.isnan(requested) else bin_of(requested)


@compiled
def look_up(  # noqa: PLR0917 (compiled functions take positions only)
    memory: Memory,
    user: int,
    account: int,
    executable: int,
    queue: int,
    processors: int,
    requested: float,
    keys: Keys,
    origins: Integers,
) -> None:
    """Write the key of each expert's histogram for a job, shape (EXPERTS,), and the origins, shape (4,)."""
    top = request_bin(requested)
    quarter = -1 if math.isnan(requested) else round(4.0 * math.log2(max(1.0, requested)))
    width = int(math.log2(max(1, processors)))
    keys[_USER] = _key(_USER, user, 0, 0, 0)
    keys[_SAME_JOB] = _key(_SAME_JOB, user, quarter, processors, executable)
    user_1, user_2 = _last_two(memory, keys[_USER])
    same_1, same_2 = _last_two(memory, keys[_SAME_JOB])
    user_step = user_1 - user_2 if user_2 >= 0 else _UNKNOWN
    same_step = same_1 - same_2 if same_2 >= 0 else _UNKNOWN
    user_room = min(top - user_1, _NEAR) if user_1 >= 0 else _UNKNOWN
    same_room = min(top - same_1, _NEAR) if same_1 >= 0 else _UNKNOWN
    keys[0] = _key(0, 0, 0, 0, 0)
    keys[1] = _key(1, 0, 0, 0, 0)
    keys[2] = _key(2, quarter, 0, 0, 0)
    keys[3] = _key(3, queue, quarter // 4, width, 0)
    keys[5] = _key(5, user, 0, 0, 0)
    keys[6] = _key(6, user, quarter, 0, 0)
    keys[7] = _key(7, user, quarter, width, 0)
    keys[8] = _key(8, user, executable, account, queue)
    keys[10] = _key(10, user_1, user_2, top // 2, 0)
    keys[11] = _key(11, user, user_1, 0, 0)
    keys[12] = _key(12, user, user_1, quarter, 0)
    keys[13] = _key(13, user_step, user_room, 0, 0)
    keys[14] = _key(14, same_step, same_room, 0, 0)
    keys[15] = _key(15, same_1, same_2, top, 0)
    keys[16] = _key(16, account, executable, quarter, width)
    keys[17] = _key(17, queue, account, width, 0)
    guess = top - 8
    origins[ABSOLUTE] = 0
    origins[REQUEST] = top - (BINS - 1)
    origins[LAST_OF_USER] = (user_1 if user_1 >= 0 else guess) - BINS // 2
    origins[LAST_OF_JOB] = (same_1 if same_1 >= 0 else user_1 if user_1 >= 0 else guess) - BINS // 2


@compiled
def _last_two(memory: Memory, key: int) -> tuple[int, int]:
    slot = find(memory, key)
    if slot < 0:
        return -1, -1
    return int(memory.last[slot, 0]), int(memory.last[slot, 1])
