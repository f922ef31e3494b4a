"""The size classifier's memory of waiting, running and finished jobs, in a few arrays.

The same compiled functions serve the daemon (one job at a time) and the replay of a log, so a replay shows
what the cluster would have done.

A *category* is a set of similar jobs (Zrigui et al., section 4.1), identified by a 64-bit hash of its kind
and values. Each category has one row of ``stats``; each submission one row of the ring ``slots``.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.model.job import Job, family

# Kinds of category. The first three are the paper's, the others ours.
USER_REQUEST: Final = 0
USER_PROCESSORS: Final = 1
USER_DAY: Final = 2  # day of the week: a calendar day would have no jobs of an earlier week
USER: Final = 3
USER_SHAPE: Final = 4  # same user, requested time and processors
USER_WORK: Final = 5  # same user, queue and job name
SHAPE: Final = 6  # same requested time and processors, all users
KINDS: Final = 7

# Columns of `stats`.
FINISHED: Final = 0
SMALL: Final = 1  # finished jobs that were small by the divider in force when they ended
LAST_END: Final = 2
LAST_SUBMIT: Final = 3
LIVE: Final = 4  # submitted and not ended
MEAN_LOG: Final = 5  # exponentially decaying mean of the logarithm of run times
MEAN_SHARE: Final = 6  # exponentially decaying mean of run time / requested time
BURST: Final = 7  # submissions in a row, each less than BURST_GAP_SECONDS after the previous
SUBMITTED: Final = 8
RUNS: Final = 9  # ring: logarithms of the last RING run times, in the order of their ends
RING: Final = 10
RECENT: Final = RUNS + RING  # ring: numbers of the last RECENT_JOBS submissions
RECENT_JOBS: Final = 8
STATS: Final = RECENT + RECENT_JOBS

# Columns of `slots`.
SLOT_NUMBER: Final = 0  # number of the submission in this row
SLOT_START: Final = 1  # NaN while it waits
SLOT_RUN: Final = 2  # NaN until it has ended; below 0: it never ran
SLOT_REQUEST: Final = 3
SLOT_PROCESSORS: Final = 4
SLOT_CATEGORY: Final = 5  # rows of its categories in `stats`, one per kind
SLOTS: Final = SLOT_CATEGORY + KINDS

BURST_GAP_SECONDS: Final = 60.0
DECAY: Final = 0.2
REMEMBERED_SUBMISSIONS: Final = 65_536
"""Jobs older than this number of submissions are no longer followed."""


class State(NamedTuple):
    """The arrays: ``index_*`` map a category to its row; ``counters`` are categories and submissions."""

    index_keys: NDArray[np.uint64]
    index_rows: NDArray[np.int64]
    stats: NDArray[np.float64]
    slots: NDArray[np.float64]
    counters: NDArray[np.int64]


def empty_state(categories: int = 1024, submissions: int = REMEMBERED_SUBMISSIONS) -> State:
    """Room for ``categories`` categories and for following the last ``submissions`` submissions."""
    entries = 1 << max(4, int(2 * categories - 1).bit_length())
    return State(
        index_keys=np.zeros(entries, np.uint64),
        index_rows=np.full(entries, -1, np.int64),
        stats=np.zeros((categories, STATS)),
        slots=np.full((submissions, SLOTS), -1.0),
        counters=np.zeros(2, np.int64),
    )


def with_room(state: State, categories: int) -> State:
    """The state with room for ``categories`` more; the same object where it has that."""
    used = int(state.counters[0])
    if used + categories <= len(state.stats):
        return state
    grown = empty_state(2 * (used + categories), submissions=0)
    grown.stats[:used] = state.stats[:used]
    _insert_all(grown, state.index_keys, state.index_rows)
    return grown._replace(slots=state.slots, counters=state.counters)


def reindexed(state: State) -> State:
    """The state with an index of the size that its categories need; a replay leaves a far larger one."""
    fresh = empty_state(max(1024, len(state.stats)), submissions=0)
    _insert_all(fresh, state.index_keys, state.index_rows)
    return state._replace(index_keys=fresh.index_keys, index_rows=fresh.index_rows)


@compiled
def insert(state: State, key: np.uint64, row: int) -> None:
    """Add a category to the index."""
    mask = np.uint64(len(state.index_keys) - 1)
    entry = key & mask
    while state.index_rows[entry] >= 0:
        entry = (entry + np.uint64(1)) & mask
    state.index_keys[entry] = key
    state.index_rows[entry] = row


@compiled
def _insert_all(state: State, keys: NDArray[np.uint64], rows: NDArray[np.int64]) -> None:
    for entry in range(len(keys)):
        if rows[entry] >= 0:
            insert(state, keys[entry], rows[entry])


@compiled
def find(state: State, key: np.uint64) -> int:
    """Row of a category, or -1."""
    mask = np.uint64(len(state.index_keys) - 1)
    entry = key & mask
    while state.index_rows[entry] >= 0:
        if state.index_keys[entry] == key:
            return int(state.index_rows[entry])
        entry = (entry + np.uint64(1)) & mask
    return -1


@lru_cache(maxsize=65_536)
def hash_of(value: str | None) -> int:
    """64 bits of a nominal value, the same in every process (unlike Python's hash)."""
    if value is None:
        return 0
    return int.from_bytes(hashlib.blake2b(value.encode("utf-8", "replace"), digest_size=8).digest(), "big")


def hashes_of(job: Job) -> tuple[int, int, int]:
    """Hashes of a job's user, queue and name (without its counters); 0 where unknown."""
    return hash_of(job.user), hash_of(job.queue), hash_of(family(job.name))


@compiled
def mix(first: np.uint64, second: np.uint64) -> np.uint64:
    """Hash of two words (boost's combination, splitmix64's finaliser)."""
    word = first ^ (
        second + np.uint64(0x9E3779B97F4A7C15) + (first << np.uint64(6)) + (first >> np.uint64(2))
    )
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled
def day_of_week(local: float) -> float:
    """The day of the week, 0 is Monday, of a local time in seconds since the epoch, which was a Thursday."""
    return (local // 86400.0 + 3.0) % 7.0


@compiled
def categories_of(
    names: NDArray[np.uint64], request: float, processors: float, local: float, keys: NDArray[np.uint64]
) -> None:
    """Write a job's categories into ``keys``, one per kind.

    ``names``: hashes of user, queue and job name; ``local``: the site's local time of its submission.
    """
    user, queue, name = names[0], names[1], names[2]
    requested, width = np.uint64(request), np.uint64(processors)
    shape = mix(mix(np.uint64(SHAPE + 1), requested), width)
    keys[USER_REQUEST] = mix(mix(np.uint64(USER_REQUEST + 1), user), requested)
    keys[USER_PROCESSORS] = mix(mix(np.uint64(USER_PROCESSORS + 1), user), width)
    keys[USER_DAY] = mix(mix(np.uint64(USER_DAY + 1), user), np.uint64(day_of_week(local)))
    keys[USER] = mix(np.uint64(USER + 1), user)
    keys[USER_SHAPE] = mix(mix(np.uint64(USER_SHAPE + 1), user), shape)
    keys[USER_WORK] = mix(mix(mix(np.uint64(USER_WORK + 1), user), queue), name)
    keys[SHAPE] = shape


@compiled
def _row_of(state: State, key: np.uint64) -> int:
    """Row of a category, which is added where it is new; the caller provides the room."""
    row = find(state, key)
    if row >= 0:
        return row
    row = int(state.counters[0])
    state.counters[0] += 1
    insert(state, key, row)
    category = state.stats[row]
    category[:] = 0.0
    category[LAST_END] = np.nan
    category[LAST_SUBMIT] = np.nan
    category[MEAN_LOG] = np.nan
    category[MEAN_SHARE] = np.nan
    category[RUNS:RECENT] = np.nan
    category[RECENT:STATS] = -1.0
    return row


@compiled
def submit(state: State, keys: NDArray[np.uint64], time: float, request: float, processors: float) -> int:
    """Note a submission; returns the number by which it is started and ended."""
    number = state.counters[1]
    state.counters[1] += 1
    slot = state.slots[number % len(state.slots)]
    slot[SLOT_NUMBER] = number
    slot[SLOT_START] = np.nan
    slot[SLOT_RUN] = np.nan
    slot[SLOT_REQUEST] = request
    slot[SLOT_PROCESSORS] = processors
    for kind in range(KINDS):
        row = _row_of(state, keys[kind])
        slot[SLOT_CATEGORY + kind] = row
        category = state.stats[row]
        in_burst = time - category[LAST_SUBMIT] < BURST_GAP_SECONDS
        category[BURST] = category[BURST] + 1.0 if in_burst else 1.0
        category[LAST_SUBMIT] = time
        category[LIVE] += 1.0
        category[RECENT + int(category[SUBMITTED]) % RECENT_JOBS] = number
        category[SUBMITTED] += 1.0
    return int(number)


@compiled
def start(state: State, number: int, time: float) -> None:
    """Note a job's start; NaN: it waits again."""
    slot = state.slots[number % len(state.slots)]
    if slot[SLOT_NUMBER] == number:
        slot[SLOT_START] = time


@compiled
def end(state: State, number: int, time: float, run: float, divider: float) -> None:
    """Note that a job ended after ``run`` seconds; below 0: it never ran, and teaches nothing."""
    slot = state.slots[number % len(state.slots)]
    if slot[SLOT_NUMBER] != number or not np.isnan(slot[SLOT_RUN]):
        return
    slot[SLOT_RUN] = run
    logarithm = math.log(max(run, 1.0))
    share = min(run / slot[SLOT_REQUEST], 2.0) if slot[SLOT_REQUEST] > 0 else np.nan
    for kind in range(KINDS):
        category = state.stats[int(slot[SLOT_CATEGORY + kind])]
        category[LIVE] -= 1.0
        if run < 0:
            continue
        category[RUNS + int(category[FINISHED]) % RING] = logarithm
        category[FINISHED] += 1.0
        category[LAST_END] = time
        if run < divider:
            category[SMALL] += 1.0
        category[MEAN_LOG] = _decayed_mean(category[MEAN_LOG], logarithm)
        category[MEAN_SHARE] = _decayed_mean(category[MEAN_SHARE], share)


@compiled
def _decayed_mean(mean: float, value: float) -> float:
    """Exponentially decaying mean; an unknown value changes nothing."""
    if np.isnan(value):
        return mean
    return value if np.isnan(mean) else mean + DECAY * (value - mean)
