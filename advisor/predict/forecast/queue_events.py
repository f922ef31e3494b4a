"""What happens to the jobs of a live site, as rows of numbers that go from one process to another.

The control process says what happened (:class:`advisor.service.learn.queue_following.QueueStream`); it and
the
submit server tell it to a `PlacementFeatures` each, and so both know what a replay would know at that moment.
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
    """Numbers that stand for names, by column; a number once given keeps its meaning.

    The forests split on these numbers, so that a forest of last week and today's queue must agree on them.

    Parameters
    ----------
    codes : mapping, optional
        By column, numbers given before.
    following : mapping of str to int, optional
        By column, the next number to give.
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
        # the numbers of names that come together, of new ones those they were given (True) or would be given
        # (False): looked up in one step, until a name is put
        self._together: dict[bool, dict[Names, tuple[int, int, int, int]]] = {True: {}, False: {}}

    def code(self, column: str, name: str | None) -> int:
        """Number of a name; a new name is given a new one."""
        found = self.look_up(column, name)
        if name is not None and found == self._next[column]:
            self.put(column, name, found)
        return found

    def look_up(self, column: str, name: str | None) -> int:
        """Number of a name, of a new one the number it would be given; nothing is changed."""
        if name is None:
            return UNKNOWN_CODE
        found = self._codes[column].get(name)
        if found is not None:
            return found
        return self._next[column] if len(self._codes[column]) < _MAX_NAMES else UNKNOWN_CODE

    def put(self, column: str, name: str, code: int) -> None:
        """Take over a number that somebody else has given."""
        if self._codes[column].get(name) != code:
            for kept in self._together.values():
                kept.clear()
        self._codes[column][name] = code
        self._next[column] = max(self._next[column], code + 1)

    def copy(self) -> Codes:
        """The same, to be changed by itself."""
        return Codes(self._codes, self._next)

    def only(self, used: Mapping[str, Container[int]]) -> Codes:
        """Without the names whose numbers are not in use; those numbers are never given again."""
        kept = {
            column: {name: code for name, code in codes.items() if code in used[column]}
            for column, codes in self._codes.items()
        }
        return Codes(kept, self._next)

    def new_since(self, before: Codes) -> list[tuple[str, str, int]]:
        """Column, name and number of each name that the other did not know."""
        return [
            (column, name, code)
            for column, codes in self._codes.items()
            for name, code in codes.items()
            if name not in before._codes[column]
        ]

    def as_plain(self) -> dict[str, Any]:
        """What JSON can hold: ``Codes(**codes.as_plain())`` is the same."""
        return {"codes": self._codes, "following": self._next}

    def submission(self, job: Job, time: float, *, learn: bool = True) -> Submission:
        """A job as the placement features meet it, submitted at ``time``; ``learn``: new names stay."""
        names = (job.user, job.group, job.queue, job.name)
        together = self._together[learn]
        codes = together.get(names)
        if codes is None:
            codes = self._codes_of(names, learn=learn)
            if len(together) >= _MAX_TOGETHER:
                together.clear()
            together[names] = codes
        request = job.requested_time
        said = (time, job.processors, math.nan if request is None else request, *codes)
        return tuple.__new__(Submission, said)  # its own __new__ is a function more

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
    """One event as a row; a submission's own time is the event's."""
    said: tuple[float, ...] = (0.0,) * (COLUMNS - PROCESSORS) if submission is None else submission[1:]
    return (time, float(kind), float(key), *map(float, said))


def submission_in(row: Floats) -> Submission:
    """The submission in an event of that kind."""
    return Submission(
        time=float(row[TIME]),
        processors=int(row[PROCESSORS]),
        request=float(row[REQUEST]),
        user=int(row[USER]),
        group=int(row[GROUP]),
        queue=int(row[QUEUE]),
        executable=int(row[EXECUTABLE]),
    )


def tell(observer: PlacementFeatures, row: Floats) -> None:
    """Tell an observer of one event."""
    kind, key = EventKind(int(row[KIND])), int(row[KEY])
    if kind is EventKind.SUBMIT:
        if key not in observer:
            observer.join(key, submission_in(row))
    else:
        observer.tell(kind, key, float(row[TIME]))
