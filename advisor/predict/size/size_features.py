"""Features of the size classifier (Zrigui et al. 2022, section 4.1) for a whole log; live: ``size_model``.

They are Table 4's ideas on everything known at the submission: the most recent *finished* jobs, the ages of
the newest ones, the user's live jobs, bursts, equal names.

At equal times submissions come before starts, and starts before ends: a job that ends in the second of a
submission is not yet known to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.predict.size import _size_rows as kernel
from advisor.predict.size._size_state import KINDS, State, empty_state, with_room
from advisor.predict.size.size_history import SizeHistory, WeeklyDividers

Events: TypeAlias = tuple[NDArray[np.int8], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]
"""Kind, time, job and divider in force of each event."""
NO_DIVIDER: Final = 1e9
"""Divider in seconds while there is none: every job is shorter, so all classes are equal."""

FEATURE_NAMES: Final = kernel.ADVISOR_NAMES
"""Names of a row's columns, in order."""
_EVENTS_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """A replayed history: features at each submission, shape (jobs, features), and the state at its end."""

    rows: NDArray[np.float32]
    state: State
    submissions: NDArray[np.int64]


def events_of(history: SizeHistory, ends: NDArray[np.float64], dividers: WeeklyDividers) -> Iterator[Events]:
    """Events of all jobs in order, thousands at once; ``ends`` say when each end becomes known, seconds."""
    count = len(history)
    what = np.repeat(np.array([kernel.SUBMISSION, kernel.START, kernel.END], np.int8), count)
    when = np.concatenate([history.submit, history.start, ends])
    which = np.tile(np.arange(count), 3)
    order = np.lexsort((which, what, when))
    order = order[np.isfinite(when[order])]
    for begin in range(0, len(order), _EVENTS_AT_ONCE):
        part = order[begin : begin + _EVENTS_AT_ONCE]
        yield what[part], when[part], which[part], np.nan_to_num(dividers.at(when[part]), nan=NO_DIVIDER)


def replay_features(history: SizeHistory, dividers: WeeklyDividers) -> Replayed:
    """Features of every job of a history, each from what was known at its submission."""
    count = len(history)
    rows = np.empty((count, len(FEATURE_NAMES)), np.float32)
    numbers = history.numbers()
    state, submissions = empty_state(), np.full(count, -1, np.int64)
    for events in events_of(history, history.end, dividers):
        state = with_room(state, KINDS * len(events[0]))
        kernel.replay(state, events, history.names, numbers, history.local, rows, submissions)
    return Replayed(rows, state, submissions)
