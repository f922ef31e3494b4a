"""A synthetic workload: the published model's jobs, from users who come in sessions and repeat themselves.

Sizes, run times and arrivals are Lublin and Feitelson's (``advisor.simulate.lublin``). That model has no
users, so nothing could be learned from its history. Here each arrival belongs to a session of some user, and
a user mostly submits again what he submitted recently (Zilber et al., "Using user sessions", and Tsafrir et
al., "Backfilling using system-generated predictions", describe both in the archive's logs). Requested times
are the round numbers people type, and generous (Tsafrir et al., "Modeling user runtime estimates").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from advisor.compiled import compiled
from advisor.model.table import JobTable
from advisor.simulate import lublin
from advisor.simulate.demand import demand_of
from advisor.simulate.engine import Progress, simulate
from advisor.simulate.lublin import Floats, Ints

MONDAY = 1_704_067_200.0  # 2024-01-01 00:00 UTC: synthetic logs begin on a Monday midnight

_MINUTE, _HOUR = 60.0, 3600.0
ROUND_TIMES = np.array(
    [_MINUTE * m for m in (5, 10, 15, 20, 30, 45)]
    + [_HOUR * h for h in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 24, 30, 36, 48)]
)
"""Requested times people type, seconds; the last is the site's limit."""

QUEUE_LIMITS = np.array([_HOUR, 12 * _HOUR])
"""Queues by requested time: short up to an hour, medium up to twelve, long beyond."""

_REMEMBERED = 6  # job classes a user goes back to
_OPEN_SESSIONS = 8  # sessions that can interleave


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How users behave; the defaults are of the order seen in the archive's logs.

    Attributes
    ----------
    users_per_job : float
        Number of users = ``users_per_job * sqrt(jobs)``, at least 5: 100 users at 10,000 jobs.
    zipf_exponent : float
        The user of rank r has activity r^-exponent: a few users submit most jobs.
    jobs_per_session : float
        Mean jobs of a session.
    idle_jobs : int
        A session is over when this many jobs of others came in between. Counted in jobs, not seconds, so
        that who submits what does not depend on the load.
    same_again, recent_again : float
        Probabilities that the next job of a session is of the class of the one before, or of one of the
        user's recent classes; otherwise the class is new.
    similarity : float
        Correlation of run times within a class, on the normal scale.
    always_the_limit : float
        Share of classes submitted with the longest time the site allows.
    """

    users_per_job: float = 1.0
    zipf_exponent: float = 1.0
    jobs_per_session: float = 5.0
    idle_jobs: int = 40
    same_again: float = 0.60
    recent_again: float = 0.32
    similarity: float = 0.97
    always_the_limit: float = 0.12


HABITS = Habits()


class _Draws(NamedTuple):
    """Uniform random numbers, one per job and purpose, so that the loop below needs no generator."""

    new_session: Floats
    which_session: Floats
    which_user: Floats
    repeat: Floats
    which_class: Floats


@compiled
def _who_submits_what(
    cumulative_activity: Floats, draws: _Draws, habits: tuple[float, int, float, float]
) -> tuple[Ints, Ints, int]:
    """User and job class of each arrival: (n,), (n,) and the number of classes.

    Open sessions sit in a ring; one is continued unless it is over or a new one begins.
    """
    new_probability, idle_jobs, same_again, any_again = habits
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
        # the square prefers sessions begun lately
        slot = (newest - int(draws.which_session[row] ** 2 * _OPEN_SESSIONS)) % _OPEN_SESSIONS
        is_over = session_user[slot] < 0 or row - session_last[slot] > idle_jobs
        if is_over or draws.new_session[row] < new_probability:
            newest += 1
            slot = newest % _OPEN_SESSIONS
            session_user[slot] = np.searchsorted(cumulative_activity, draws.which_user[row])
            session_class[slot] = -1
        who = session_user[slot]
        chosen = session_class[slot]
        if chosen < 0 or draws.repeat[row] >= same_again:
            chosen = -1
            if draws.repeat[row] < any_again or session_class[slot] < 0:
                chosen = remembered[who, int(draws.which_class[row] * _REMEMBERED)]
            if chosen < 0:
                chosen = classes
                classes += 1
                remembered[who, 1:] = remembered[who, :-1].copy()
                remembered[who, 0] = chosen
        session_class[slot] = chosen
        session_last[slot] = row
        user[row] = who
        job_class[row] = chosen
    return user, job_class, classes


def _activity(users: int, exponent: float) -> Floats:
    """Cumulative probability that a session is the user's; Zipf by rank."""
    share = np.arange(1, users + 1, dtype=np.float64) ** -exponent
    cumulative: Floats = np.cumsum(share) / share.sum()
    cumulative[-1] = 1.0
    return cumulative


def _times(
    generator: np.random.Generator, job_class: Ints, size: Ints, habits: Habits
) -> tuple[Floats, Floats]:
    """Run and requested times, both (n,), seconds.

    A job's place in the published distribution is a normal variate correlated with that of its class, so
    classes have similar run times and all jobs together the published ones. People type the long run of
    their class over an accuracy that logs show spread nearly evenly over 0 to 1 (Tsafrir et al., "Modeling
    user runtime estimates"), rounded up; some always type the limit.
    """
    classes = int(job_class.max()) + 1
    of_class = generator.standard_normal(classes)[job_class]
    own = generator.standard_normal(len(job_class))
    spread = math.sqrt(1.0 - habits.similarity**2)
    run = lublin.run_times(special.ndtr(habits.similarity * of_class + spread * own), size)
    long_run = lublin.run_times(special.ndtr(habits.similarity * of_class + 1.5 * spread), size)
    accuracy = generator.uniform(0.05, 1.0, classes)[job_class]
    wanted = np.minimum(long_run / accuracy, ROUND_TIMES[-1])
    requested = ROUND_TIMES[np.searchsorted(ROUND_TIMES, wanted)]
    always_the_limit = (generator.random(classes) < habits.always_the_limit)[job_class]
    requested = np.where(always_the_limit, ROUND_TIMES[-1], requested)
    return np.minimum(run, requested), requested


def submissions(
    generator: np.random.Generator,
    *,
    jobs: int,
    processors: int = 128,
    load: float = 0.5,
    habits: Habits = HABITS,
) -> JobTable:
    """Jobs as they are submitted, before any cluster has run them (every wait is 0).

    Parameters
    ----------
    generator : numpy Generator
        Where the randomness comes from; the same state gives the same jobs.
    jobs : int
        How many, at least 1.
    processors : int
        Size of the machine.
    load : float
        Offered load: work per processor and second of the log, above 0. The published arrival process is
        stretched evenly to meet it. Users who repeat large jobs make it bursty: a half loaded machine has
        waits like the archive's machines loaded to two thirds.

    Returns
    -------
    JobTable
        In submission order, whole seconds; a job that would exceed its request is cut off there and failed.
    """
    if jobs < 1 or processors < 1 or not load > 0 or not math.isfinite(load):
        msg = f"jobs={jobs}, processors={processors} and load={load} must be positive"
        raise ValueError(msg)
    users = max(5, int(habits.users_per_job * math.sqrt(jobs)))
    user, job_class, classes = _who_submits_what(
        _activity(users, habits.zipf_exponent),
        _Draws(*(generator.random(jobs) for _ in _Draws._fields)),
        (
            1.0 / habits.jobs_per_session,
            habits.idle_jobs,
            habits.same_again,
            habits.same_again + habits.recent_again,
        ),
    )
    size = lublin.sizes(generator, classes, processors)[job_class]
    run, requested = _times(generator, job_class, size, habits)
    average_gaps = lublin.gaps(generator, jobs)
    stretch = float(run @ size) / (load * processors * average_gaps.sum())
    unknown_wait = np.zeros(jobs)
    return JobTable(
        job_id=np.arange(1, jobs + 1),
        submit=lublin.arrival_times(average_gaps * stretch),
        wait=unknown_wait,
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
    habits: Habits = HABITS,
    progress: Progress | None = None,
) -> JobTable:
    """Draw a history: :func:`submissions` after an FCFS cluster with EASY backfilling has run them.

    Parameters are those of :func:`submissions`; ``progress`` that of
    :func:`~advisor.simulate.engine.simulate`. Waits are what the simulated cluster gave each job, so that
    they can be learned from, as a real log's.
    """
    table = submissions(generator, jobs=jobs, processors=processors, load=load, habits=habits)
    schedule = simulate(demand_of(table), processors, progress=progress)
    return replace(table, wait=schedule.start - table.submit)
