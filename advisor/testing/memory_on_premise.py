"""The on-premise partition of a `MemoryCluster`: so many processors under EASY backfilling by time limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from advisor.model.errors import BadInput
from advisor.simulate.pool.pool import Pool
from advisor.simulate.pool.rules import Rules
from advisor.testing.memory_slurm_records import MemoryJob

_ROWS: Final = 65_536  # jobs at a time; pages of the pool that are never touched cost nothing


class OnPremise:
    """Jobs that wait for processors or have some.

    Args:
        processors: Of all nodes together.
        time: Epoch seconds: the pool's clock starts then.
        rules: Of slurmctld, each processor being a node; None: EASY backfilling.
    """

    def __init__(self, processors: int, time: float, rules: Rules | None = None) -> None:
        self.processors = processors
        self._pool = Pool(processors, _ROWS, time, rules)
        self._free_rows = list(reversed(range(_ROWS)))
        self._row_of: dict[int, int] = {}
        self._job_at: dict[int, MemoryJob] = {}

    @property
    def free(self) -> int:
        """Processors that no job has."""
        return self._pool.free

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return len(self._pool.waiting)

    @property
    def waiting_processors(self) -> int:
        """Processors that they ask for."""
        return self._pool.waiting_processors

    @property
    def next_event(self) -> float:
        """When the next job may end, or backfilling is due, epoch seconds; infinite: neither will be."""
        is_idle = not len(self._pool.running) and not self.waiting
        return math.inf if is_idle else self._pool.next_event

    def set_other_ends(self, ends: Sequence[float]) -> None:
        """Say when jobs in the cloud end by their limits, epoch seconds, ascending."""
        self._pool.set_other_ends(ends)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._row_of

    def add(self, job: MemoryJob) -> None:
        """Queue a job by its priority, then by the time from which it ages."""
        if not self._free_rows:
            raise BadInput(
                f"more than {_ROWS} jobs are in the simulated on-premise partition",
                where="simulated cluster",
                mend="Simulate fewer jobs at a time",
                code="simulate.too_many",
            )
        row = self._free_rows.pop()
        self._row_of[job.job_id] = row
        self._job_at[row] = job
        self._pool.add(
            row,
            processors=job.size,
            limit=job.limit_seconds,
            run=job.seconds,
            order=job.ages_since,
            rank=-float(job.priority_offset),
        )

    def remove(self, job_id: int) -> None:
        """Take a job away, whether it waits or runs; one that is not here is none."""
        row = self._row_of.pop(job_id, None)
        if row is None:
            return
        if self._pool.is_waiting(row):
            self._pool.remove(row)
        elif self._pool.is_running(row):
            self._pool.stop(row)
        self._forget(row)

    def advance(self, now: float) -> list[tuple[float, MemoryJob, bool]]:
        """Go on to ``now``; jobs that have started or ended since, and when: time, job, has started."""
        happened = []
        for time, row, has_started in self._pool.advance(now):
            job = self._job_at[row]
            happened.append((time, job, has_started))
            if not has_started:
                del self._row_of[job.job_id]
                self._forget(row)
        return happened

    def _forget(self, row: int) -> None:
        del self._job_at[row]
        self._free_rows.append(row)
