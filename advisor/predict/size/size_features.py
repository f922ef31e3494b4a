"""Features of the size classifier (Zrigui et al. 2022, section 4.1) for a whole log; live: ``size_model``.

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

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.predict.size import _size_rows as kernel
from advisor.predict.size._size_state import KINDS, State, empty_state, with_room
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
