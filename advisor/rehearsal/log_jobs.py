"""Rows of a log as submissions: the hook's request, and the job as the simulated site runs it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.table import JobTable
from advisor.service.exchange.protocol import VERSION, AdviseRequest
from advisor.testing.memory_slurm_records import ON_PREMISE, MemoryJob

FIRST_TIME = 1_000_000_000.0
"""Epoch seconds at which a log begins that does not say when it did."""
_FIRST_GROUP = 100_000
"""Group numbers above those of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogJob:
    """One row: when it is submitted (epoch seconds), what the hook asks, and the job."""

    row: int
    time: float
    request: AdviseRequest
    job: MemoryJob


class LogJobs:
    """A window of a log.

    Args:
        table: A log's jobs that ran, in submission order.
        skip, count: Rows before the window, which are the site's history, and rows of it.
        cloud_factor: Run time in the cloud divided by that on-premise.
    """

    def __init__(
        self, table: JobTable, *, skip: int, count: int, cloud_factor: float, settings: Settings
    ) -> None:
        self._table = table
        self.first, self.last = skip, min(len(table), skip + count)
        self._factor = cloud_factor
        self._partition = settings.cluster.on_premise_partitions[0]
        self._start = table.start_of_log or FIRST_TIME
        requested = table.requested_time
        limits = np.where(np.isnan(requested), table.run, requested)
        self.limits = np.maximum(60.0, 60.0 * np.ceil(limits / 60.0))
        """Time limits in whole minutes, seconds; of a job without one its run time."""
        self.runs = np.minimum(table.run, self.limits)
        self.processors = np.minimum(table.processors, table.total_processors or table.processors.max())

    @property
    def begins_at(self) -> float:
        """First submission, epoch seconds."""
        return self._time(self.first)

    @property
    def core_seconds(self) -> float:
        """Work of the window: processors times run time."""
        window = slice(self.first, self.last)
        return float(np.sum(self.processors[window] * self.runs[window]))

    @property
    def node_processors(self) -> int:
        """Greatest number of processors of which every job of the window takes a multiple."""
        return int(np.gcd.reduce(self.processors[self.first : self.last]))

    def __len__(self) -> int:
        return self.last - self.first

    def _time(self, row: int) -> float:
        return self._start + float(self._table.submit[row])

    def __iter__(self) -> Iterator[LogJob]:
        for row in range(self.first, self.last):
            time = self._time(row)
            yield LogJob(row=row, time=time, request=self._request(row), job=self._job(row, time))

    def past(self) -> Iterator[tuple[MemoryJob, float, float]]:
        """Jobs that had ended when the window began: job, start and end as logged (epoch seconds)."""
        for row in range(self.first):
            time = self._time(row)
            start = time + max(0.0, float(self._table.wait[row]))
            if start + self.runs[row] <= self.begins_at:
                yield self._job(row, time), start, start + float(self.runs[row])

    def _request(self, row: int) -> AdviseRequest:
        table = self._table
        minutes = int(self.limits[row] / 60.0)
        is_explicit = not math.isnan(table.requested_time[row])
        group = int(table.group[row])
        return AdviseRequest(
            v=VERSION,
            seq=row,
            uid=_FIRST_GROUP + int(table.user[row]),
            gid=None if group < 0 else _FIRST_GROUP + group,
            user=_name("user", int(table.user[row])),
            name=_name("job", int(table.executable[row])),
            default_partition=self._partition,
            time_limit=minutes if is_explicit else None,
            partition_time_limit=minutes,
            num_tasks=int(self.processors[row]),
        )

    def _job(self, row: int, time: float) -> MemoryJob:
        table = self._table
        group = int(table.group[row])
        run = float(self.runs[row])
        return MemoryJob(
            job_id=row + 1,
            seconds=run,
            cloud_seconds=run * self._factor,
            submit_time=time,
            processors=int(self.processors[row]),
            partition=ON_PREMISE,
            limit_seconds=float(self.limits[row]),
            described=Job(
                job_id=row + 1,
                submit_time=time,
                processors=int(self.processors[row]),
                user=_name("user", int(table.user[row])),
                group=None if group < 0 else str(_FIRST_GROUP + group),
                name=_name("job", int(table.executable[row])),
            ),
        )


def _name(kind: str, code: int) -> str | None:
    return None if code < 0 else f"{kind}{code}"
