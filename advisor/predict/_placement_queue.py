"""What the queue looks like from one job: a compiled pass over everything that waits and runs."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.predict._compile import compiled

Floats = NDArray[np.float64]

# Columns of a job in the queue or on the machine.
PROCESSORS, REQUEST, SINCE, QUEUE, USER = range(5)
COLUMNS: Final = 5

QUEUE_FEATURES: Final = (
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
    "alike_age_max",
    "running_jobs",
    "running_work",
    "running_age_mean",
    "same_user_running_jobs",
    "same_user_running_processors",
    "drain_time",
    "room_for_job_in",
    "room_for_queue_in",
)


@compiled
def queue_features(
    now: float,
    total: float,
    job: Floats,
    waiting: Floats,
    running: Floats,
    out: Floats,
    waiting_jobs: int,
    running_jobs: int,
) -> None:
    """Fill ``out`` (one number per `QUEUE_FEATURES`) for a job that is submitted now.

    Parameters
    ----------
    now, total : float
        Seconds; processors of the machine.
    job : float64, shape (5,)
        Its processors, requested seconds, submission, queue and user codes.
    waiting, running : float64, shape (n, 5)
        The same of jobs that wait (``SINCE``: submission) and run (``SINCE``: start).
    out : float64, shape (27,)
        Written.
    waiting_jobs, running_jobs : int
        How many of the rows count.
    """
    waiting, running = waiting[:waiting_jobs], running[:running_jobs]
    out[:] = 0.0
    _look_at_waiting(now, job, waiting, out)
    left = np.empty(len(running))
    busy = _look_at_running(now, job, running, left, out)
    free = total - busy
    out[0] = free
    out[1] = 1.0 if free >= job[PROCESSORS] else 0.0
    out[2] = free - job[PROCESSORS] - out[5]
    out[24] = (out[4] + out[20]) / max(total, 1.0)
    order = np.argsort(left)
    out[25] = _room_in(job[PROCESSORS], free, running, left, order)
    out[26] = _room_in(min(0.95 * total, job[PROCESSORS] + out[5]), free, running, left, order)


@compiled
def _look_at_waiting(now: float, job: Floats, waiting: Floats, out: Floats) -> None:
    """Count, work and oldest age: of all, of the same queue and user, of jobs that may go first."""
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
def _look_at_running(now: float, job: Floats, running: Floats, left: Floats, out: Floats) -> float:
    """Count, remaining work and age; ``left`` gets the requested time left. Returns busy processors."""
    busy = 0.0
    for i in range(len(running)):
        other = running[i]
        busy += other[PROCESSORS]
        left[i] = max(0.0, other[SINCE] + other[REQUEST] - now)
        out[19] += 1.0
        out[20] += other[PROCESSORS] * left[i]
        out[21] += now - other[SINCE]
        if other[USER] == job[USER]:
            out[22] += 1.0
            out[23] += other[PROCESSORS]
    if out[19] > 0.0:
        out[21] /= out[19]
    return busy


@compiled
def _room_in(needed: float, free: float, running: Floats, left: Floats, order: NDArray[np.int64]) -> float:
    """Seconds until so many processors are free, if every running job takes all the time it asked for."""
    room, at = free, 0.0
    for i in order:
        if room >= needed:
            break
        room += running[i, PROCESSORS]
        at = left[i]
    return at
