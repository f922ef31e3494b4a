"""Events of a live site's jobs, as rows of numbers that pass from one process to another.

The control process writes them (:class:`advisor.service.learn.queue_following.QueueStream`). It and the
submit server each apply them to `PlacementFeatures`, so both know what a replay would know at that time.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.model.job import Job
from advisor.model.table import UNKNOWN_CODE
from advisor.predict.forecast.placement_features import EventKind, PlacementFeatures, Submission

Floats = NDArray[np.float64]
Names = tuple[str | None, str | None, str | None, str | None]
"""User, group, queues and executable."""

TIME, KIND, KEY, PROCESSORS, REQUEST, USER, GROUP, QUEUE, EXECUTABLE = range(9)
COLUMNS: Final = 9
"""Columns of an event: seconds, kind, the job's key, and of a submission what it says."""

CODED: Final = ("user", "group", "queue", "executable")
_MAX_NAMES: Final = 200_000
_MAX_TOGETHER: Final = 65_536


class Codes:
    """Codes of names, by column; a code never changes its meaning.

    The forests split on codes, so last week's forest and today's queue must agree on them.

    Parameters
    ----------
    codes : mapping, optional
        Existing codes by column.
    following : mapping of str to int, optional
        The next code to give, by column.
    """

    def __init__(
        self,
        codes: Mapping[str, Mapping[str, int]] | None = None,
        following: Mapping[str, int] | None = None,
    ) -> None:
        self._codes = {column: dict((codes or {}).get(column, {})) for column in CODED}
        self._next = {
            column: max(
                (following or {}).get(column, 0), max(self._codes[column].values(), default=UNKNOWN_CODE) + 1
            )
            for column in CODED
        }
        # Codes of the names of one job, cleared when a name is added. New names have been given codes in the
        # memo of True, and would be given those in the memo of False.
        self._memo: dict[bool, dict[Names, tuple[int, int, int, int]]] = {True: {}, False: {}}

    def code(self, column: str, name: str | None) -> int:
        """Code of a name; a new name gets a new one."""
        found = self.look_up(column, name)
        if name is not None and found == self._next[column]:
            self.put(column, name, found)
        return found

    def look_up(self, column: str, name: str | None) -> int:
        """Code of a name, or the one that a new name would get; nothing is changed."""
        if name is None:
            return UNKNOWN_CODE
        found = self._codes[column].get(name)
        if found is not None:
            return found
        return self._next[column] if len(self._codes[column]) < _MAX_NAMES else UNKNOWN_CODE

    def put(self, column: str, name: str, code: int) -> None:
        """Add a name with a code given by another process."""
        if self._codes[column].get(name) != code:
            for memo in self._memo.values():
                memo.clear()
        self._codes[column][name] = code
        self._next[column] = max(self._next[column], code + 1)

    def copy(self) -> Codes:
        """An independent copy."""
        return Codes(self._codes, self._next)

    def only(self, used: Mapping[str, Container[int]]) -> Codes:
        """The codes in use; the others are never given again."""
        memo = {
            column: {name: code for name, code in codes.items() if code in used[column]}
            for column, codes in self._codes.items()
        }
        return Codes(memo, self._next)

    def new_since(self, before: Codes) -> list[tuple[str, str, int]]:
        """Column, name and code of each name that ``before`` lacks."""
        return [
            (column, name, code)
            for column, codes in self._codes.items()
            for name, code in codes.items()
            if name not in before._codes[column]
        ]

    def as_plain(self) -> dict[str, Any]:
        """Values for JSON: ``Codes(**codes.as_plain())`` is equal."""
        return {"codes": self._codes, "following": self._next}

    def submission(self, job: Job, time: float, *, learn: bool = True) -> Submission:
        """A job's submission at ``time`` in codes; with ``learn``, new names are added."""
        names = (job.user, job.group, job.queue, job.name)
        memo = self._memo[learn]
        codes = memo.get(names)
        if codes is None:
            codes = self._codes_of(names, learn=learn)
            if len(memo) >= _MAX_TOGETHER:
                memo.clear()
            memo[names] = codes
        request = job.requested_time
        fields = (time, job.processors, math.nan if request is None else request, *codes)
        return tuple.__new__(Submission, fields)  # faster than the named tuple's own __new__

    def _codes_of(self, names: Names, *, learn: bool) -> tuple[int, int, int, int]:
        user, group, queues, executable = names
        code = self.code if learn else self.look_up
        return (
            code("user", user),
            code("group", group),
            code("queue", queues.partition(",")[0] if queues else None),
            code("executable", executable),
        )


def event(kind: EventKind, key: int, time: float, submission: Submission | None = None) -> tuple[float, ...]:
    """One event as a row; a submission's time is the event's."""
    fields: tuple[float, ...] = (0.0,) * (COLUMNS - PROCESSORS) if submission is None else submission[1:]
    return (time, float(kind), float(key), *map(float, fields))


def submission_in(row: Floats) -> Submission:
    """The submission of a SUBMIT event."""
    return Submission(
        time=float(row[TIME]),
        processors=int(row[PROCESSORS]),
        request=float(row[REQUEST]),
        user=int(row[USER]),
        group=int(row[GROUP]),
        queue=int(row[QUEUE]),
        executable=int(row[EXECUTABLE]),
    )


def apply_event(observer: PlacementFeatures, row: Floats) -> None:
    """Apply one event to the features."""
    kind, key = EventKind(int(row[KIND])), int(row[KEY])
    if kind is EventKind.SUBMIT:
        if key not in observer:
            observer.join(key, submission_in(row))
    else:
        observer.apply_event(kind, key, float(row[TIME]))
