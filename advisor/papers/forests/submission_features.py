"""A submission for the distribution forests: its features, with their compiled code.

One pass over all waiting and running jobs gives the queue's features. Those of the history change only with
events and are kept up by `PlacementFeatures` (``placement_features``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.compiled import compiled

# Columns of a job in the queue or on the machine.
PROCESSORS, REQUEST, SINCE, QUEUE, USER = range(5)
COLUMNS: Final = 5
# Further columns of the submission that is asked about: the request as given, processors of the machine.
REQUESTED, GROUP, EXECUTABLE, CLOCK, TOTAL = range(COLUMNS, COLUMNS + 5)

UNKNOWN: Final = -1.0
"""Value of unknown features; known ones are 0 or more (except `slack_processors`)."""


_REQUEST_FEATURES: Final = (
    "requested_time",
    "processors",
    "requested_work",
    "queue",
    "user",
    "group",
    "executable",
    "time_of_day",
    "day_of_week",
    "submission_time",
)
_HISTORY_FEATURES: Final = (
    *(f"user_run_{lag}" for lag in (1, 2, 3)),
    "user_run_max",
    "user_run_median",
    *(f"user_size_run_{lag}" for lag in (1, 2)),
    *(f"user_request_run_{lag}" for lag in (1, 2)),
    *(f"user_executable_run_{lag}" for lag in (1, 2)),
    "similar_run_1",
    "similar_run_mean",
    "similar_run_max",
    "similar_runs",
    "recent_wait_mean_5",
    "recent_wait_mean_20",
    "queue_wait_1",
    "queue_wait_mean",
    "user_wait_1",
    "user_wait_mean",
    "queue_size_wait_1",
    "queue_size_wait_mean",
    "since_last_submission",
    "last_is_similar",
    "last_state",
    "last_elapsed",
    "last_wait",
)
_QUEUE_FEATURES: Final = (
    "free_processors",
    "fits",
    "slack_processors",
    "waiting_jobs",
    "waiting_work",
    "waiting_processors",
    "waiting_age_max",
    "waiting_age_mean",
    "same_queue_jobs",
    "same_queue_work",
    "same_queue_age_max",
    "same_user_jobs",
    "same_user_work",
    "same_user_age_max",
    "not_larger_jobs",
    "not_larger_age_max",
    "not_larger_nor_longer_jobs",
    "not_larger_nor_longer_age_max",
    "similar_age_max",
    "running_jobs",
    "running_work",
    "running_age_mean",
    "same_user_running_jobs",
    "same_user_running_processors",
    "drain_time",
    "room_for_job_in",
    "room_for_queue_in",
)
FEATURES: Final = (*_REQUEST_FEATURES, *_QUEUE_FEATURES, *_HISTORY_FEATURES)
"""Names of the columns, in order."""

_QUEUE_AT: Final = len(_REQUEST_FEATURES)
HISTORY_AT: Final = _QUEUE_AT + len(_QUEUE_FEATURES)
"""First column of the history's features."""


class Submission(NamedTuple):
    """The request of a submission.

    Attributes:
        time: Seconds.
        request: Requested seconds; NaN when not given.
        user, group, queue, executable: Codes of names, -1 when unknown.
    """

    time: float
    processors: int
    request: float
    user: int
    group: int
    queue: int
    executable: int


@compiled
def fill_features(
    asked: Floats, waiting: Floats, running: Floats, order: NDArray[np.int64], out: Floats
) -> None:
    """Write the features of a submission, except those of the history.

    Args:
        asked: float64, shape (10,): Processors, requested seconds (with a default), time of submission, codes
            of queue and user; then requested seconds as given (or NaN), codes of group and executable, the
            users' wall clock in seconds, processors of the machine.
        waiting, running: float64, shape (n, 5): Jobs that wait (``SINCE``: submission) and run (``SINCE``:
            start).
        order: int64, shape (n,): The running jobs in the order in which their requested time ends.
        out: float64, shape (features,): Written up to ``HISTORY_AT``.
    """
    clock = asked[CLOCK]
    out[0] = UNKNOWN if np.isnan(asked[REQUESTED]) else asked[REQUESTED]
    out[1] = asked[PROCESSORS]
    out[2] = asked[PROCESSORS] * asked[REQUEST]
    out[3], out[4], out[5], out[6] = asked[QUEUE], asked[USER], asked[GROUP], asked[EXECUTABLE]
    out[7] = clock % 86_400.0
    out[8] = clock // 86_400.0 % 7.0
    out[9] = asked[SINCE]
    _queue_features(asked[SINCE], asked[TOTAL], asked, waiting, running, order, out[_QUEUE_AT:HISTORY_AT])


@compiled
def _queue_features(
    now: float,
    total: float,
    job: Floats,
    waiting: Floats,
    running: Floats,
    order: NDArray[np.int64],
    out: Floats,
) -> None:
    """Write one number per `_QUEUE_FEATURES`."""
    out[:] = 0.0
    _count_waiting(now, job, waiting, out)
    busy = _count_running(now, job, running, out)
    free = total - busy
    out[0] = free
    out[1] = 1.0 if free >= job[PROCESSORS] else 0.0
    out[2] = free - job[PROCESSORS] - out[5]
    out[24] = (out[4] + out[20]) / max(total, 1.0)
    out[25] = _room_in(now, job[PROCESSORS], free, running, order)
    out[26] = _room_in(now, min(0.95 * total, job[PROCESSORS] + out[5]), free, running, order)


@compiled
def _count_waiting(now: float, job: Floats, waiting: Floats, out: Floats) -> None:
    """Count, work and highest age of waiting jobs: all, same queue, same user, likely to go first."""
    for i in range(len(waiting)):
        other = waiting[i]
        age = now - other[SINCE]
        work = other[PROCESSORS] * other[REQUEST]
        out[3] += 1.0
        out[4] += work
        out[5] += other[PROCESSORS]
        out[6] = max(out[6], age)
        out[7] += age
        if other[QUEUE] == job[QUEUE]:
            out[8] += 1.0
            out[9] += work
            out[10] = max(out[10], age)
        if other[USER] == job[USER]:
            out[11] += 1.0
            out[12] += work
            out[13] = max(out[13], age)
            if other[PROCESSORS] == job[PROCESSORS] and other[REQUEST] == job[REQUEST]:
                out[18] = max(out[18], age)
        if other[PROCESSORS] <= job[PROCESSORS]:
            out[14] += 1.0
            out[15] = max(out[15], age)
            if other[REQUEST] <= job[REQUEST]:
                out[16] += 1.0
                out[17] = max(out[17], age)
    if out[3] > 0.0:
        out[7] /= out[3]


@compiled
def _count_running(now: float, job: Floats, running: Floats, out: Floats) -> float:
    """Count, remaining work and age of running jobs; returns the busy processors."""
    busy = 0.0
    for i in range(len(running)):
        other = running[i]
        busy += other[PROCESSORS]
        left = max(0.0, other[SINCE] + other[REQUEST] - now)
        out[19] += 1.0
        out[20] += other[PROCESSORS] * left
        out[21] += now - other[SINCE]
        if other[USER] == job[USER]:
            out[22] += 1.0
            out[23] += other[PROCESSORS]
    if out[19] > 0.0:
        out[21] /= out[19]
    return busy


@compiled
def _room_in(now: float, needed: float, free: float, running: Floats, order: NDArray[np.int64]) -> float:
    """Seconds until ``needed`` processors are free, if every running job uses its whole requested time."""
    room, wait = free, 0.0
    for i in order:
        if room >= needed:
            break
        room += running[i, PROCESSORS]
        wait = max(0.0, running[i, SINCE] + running[i, REQUEST] - now)
    return wait
