"""A log played to a live site: looks at Slurm, finished jobs, submissions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from advisor.model import Job, JobOutcome, JobTable
from advisor.model.settings import ClusterSettings, Settings
from advisor.predict.forecast.distribution import ForestSettings
from advisor.predict.forecast.rolling import ForecastOptions, RollingForests
from advisor.predict.forecast.submission_features import Codes
from advisor.replay.sources import load_table
from advisor.service.exchange.placement_store import Base, Loaded
from advisor.service.learn.queue_following import QueueStream, StreamFile
from advisor.service.submit.live_placement import LivePlacement
from advisor.slurm.protocol import PENDING, RUNNING, QueuedJob, SlurmSnapshot

ORIGIN = 1_800_000_000.0
QUEUES = ("onprem", "long")
OPTIONS = ForecastOptions(first=150, retrain_jobs=100, forests=3, forest=ForestSettings(trees=4))
BOUNDS = {"wait": (-1.5, 0.0), "run": (-2.5, 0.1)}
"""As calibrations cut that have learned something."""
SETTINGS = Settings(cluster=ClusterSettings(on_premise_partitions=QUEUES))


def make_log(jobs: int = 400, seed: int = 5) -> JobTable:
    """Whole seconds, one submission a second at most, names numbered in order of first appearance."""
    table = load_table(f"synthetic:{2 * jobs}:{seed}")
    table = table.select(np.flatnonzero(table.run > 0)[:jobs])
    generator = np.random.default_rng(seed)
    submit = np.maximum.accumulate(np.floor(table.submit)) + np.arange(jobs)
    drawn = {"group": 3, "queue": len(QUEUES), "executable": 12}
    coded = {name: _numbered(generator.integers(0, most, jobs)) for name, most in drawn.items()}
    return replace(
        table,
        submit=submit - submit[0],
        wait=np.floor(np.where(generator.random(jobs) < 0.6, generator.exponential(3000.0, jobs), 0.0)),
        run=np.maximum(1.0, np.floor(table.run)),
        job_id=np.arange(1, jobs + 1),
        user=_numbered(table.user),
        start_of_log=ORIGIN,
        total_processors=128,
        names={},
        **coded,
    )


def _numbered(column: np.ndarray) -> np.ndarray:
    _, first, inverse = np.unique(column, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def job_of(table: JobTable, row: int) -> Job:
    asked = float(table.requested_time[row])
    return Job(
        job_id=int(table.job_id[row]),
        submit_time=table.start_of_log + float(table.submit[row]),
        processors=int(table.processors[row]),
        user=f"user{table.user[row]}",
        group=f"group{table.group[row]}",
        queue=queue_name(int(table.queue[row])),
        name=f"name{table.executable[row]}",
        requested_time=None if np.isnan(asked) else asked,
    )


def queue_name(code: int) -> str:
    return QUEUES[code]


def outcome_of(table: JobTable, row: int) -> JobOutcome:
    job = job_of(table, row)
    start = table.start_of_log + float(table.start[row])
    end = table.start_of_log + float(table.end[row])
    return JobOutcome(job=job, start_time=start, end_time=end, partition=job.queue)


def outcomes_between(table: JobTable, after: float, until: float) -> Iterator[JobOutcome]:
    """Jobs that ended after a moment and not after another, seconds of the log, by their end."""
    rows = np.flatnonzero((table.end > after) & (table.end <= until))
    for row in rows[np.argsort(table.end[rows], kind="stable")]:
        yield outcome_of(table, int(row))


def look_at(table: JobTable, time: float) -> SlurmSnapshot:
    """What Slurm shows just before a submission at ``time``."""
    under_way = np.flatnonzero((table.submit < time) & (table.end > time))
    jobs = []
    for row in under_way:
        runs = table.start[row] <= time
        job = job_of(table, int(row))
        jobs.append(
            QueuedJob(
                job=job,
                state=RUNNING if runs else PENDING,
                partitions=(job.queue or "",),
                array_job_id=job.job_id,
                start_time=table.start_of_log + float(table.start[row]) if runs else None,
            )
        )
    return SlurmSnapshot(time=table.start_of_log + time, jobs=tuple(jobs), nodes=())


class Site:
    """Control's stream and serve's follower of it, without files between them."""

    def __init__(self, table: JobTable, forests: RollingForests) -> None:
        self.table = table
        self.stream = QueueStream(SETTINGS, Codes(), ORIGIN)
        self.told = -1.0
        cut = self.stream.cut()
        base = Base(name="first", table=table.select(slice(0, 0)), codes=Codes())
        self.stream.rebase(base.name, cut, base.codes, Codes())
        self.look(-1.0)
        self.live = LivePlacement(Loaded(base=base, forests=forests, meta={}), self.content())

    def content(self) -> StreamFile:
        content = self.stream.file(BOUNDS)
        assert content is not None
        return content

    def look(self, time: float, *, accounting: bool = True) -> None:
        if accounting:
            self.stream.ended(outcomes_between(self.table, self.told, time))
            self.told = time
        self.stream.look(look_at(self.table, time), self.table.total_processors)

    def follow(self) -> None:
        rows = self.live.begin(self.content())
        while self.live.withdraw_seen(2):
            pass
        for row in rows:
            self.live.take(row)
