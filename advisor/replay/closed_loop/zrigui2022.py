"""Zrigui et al. 2022 in a closed loop: jobs that are forecast to be small go first on-premise; no job moves.

A job is small if it is forecast to run for less than the median of all jobs that have ended (sections 3.3 and
4). The forest is trained anew every week, by what the simulated site has seen. A job that has waited for the
threshold of section 3.4 goes before all others. The queue is scheduled by EASY backfilling, and a
job that was taken for small and runs longer is not ended.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from msgspec import structs

from advisor.decide.submission.table_row import job_of
from advisor.model.job import Job, JobOutcome
from advisor.model.table import UNKNOWN_CODE
from advisor.predict.size.size_history import WEEK_SECONDS, SizeHistory
from advisor.predict.size.size_model import SizeModel
from advisor.replay.closed_loop.world import Policy, World

PROBABILITY_CUT: Final = 0.5
STARVATION_SECONDS: Final = 200_000.0
_STARVED, _LARGE = -1.0, 1.0  # ranks; small jobs have 0


class Zrigui2022(Policy):
    """Small jobs first, in two classes."""

    name = "zrigui2022"

    def __init__(self) -> None:
        self._model: SizeModel
        self._starts: dict[int, float] = {}
        self._starved: set[int] = set()

    def begin(self, world: World) -> None:
        """Train on the log's rows before the first job."""
        self._train(world, 0)

    def submitted(self, world: World, row: int) -> None:
        """Put a large job behind the small ones."""
        if world.now - self._model.trained_at >= WEEK_SECONDS:
            self._train(world, row)
        job = _job(world, row)
        if not self._model.classify(job, PROBABILITY_CUT).is_small:
            _set_rank(world, row, _LARGE)
        self._model.submitted(job)

    def round(self, world: World) -> None:
        """Put those first that have waited too long."""
        for row in world.pool.waiting.tolist():
            if row not in self._starved and world.now - world.jobs.submit[row] > STARVATION_SECONDS:
                self._starved.add(row)
                _set_rank(world, row, _STARVED)

    def started(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._starts[row] = world.now
        self._model.started(row + 1, world.now)

    def ended(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        outcome = JobOutcome(job=_job(world, row), start_time=self._starts[row], end_time=world.now)
        self._model.learn(outcome)

    def _train(self, world: World, submissions: int) -> None:
        """Train on all jobs that have ended, and follow those that wait or run.

        Args:
            submissions: Number of jobs that were submitted so far.
        """
        jobs = world.jobs
        table = jobs.table.select(slice(0, jobs.first + submissions))
        wait, run = table.wait.copy(), table.run.copy()
        rows = np.arange(submissions)
        ends = world.end[rows]
        starts = np.array([self._starts.get(row, np.nan) for row in rows.tolist()])
        wait[jobs.first :] = starts - jobs.submit[rows]
        run[jobs.first :] = ends - starts
        ended = np.flatnonzero((table.submit + np.maximum(wait, 0.0) + run < world.now) & (run > 0.0))
        history = SizeHistory.from_table(replace(table, wait=wait, run=run).select(ended))
        self._model = SizeModel.retrain(
            history,
            now=world.now,
            start_of_log=table.start_of_log,
            utc_offset_seconds=table.utc_offset_seconds,
        )
        live = [(_job(world, row), None) for row in world.pool.waiting.tolist() if row < submissions]
        self._model.observe(live)
        self._model.observe([(_job(world, row), self._starts[row]) for row in world.pool.running.tolist()])


def _job(world: World, row: int) -> Job:
    """A row as a submission; its number is its row's, from 1."""
    table, at = world.jobs.table, world.jobs.first + row
    code = int(table.executable[at])
    name = None if code == UNKNOWN_CODE else str(code)
    return structs.replace(job_of(table, at, with_queue=True), job_id=row + 1, name=name)


def _set_rank(world: World, row: int, rank: float) -> None:
    jobs, pool = world.jobs, world.pool
    pool.remove(row)
    pool.add(
        row,
        processors=int(jobs.processors[row]),
        limit=float(jobs.limit[row]),
        run=float(jobs.run[row]),
        order=float(row),
        rank=rank,
    )
