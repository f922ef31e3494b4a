"""The published size classifier: Table 4's features, a random forest (Zrigui et al., sections 4.1, 4.2).

Lag and aggregation features use only jobs that had finished by the week's start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from advisor.compiled import compiled
from advisor.papers.forests.sklearn_forest import grown
from advisor.predict.size import _size_state as s
from advisor.predict.size._size_rows import START, SUBMISSION
from advisor.predict.size._size_state import KINDS, State, empty_state, with_room
from advisor.predict.size.size_features import Events, events_of
from advisor.predict.size.size_history import WEEK_SECONDS, SizeHistory, WeeklyDividers
from advisor.predict.size.size_training import SizeTraining
from advisor.predict.trees.forest import TreeEnsemble

CALENDAR: Final = ("hour", "day_of_week", "day_of_month", "month", "week", "quarter")
PAPER_KINDS: Final = (s.USER_REQUEST, s.USER_PROCESSORS, s.USER_DAY)
PAPER_NAMES: Final = (
    "requested_seconds",
    "processors",
    *CALENDAR,
    *(
        f"{category}.{feature}"
        for category in ("user_request", "user_processors", "user_day")
        for feature in ("class_1", "class_2", "class_3", "small_share")
    ),
)
"""Zrigui et al., Table 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTraining(SizeTraining):
    """A random forest on finished jobs; ``forest_sample``: jobs that each tree draws, with replacement.

    The paper gives no numbers: trees and sample are ours. The mean of the trees' shares decides, as in
    scikit-learn, where the paper speaks of a majority vote.
    """

    window_jobs: int = 1_000_000
    learns_running: bool = False
    forest_sample: int = 5_000

    def trees_on(self, rows: NDArray[np.float32], small: NDArray[np.bool_]) -> TreeEnsemble:
        """See :class:`SizeTraining`."""
        model = RandomForestClassifier(
            n_estimators=self.trees,
            max_samples=min(len(rows), self.forest_sample),
            n_jobs=self.threads,
            random_state=self.seed,
        )
        return grown(model.fit(rows, small))


def paper_rows(history: SizeHistory, dividers: WeeklyDividers) -> NDArray[np.float32]:
    """Features of every job of a history, shape (jobs, features); ends become known with the next week."""
    weeks = np.ceil((history.end - dividers.origin) / WEEK_SECONDS)
    ends = np.where(np.isfinite(history.end), dividers.origin + weeks * WEEK_SECONDS, history.end)
    count = len(history)
    rows = np.empty((count, len(PAPER_NAMES)), np.float32)
    numbers = history.numbers()
    state, submissions = empty_state(), np.full(count, -1, np.int64)
    for events in events_of(history, ends, dividers):
        state = with_room(state, KINDS * len(events[0]))
        _replay(state, events, history.names, numbers, history.local, rows, submissions)
    rows[:, 2:8] = _calendar(history.local)
    return rows


def _calendar(local: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hour, day of week (Monday 0), day of month, month, week of the year, quarter; shape (n, 6).

    ``local`` is the site's local time in seconds since the epoch.
    """
    days = np.floor(local / 86400.0)
    date = days.astype(np.int64).astype("datetime64[D]")
    month = date.astype("datetime64[M]")
    of_year = month.astype(np.int64) % 12
    return np.column_stack(
        [
            np.floor((local - 86400.0 * days) / 3600.0),
            (days + 3) % 7,
            (date - month).astype(np.int64) + 1,
            of_year + 1,
            (date - date.astype("datetime64[Y]")).astype(np.int64) // 7 + 1,
            of_year // 3 + 1,
        ]
    ).astype(np.float64)


@compiled
def paper_row(
    state: State,
    keys: NDArray[np.uint64],
    numbers: NDArray[np.float64],
    divider: float,
    row: NDArray[np.float32],
) -> None:
    """Zrigui et al., Table 4, without the calendar; NaN where the category has no such job."""
    request, processors = numbers[0], numbers[1]
    row[:] = np.nan
    if request > 0:
        row[0] = request
    row[1] = processors
    log_divider = math.log(divider)
    base = 8
    for kind in PAPER_KINDS:
        index = s.find(state, keys[kind])
        if index >= 0:
            category = state.stats[index]
            finished = int(category[s.FINISHED])
            for lag in range(min(3, finished)):
                run = category[s.RUNS + (finished - 1 - lag) % s.RING]
                row[base + lag] = 1.0 if run < log_divider else 0.0
            if finished > 0:
                row[base + 3] = category[s.SMALL] / finished
        base += 4


@compiled
def _replay(
    state: State,
    events: Events,
    names: NDArray[np.uint64],
    numbers: NDArray[np.float64],
    local: NDArray[np.float64],
    rows: NDArray[np.float32],
    submissions: NDArray[np.int64],
) -> None:
    """Process events in order and write one row at each submission, as `_size_rows.replay` does."""
    what, when, which, dividers = events
    keys = np.empty(s.KINDS, np.uint64)
    for i in range(len(what)):
        job = which[i]
        request, processors, run = numbers[job, 0], numbers[job, 1], numbers[job, 2]
        if what[i] == SUBMISSION:
            s.categories_of(names[job], request, processors, local[job], keys)
            paper_row(state, keys, numbers[job], dividers[i], rows[job])
            submissions[job] = s.submit(state, keys, when[i], request, processors)
        elif what[i] == START:
            s.start(state, submissions[job], when[i])
        else:
            s.end(state, submissions[job], when[i], run, dividers[i])
