"""What the demo plays: a history to learn from and a bursty stream of jobs, both in compressed time.

Every second of the demo is `compression` seconds of the log. History and stream are compressed by the same
rule, so what is learned from one holds for the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.model.job import Job, JobOutcome
from advisor.model.table import JobTable
from advisor.papers.cluster.demand import demand_of
from advisor.papers.cluster.engine import simulate

# Accounts that every Debian has: several users without making any.
ACCOUNTS: Final = ("daemon", "games", "mail", "news", "proxy", "www-data", "backup", "list", "irc", "uucp")
_PROJECTS: Final = ("climate", "genome", "lattice", "porous", "rotor", "folding")
_NO_BURST_USER: Final = "games"

_HISTORY_JOBS: Final = 4000
_STREAM_JOBS: Final = (30, 60)
_STREAM_SECONDS: Final = 60.0
_MAX_DEMO_SECONDS: Final = 170.0
_CANDIDATES: Final = 500
_COMPRESSIONS: Final = (600.0, 1200.0, 2400.0)
_MINUTE: Final = 60.0
_START_SECONDS: Final = 3.0
"""A job's launch and end take part of its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """One job of the stream.

    Attributes:
        submit_seconds: After the stream's start.
        processors: Requested.
        run_seconds: On-premise.
        limit_minutes: Requested time, as sbatch takes it.
        user, name: Whose, and what it is called.
        may_requeue: False: submitted with ``--no-requeue``.
        opts_out: True: submitted with ``--comment=no-burst``.
        explicit: True: submitted with ``-p onprem``: it was running or waiting when the stream began.
    """

    submit_seconds: float
    processors: int
    run_seconds: float
    limit_minutes: int
    user: str
    name: str
    may_requeue: bool
    opts_out: bool
    explicit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A history and a stream.

    Attributes:
        title: Where they come from.
        compression: Seconds of the log in a second of the demo.
        processors: Of the on-premise cluster.
        table: The compressed history, in submission order, before the stream.
        stream: In submission order.
    """

    title: str
    compression: float
    processors: int
    table: JobTable
    stream: tuple[DemoJob, ...]

    def history(self, now: float) -> Iterator[JobOutcome]:
        """Finished jobs as the cluster's accounting would tell them, the last of them ended just now."""
        shift = now - float(self.table.end.max())
        for row in range(len(self.table)):
            yield _outcome(self.table, row, shift)


def make_plan(table: JobTable, *, compression: float | None = None) -> Plan:
    """Choose a busy stretch of a log, with everything before it as history.

    Args:
        table: Jobs that ran, in submission order.
        compression: Seconds of the log in a second of the demo; by default whichever gives the busiest demo.

    Returns:
        The stretch in which most of the stream's jobs would have to wait and that ends in time.
    """
    processors = table.total_processors or int(table.processors.max())
    factors = (compression,) if compression is not None else _COMPRESSIONS
    _, first, compression = max(_busiest(table, factor, processors) for factor in factors)
    squeezed = _compressed(table, compression)
    rows, under_way = _stretch(squeezed, first)
    begin = float(squeezed.submit[first])
    known = np.flatnonzero(squeezed.end < begin)[-_HISTORY_JOBS:]
    stream = [_background(squeezed, row, begin) for row in under_way]
    stream += [_demo_job(squeezed, row, begin) for row in rows]
    return Plan(
        title=table.name or "synthetic workload",
        compression=compression,
        processors=processors,
        table=squeezed.select(known),
        stream=tuple(stream),
    )


def _busiest(table: JobTable, compression: float, processors: int) -> tuple[float, int, float]:
    """Score, first row and compression of the best stretch; the middle of the log when none can be played."""
    squeezed = _compressed(table, compression)
    starts = np.linspace(len(table) // 3, len(table) - _STREAM_JOBS[1] - 1, _CANDIDATES).astype(int)
    scored = [(_score(squeezed, int(first), processors), int(first)) for first in np.unique(starts)]
    score, first = max(((s, f) for s, f in scored if s is not None), default=(-1.0, len(table) // 2))
    return score, first, compression


def _compressed(table: JobTable, compression: float) -> JobTable:
    """All times divided; run times at least a second, requests whole minutes as Slurm has them."""
    requested = np.where(np.isnan(table.requested_time), table.run, table.requested_time) / compression
    return replace(
        table,
        submit=table.submit / compression,
        wait=np.maximum(table.wait, 0.0) / compression,
        run=np.maximum(1.0, table.run / compression),
        requested_time=np.maximum(1.0, np.ceil(requested / _MINUTE)) * _MINUTE,
        start_of_log=0.0,
    )


def _stretch(table: JobTable, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the stream from `first` on, and of jobs under way when it begins."""
    begin = float(table.submit[first])
    last = min(
        int(np.searchsorted(table.submit, begin + _STREAM_SECONDS)), first + _STREAM_JOBS[1], len(table)
    )
    earlier = np.arange(max(0, first - 2000), first)
    under_way = earlier[(table.end[earlier] > begin + 1.0)]
    return np.arange(first, last), under_way


def _score(table: JobTable, first: int, processors: int) -> float | None:
    """How many jobs would wait, if the stretch can be played at all."""
    rows, under_way = _stretch(table, first)
    if not _STREAM_JOBS[0] <= len(rows) or len(under_way) > 40:
        return None
    begin = float(table.submit[first])
    jobs = [_background(table, row, begin) for row in under_way]
    jobs += [_demo_job(table, row, begin) for row in rows]
    waits, ends = on_premise_schedule(jobs, processors)
    if ends.max() > _MAX_DEMO_SECONDS:
        return None
    waits = waits[len(under_way) :]
    # busy in the log as well as here: then the history knows such times
    logged = float(np.mean(np.minimum(table.wait[rows], 60.0)))
    return float(np.mean(np.minimum(waits, 60.0))) * min(1.0, logged / 10.0)


def on_premise_schedule(
    jobs: list[DemoJob] | tuple[DemoJob, ...], processors: int
) -> tuple[np.ndarray, np.ndarray]:
    """Waits and ends (seconds) if every job stayed: EASY backfilling on the simulated cluster."""
    table = stream_table(jobs)
    schedule = simulate(demand_of(table), processors)
    return schedule.start - table.submit, schedule.end


def stream_table(jobs: list[DemoJob] | tuple[DemoJob, ...]) -> JobTable:
    """The stream as columns, in submission order."""
    count = len(jobs)
    unknown = np.full(count, -1, dtype=np.int64)
    return JobTable(
        job_id=np.arange(1, count + 1),
        submit=np.array([job.submit_seconds for job in jobs]),
        wait=np.zeros(count),
        run=np.array([job.run_seconds for job in jobs]),
        processors=np.array([job.processors for job in jobs], dtype=np.int64),
        requested_time=np.array([job.limit_minutes * _MINUTE for job in jobs]),
        user=unknown,
        group=unknown,
        queue=unknown,
        status=np.ones(count, dtype=np.int64),
    )


def _demo_job(table: JobTable, row: int, begin: float) -> DemoJob:
    user = account_of(int(table.user[row]))
    job_id = int(table.job_id[row])
    return DemoJob(
        submit_seconds=float(table.submit[row]) - begin,
        processors=int(table.processors[row]),
        run_seconds=round(float(table.run[row]), 1),
        limit_minutes=_limit_minutes(float(table.requested_time[row]), float(table.run[row])),
        user=user,
        name=f"{_PROJECTS[int(table.user[row]) % len(_PROJECTS)]}-{job_id % 1000}",
        may_requeue=job_id % 7 != 0,
        opts_out=user == _NO_BURST_USER,
        explicit=False,
    )


def _limit_minutes(requested_seconds: float, run_seconds: float) -> int:
    """The log's limit in whole minutes; a job the log's own limit ended still gets to its end here."""
    return math.ceil(max(requested_seconds, run_seconds + _START_SECONDS) / _MINUTE)


def _background(table: JobTable, row: int, begin: float) -> DemoJob:
    """Make a job that was under way when the stream began run its rest, where it was."""
    left = float(table.end[row]) - max(begin, float(table.start[row]))
    job = _demo_job(table, row, begin)
    return replace(job, submit_seconds=0.0, run_seconds=round(max(1.0, left), 1), explicit=True)


def account_code(user: int) -> int:
    """Number of the local account that plays a user of the log."""
    return user % len(ACCOUNTS)


def account_of(user: int) -> str:
    """Name of that account."""
    return ACCOUNTS[account_code(user)]


def _outcome(table: JobTable, row: int, shift: float) -> JobOutcome:
    submit = float(table.submit[row]) + shift
    start = submit + float(table.wait[row])
    account = account_of(int(table.user[row]))
    return JobOutcome(
        job=Job(
            job_id=int(table.job_id[row]),
            submit_time=submit,
            processors=int(table.processors[row]),
            user=account,
            group=group_of(account),
            queue="onprem",
            requested_time=float(table.requested_time[row]),
        ),
        start_time=start,
        end_time=start + float(table.run[row]),
        processors_used=int(table.processors[row]),
        partition="onprem",
    )


def group_of(account: str) -> str | None:
    """Name of an account's group, as the hook will report it."""
    import grp  # noqa: PLC0415 -- POSIX only, and only for the demo
    import pwd  # noqa: PLC0415 -- as above

    try:
        return grp.getgrgid(pwd.getpwnam(account).pw_gid).gr_name
    except KeyError:
        return None
