"""What the queue looks like from one job: a compiled pass over everything that waits and runs."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.predict._addresses import by_address, doubles_at, words_at

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


# A table's head, in words: where it is, how many rows count, where the rows' numbers are in the order in
# which they end, whether that order is in force.
TABLE, ROWS, ORDER, IS_ORDERED = range(4)
HEAD: Final = 4


@by_address
def order_at(head_address: int) -> None:
    """Order the rows of a table by when they end if they are asked for all their time, unless they are."""
    head = words_at(head_address, HEAD)
    if head[IS_ORDERED] != 0:
        return
    rows = head[ROWS]
    table = doubles_at(head[TABLE], rows * COLUMNS).reshape((rows, COLUMNS))
    words_at(head[ORDER], rows)[:] = np.argsort(table[:, SINCE] + table[:, REQUEST])
    head[IS_ORDERED] = 1


@compiled
def queue_features(
    now: float,
    total: float,
    job: Floats,
    waiting: Floats,
    running: Floats,
    order: NDArray[np.int64],
    out: Floats,
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
    order : int64, shape (n,)
        The running jobs in the order in which their requested time ends.
    out : float64, shape (27,)
        Written.
    """
    out[:] = 0.0
    _look_at_waiting(now, job, waiting, out)
    busy = _look_at_running(now, job, running, out)
    free = total - busy
    out[0] = free
    out[1] = 1.0 if free >= job[PROCESSORS] else 0.0
    out[2] = free - job[PROCESSORS] - out[5]
    out[24] = (out[4] + out[20]) / max(total, 1.0)
    out[25] = _room_in(now, job[PROCESSORS], free, running, order)
    out[26] = _room_in(now, min(0.95 * total, job[PROCESSORS] + out[5]), free, running, order)


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
def _look_at_running(now: float, job: Floats, running: Floats, out: Floats) -> float:
    """Count, remaining work and age. Returns busy processors."""
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
    """Seconds until so many processors are free, if every running job takes all the time it asked for."""
    room, at = free, 0.0
    for i in order:
        if room >= needed:
            break
        room += running[i, PROCESSORS]
        at = max(0.0, running[i, SINCE] + running[i, REQUEST] - now)
    return at
