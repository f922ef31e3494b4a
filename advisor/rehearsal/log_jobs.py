"""Rows of a log as submissions: the hook's request, and the job as the simulated site runs it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.model.job import Job
from advisor.replay.closed_loop.log import LoopJobs
from advisor.service.exchange.protocol import VERSION, AdviseRequest
from advisor.testing.memory_slurm_records import ON_PREMISE, MemoryJob

FIRST_TIME = 1_000_000_000.0
"""Epoch seconds at which a log begins that does not say when it did."""
_FIRST_GROUP = 100_000
"""Group numbers above those of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogJob:
    """One row of the log: when it is submitted (epoch seconds), what the hook asks, and the job."""

    time: float
    request: AdviseRequest
    job: MemoryJob


class LogJobs:
    """A window of a log.

    Args:
        window: The jobs; earlier rows of its log are the site's history.
        cloud_factor: Run time in the cloud divided by that on-premise.
        may_requeue: Whether each job of the window may be requeued; None: all may.
    """

    def __init__(
        self,
        window: LoopJobs,
        *,
        cloud_factor: float,
        may_requeue: NDArray[np.bool_] | None = None,
    ) -> None:
        self.window = window
        self._may_requeue = may_requeue
        self._table = window.table
        self._factor = cloud_factor
        self._start = window.table.start_of_log or FIRST_TIME

    @property
    def begins_at(self) -> float:
        """First submission, epoch seconds."""
        return self._time(self.window.first)

    @property
    def node_processors(self) -> int:
        """Greatest number of processors of which every job of the window takes a multiple."""
        return int(np.gcd.reduce(self.window.processors))

    def __len__(self) -> int:
        return len(self.window)

    def _time(self, row: int) -> float:
        return self._start + float(self._table.submit[row])

    def __iter__(self) -> Iterator[LogJob]:
        window = self.window
        for index in range(len(window)):
            row, limit = window.first + index, float(window.limit[index])
            job = self._job(row, float(window.run[index]), limit)
            yield LogJob(time=job.submit_time, request=self._request(row, limit), job=job)

    def past(self) -> Iterator[tuple[MemoryJob, float, float]]:
        """Jobs that had ended when the window began: job, start and end as logged (epoch seconds)."""
        table, limits = self._table, np.maximum(self._table.limits, 1.0)
        for row in range(self.window.first):
            run, limit = float(table.run[row]), float(limits[row])
            start = self._time(row) + max(0.0, float(table.wait[row]))
            end = start + min(run, limit)
            if end <= self.begins_at:
                yield self._job(row, min(run, limit), limit), start, end

    def _request(self, row: int, limit: float) -> AdviseRequest:
        table, minutes, group = self._table, math.ceil(limit / 60.0), int(self._table.group[row])
        return AdviseRequest(
            v=VERSION,
            seq=row,
            uid=_FIRST_GROUP + int(table.user[row]),
            gid=None if group < 0 else _FIRST_GROUP + group,
            user=_name("user", int(table.user[row])),
            name=_name("", int(table.application[row])),  # a number alone is no counter of runs
            default_partition=ON_PREMISE,
            time_limit=None if math.isnan(table.requested_time[row]) else minutes,
            partition_time_limit=minutes,
            num_tasks=int(table.processors[row]),
            requeue=self._requeue(row),
        )

    def _requeue(self, row: int) -> bool | None:
        """False for ``--no-requeue``; None where its user said nothing."""
        index = row - self.window.first
        return (
            False if self._may_requeue is not None and index >= 0 and not self._may_requeue[index] else None
        )

    def _job(self, row: int, run: float, limit: float) -> MemoryJob:
        table, time = self._table, self._time(row)
        group, processors = int(table.group[row]), int(table.processors[row])
        return MemoryJob(
            job_id=row + 1,
            seconds=run,
            cloud_seconds=run * self._factor,
            submit_time=time,
            processors=processors,
            partition=ON_PREMISE,
            limit_seconds=limit,
            may_requeue=self._requeue(row) is not False,
            described=Job(
                job_id=row + 1,
                submit_time=time,
                processors=processors,
                user=_name("user", int(table.user[row])),
                group=None if group < 0 else str(_FIRST_GROUP + group),
                name=_name("", int(table.application[row])),  # a number alone is no counter of runs
                requeue=self._requeue(row),
            ),
        )


def _name(kind: str, code: int) -> str | None:
    return None if code < 0 else f"{kind}{code}"
