"""Features of the size classifier (Zrigui et al. 2022, section 4.1), for a log at once or job by job.

Two flavours:

``paper``
    Table 4 as printed; lag and aggregation features use only jobs that had finished by the week's start.
``advisor``
    Table 4's ideas on everything known at the submission: the most recent *finished* jobs, the ages of the
    newest ones, the user's live jobs, bursts, equal names.

At equal times submissions come before starts, and starts before ends: a job that ends in the second of a
submission is not yet known to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.model.job import Job
from advisor.predict.size import _size_rows as kernel
from advisor.predict.size import _size_state
from advisor.predict.size._size_state import KINDS, State, empty_state, hashes_of, reindexed, with_room
from advisor.predict.size.size_history import WEEK_SECONDS, SizeHistory, WeeklyDividers

Flavour: TypeAlias = Literal["paper", "advisor"]
NO_DIVIDER: Final = 1e9
"""Divider in seconds while there is none: every job is shorter, so all classes are equal."""

_NAMES = {"paper": kernel.PAPER_NAMES, "advisor": kernel.ADVISOR_NAMES}
_EVENTS_AT_ONCE = 20_000


def feature_names(flavour: Flavour) -> tuple[str, ...]:
    """Names of a row's columns, in order."""
    return _NAMES[flavour]


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """A replayed history: features at each submission, shape (jobs, features), and the state at its end."""

    rows: NDArray[np.float32]
    state: State
    submissions: NDArray[np.int64]


def replay_features(history: SizeHistory, dividers: WeeklyDividers, flavour: Flavour) -> Replayed:
    """Features of every job of a history, each from what was known at its submission."""
    ends = history.end
    if flavour == "paper":  # ends become known at the start of the next week
        weeks = np.ceil((ends - dividers.origin) / WEEK_SECONDS)
        ends = np.where(np.isfinite(ends), dividers.origin + weeks * WEEK_SECONDS, ends)
    count = len(history)
    what = np.repeat(np.array([kernel.SUBMISSION, kernel.START, kernel.END], np.int8), count)
    when = np.concatenate([history.submit, history.start, ends])
    which = np.tile(np.arange(count), 3)
    order = np.lexsort((which, what, when))
    order = order[np.isfinite(when[order])]
    rows = np.empty((count, len(feature_names(flavour))), np.float32)
    numbers = history.numbers()
    state, submissions = empty_state(), np.full(count, -1, np.int64)
    for begin in range(0, len(order), _EVENTS_AT_ONCE):
        part = order[begin : begin + _EVENTS_AT_ONCE]
        in_force = np.nan_to_num(dividers.at(when[part]), nan=NO_DIVIDER)
        state = with_room(state, KINDS * len(part))
        kernel.replay(
            state,
            (what[part], when[part], which[part], in_force),
            history.names,
            numbers,
            history.calendars,
            flavour == "paper",
            rows,
            submissions,
        )
    return Replayed(rows, state, submissions)


class LiveFeatures:
    """The ``advisor`` features, kept up one event at a time by the same functions as in a replay.

    Parameters
    ----------
    state : State, optional
        Initial state, e.g. of a replayed history.
    start_of_log : float
        Epoch seconds of time 0; 0 when times are epoch seconds.
    utc_offset_seconds : float
        The site's offset from UTC.
    """

    def __init__(
        self, state: State | None = None, *, start_of_log: float = 0.0, utc_offset_seconds: float = 0.0
    ) -> None:
        self._clock = start_of_log + utc_offset_seconds
        self.start_of_log = start_of_log
        self.utc_offset_seconds = utc_offset_seconds
        self._state = state if state is not None else empty_state()

    def row(self, job: Job, divider: float) -> NDArray[np.float32]:
        """Features of a submission, shape (features,)."""
        time = job.submit_time
        asked = np.array((time, job.requested_time or 0.0, job.processors, time + self._clock, divider))
        row = np.empty(len(kernel.ADVISOR_NAMES), np.float32)
        kernel.live_row(self._state, np.array(hashes_of(job), np.uint64), asked, row)
        return row

    def submit(self, job: Job) -> int:
        """Note a submission; returns its number."""
        self._state = with_room(self._state, KINDS)
        request, processors = job.requested_time or 0.0, float(job.processors)
        names = np.array(hashes_of(job), np.uint64)
        keys = np.empty(KINDS, np.uint64)
        _size_state.categories_of(names, request, processors, self._day_of_week(job), keys)
        return int(_size_state.submit(self._state, keys, job.submit_time, request, processors))

    def start(self, number: int, time: float) -> None:
        """Note that the job with this number runs since ``time``; NaN: it waits again."""
        _size_state.start(self._state, number, time)

    def runs_since(self, number: int) -> float:
        """When the job with this number started; NaN where it waits or is no longer followed."""
        slot = self._state.slots[number % len(self._state.slots)]
        return float(slot[_size_state.SLOT_START]) if slot[_size_state.SLOT_NUMBER] == number else math.nan

    def end(self, number: int, time: float, run_seconds: float, divider: float) -> None:
        """Note that the job ended; ``run_seconds`` below 0: it never ran."""
        _size_state.end(self._state, number, time, run_seconds, divider)

    def _day_of_week(self, job: Job) -> float:
        return ((job.submit_time + self._clock) // 86400.0 + 3) % 7

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, no longer than the part in use."""
        used = int(self._state.counters[0])
        followed = min(int(self._state.counters[1]), len(self._state.slots))
        return {
            "index_keys": self._state.index_keys,
            "index_rows": self._state.index_rows,
            "stats": self._state.stats[:used],
            "slots": self._state.slots[:followed],
            "counters": self._state.counters,
            "capacity": np.array([len(self._state.slots)], np.int64),
            "clock": np.array([self.start_of_log, self.utc_offset_seconds]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild the features from :meth:`to_arrays`, checked so that no index leaves an array.

        Raises BadInput for incomplete or damaged arrays.
        """
        try:
            state = _checked_state(arrays)
            start_of_log, utc_offset_seconds = (float(number) for number in arrays["clock"])
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise BadInput(
                f"damaged history: {error!r}",
                where="size model",
                mend="Run `advisor retrain`.",
                code="size.arrays",
            ) from None
        return cls(state, start_of_log=start_of_log, utc_offset_seconds=utc_offset_seconds)


def _checked_state(arrays: Mapping[str, NDArray[Any]]) -> State:
    categories, submissions = (int(number) for number in arrays["counters"])
    capacity = int(arrays["capacity"][0])
    index_keys = np.array(arrays["index_keys"], np.uint64)
    index_rows = np.array(arrays["index_rows"], np.int64)
    stats = np.array(arrays["stats"], np.float64)
    stored = np.array(arrays["slots"], np.float64)
    entries = len(index_keys)
    is_consistent = (
        0 < capacity <= 2**24
        and 0 <= categories == len(stats)
        and entries >= 16
        and entries & (entries - 1) == 0
        and entries > categories
        and index_rows.shape == index_keys.shape
        and stats.shape == (categories, _size_state.STATS)
        and stored.shape == (min(submissions, capacity), _size_state.SLOTS)
        and np.array_equal(np.sort(index_rows[index_rows >= 0]), np.arange(categories))
        and bool(np.all(stored[:, _size_state.SLOT_CATEGORY :] < max(categories, 1)))
        and bool(np.all(stored[:, _size_state.SLOT_CATEGORY :] >= 0))
    )
    if not is_consistent:
        msg = "its arrays do not fit together"
        raise ValueError(msg)
    slots = np.full((capacity, _size_state.SLOTS), -1.0)
    slots[: len(stored)] = stored
    counters = np.array([categories, submissions], np.int64)
    return reindexed(State(index_keys, index_rows, stats, slots, counters))
