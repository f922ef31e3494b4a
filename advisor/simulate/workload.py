"""A synthetic workload (``--trace synthetic``): the published model's jobs, from users who repeat jobs.

Sizes, run times and arrivals are Lublin and Feitelson's (``advisor.simulate.lublin``). That model has no
users, so nothing could be learned from its history. Here each arrival belongs to a user's session, and users
mostly repeat recent jobs (Zilber et al., "Using user sessions", and Tsafrir et al., "Backfilling using
system-generated predictions", describe both in the archive's logs). Requested times are generous round
numbers (Tsafrir et al., "Modeling user runtime estimates").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from scipy import special

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.model.table import JobTable
from advisor.simulate import lublin
from advisor.simulate.pool.pool import Pool

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (jobs done, jobs)."""

MONDAY = 1_704_067_200.0  # 2024-01-01 00:00 UTC: synthetic logs begin on a Monday midnight

_MINUTE, _HOUR = 60.0, 3600.0
ROUND_TIMES = np.array(
    [_MINUTE * m for m in (5, 10, 15, 20, 30, 45)]
    + [_HOUR * h for h in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 24, 30, 36, 48)]
)
"""Requested times that users type, seconds; the last is the site's limit."""

QUEUE_LIMITS = np.array([_HOUR, 12 * _HOUR])
"""Largest requested time of the queues short and medium, seconds; the third queue is long."""

_TOLD_ROWS: Final = 1_000  # between two reports of progress

# The behaviour of users, of the order seen in the archive's logs.
_USERS_PER_JOB: Final = 1.0  # times the square root of the jobs, at least 5: 100 users at 10,000 jobs
_ZIPF_EXPONENT: Final = 1.0  # the user of rank r has activity r^-exponent: a few users submit most jobs
_JOBS_PER_SESSION: Final = 5.0  # mean
_IDLE_JOBS: Final = 40
"""A session is over after this many jobs of other sessions. Jobs, not seconds, so that users do not depend on
the load."""
_SAME_AGAIN: Final = 0.60
_RECENT_AGAIN: Final = 0.32
"""Probabilities that the next job of a session is of the previous job's class, or of one of the user's recent
classes; otherwise the class is new."""
_SIMILARITY: Final = 0.97  # correlation of run times within a class, on the normal scale
_ALWAYS_THE_LIMIT: Final = 0.12  # share of classes submitted with the longest time the site allows
_REMEMBERED: Final = 6  # recent job classes of a user that may be repeated
_OPEN_SESSIONS: Final = 8  # sessions that can interleave


class _Draws(NamedTuple):
    """Uniform random numbers, one per job and purpose, so that compiled code needs no generator."""

    new_session: Floats
    which_session: Floats
    which_user: Floats
    repeat: Floats
    which_class: Floats


@compiled
def _assign_users(cumulative_activity: Floats, draws: _Draws) -> tuple[Ints, Ints, int]:
    """User and job class of each arrival, (n,) and (n,), and the number of classes.

    Open sessions are kept in a ring; one of them continues unless it is over or a new one begins.
    """
    count = len(draws.repeat)
    user = np.empty(count, np.int64)
    job_class = np.empty(count, np.int64)
    session_user = np.full(_OPEN_SESSIONS, -1)
    session_last = np.full(_OPEN_SESSIONS, -1)
    session_class = np.full(_OPEN_SESSIONS, -1)
    remembered = np.full((len(cumulative_activity), _REMEMBERED), -1)
    classes = 0
    newest = -1
    for row in range(count):
        # the square prefers recent sessions
        slot = (newest - int(draws.which_session[row] ** 2 * _OPEN_SESSIONS)) % _OPEN_SESSIONS
        is_over = session_user[slot] < 0 or row - session_last[slot] > _IDLE_JOBS
        if is_over or draws.new_session[row] < 1.0 / _JOBS_PER_SESSION:
            newest += 1
            slot = newest % _OPEN_SESSIONS
            session_user[slot] = np.searchsorted(cumulative_activity, draws.which_user[row])
            session_class[slot] = -1
        submitter = session_user[slot]
        chosen = session_class[slot]
        if chosen < 0 or draws.repeat[row] >= _SAME_AGAIN:
            chosen = -1
            if draws.repeat[row] < _SAME_AGAIN + _RECENT_AGAIN or session_class[slot] < 0:
                chosen = remembered[submitter, int(draws.which_class[row] * _REMEMBERED)]
            if chosen < 0:
                chosen = classes
                classes += 1
                remembered[submitter, 1:] = remembered[submitter, :-1].copy()
                remembered[submitter, 0] = chosen
        session_class[slot] = chosen
        session_last[slot] = row
        user[row] = submitter
        job_class[row] = chosen
    return user, job_class, classes


def _activity(users: int) -> Floats:
    """Cumulative probability that a session belongs to each user; Zipf by rank."""
    share = np.arange(1, users + 1, dtype=np.float64) ** -_ZIPF_EXPONENT
    cumulative: Floats = np.cumsum(share) / share.sum()
    cumulative[-1] = 1.0
    return cumulative


def _times(generator: np.random.Generator, job_class: Ints, size: Ints) -> tuple[Floats, Floats]:
    """Run and requested times, both (n,), seconds.

    A job's quantile is a normal variate correlated with that of its class, so classes have similar run times
    and all jobs together the published ones. Users request the long run of their class over an accuracy that
    is spread nearly evenly over 0 to 1 in logs (Tsafrir et al., "Modeling user runtime estimates"), rounded
    up; some always request the limit.
    """
    classes = int(job_class.max()) + 1
    of_class = generator.standard_normal(classes)[job_class]
    own = generator.standard_normal(len(job_class))
    spread = math.sqrt(1.0 - _SIMILARITY**2)
    run = lublin.run_times(special.ndtr(_SIMILARITY * of_class + spread * own), size)
    long_run = lublin.run_times(special.ndtr(_SIMILARITY * of_class + 1.5 * spread), size)
    accuracy = generator.uniform(0.05, 1.0, classes)[job_class]
    wanted = np.minimum(long_run / accuracy, ROUND_TIMES[-1])
    requested = ROUND_TIMES[np.searchsorted(ROUND_TIMES, wanted)]
    always_the_limit = (generator.random(classes) < _ALWAYS_THE_LIMIT)[job_class]
    requested = np.where(always_the_limit, ROUND_TIMES[-1], requested)
    return np.minimum(run, requested), requested


def submissions(
    generator: np.random.Generator,
    *,
    jobs: int,
    processors: int = 128,
    load: float = 0.5,
) -> JobTable:
    """Jobs as submitted, in submission order and whole seconds, before a cluster has run them.

    All waits are 0. A job that would exceed its request is cut off there and failed. Raises ValueError unless
    all numbers are positive.

    Args:
        load: Offered load: work per processor and second of the log. The published arrival process is
            stretched evenly to meet it. Repeated large jobs make it bursty: a machine at load 0.5 has waits
            like the archive's machines at two thirds.
    """
    if jobs < 1 or processors < 1 or not load > 0 or not math.isfinite(load):
        raise ValueError(f"jobs={jobs}, processors={processors} and load={load} must be positive")
    users = max(5, int(_USERS_PER_JOB * math.sqrt(jobs)))
    draws = _Draws(*(generator.random(jobs) for _ in _Draws._fields))
    user, job_class, classes = _assign_users(_activity(users), draws)
    size = lublin.sizes(generator, classes, processors)[job_class]
    run, requested = _times(generator, job_class, size)
    average_gaps = lublin.gaps(generator, jobs)
    stretch = float(run @ size) / (load * processors * average_gaps.sum())
    return JobTable(
        job_id=np.arange(1, jobs + 1),
        submit=lublin.arrival_times(average_gaps * stretch),
        wait=np.zeros(jobs),
        run=run,
        processors=size,
        requested_time=requested,
        user=user + 1,
        group=user % max(2, users // 8) + 1,
        queue=np.searchsorted(QUEUE_LIMITS, requested) + 1,
        status=np.where(run < requested, 1, 0),
        start_of_log=MONDAY,
        total_processors=processors,
        name="synthetic",
    )


def workload(
    generator: np.random.Generator,
    *,
    jobs: int,
    processors: int = 128,
    load: float = 0.5,
    progress: Progress | None = None,
) -> JobTable:
    """A history: :func:`submissions` after an FCFS cluster with EASY backfilling has run them.

    The waits are those that the simulated cluster gave each job, so that they can be learned from.
    """
    table = submissions(generator, jobs=jobs, processors=processors, load=load)
    return replace(table, wait=_starts(table, processors, progress) - table.submit)


def _starts(table: JobTable, processors: int, progress: Progress | None) -> Floats:
    """Starts under FCFS with EASY backfilling by the requested times, seconds, shape (jobs,)."""
    count = len(table)
    pool, starts = Pool(processors, count), np.full(count, math.nan)
    for row, now in enumerate([*table.submit.tolist(), math.inf]):
        for event in pool.advance(now):
            if event.has_started:
                starts[event.row] = event.time
        if row == count:
            break
        pool.add(
            row,
            processors=int(table.processors[row]),
            limit=float(table.requested_time[row]),
            run=float(table.run[row]),
            order=float(row),
        )
        if progress is not None and row % _TOLD_ROWS == 0:
            progress(row, count)
    if progress is not None:
        progress(count, count)
    return starts
