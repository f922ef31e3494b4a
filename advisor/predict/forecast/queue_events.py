"""Events of a live site's jobs, as rows of numbers that pass from one process to another.

The control process writes them (:class:`advisor.service.learn.queue_following.QueueStream`). It and the
submit server each apply them to `PlacementFeatures`, so both know what a replay would know at that time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.predict.forecast.placement_features import EventKind, PlacementFeatures
from advisor.predict.forecast.submission_features import Submission

Floats = NDArray[np.float64]

TIME, KIND, KEY, PROCESSORS, REQUEST, USER, GROUP, QUEUE, EXECUTABLE = range(9)
COLUMNS: Final = 9
"""Columns of an event: seconds, kind, the job's key, and of a submission what it says."""


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
