"""Run times as distributions, learned from a log as its jobs end."""

from __future__ import annotations

from typing import Final

import numpy as np

from advisor.model.table import UNKNOWN_CODE
from advisor.predict.run_times.grid import GRID
from advisor.predict.run_times.run_times import RunTimes
from advisor.replay.closed_loop.log import Floats, LoopJobs

_MAX_HISTORY: Final = 100_000
"""Rows before the window that teach, the newest."""


class LearnedRuns:
    """`RunTimes` asked and taught by the rows of a closed loop."""

    edges: Floats = GRID

    def __init__(self) -> None:
        self._times = RunTimes()

    def learn_history(self, jobs: LoopJobs, until: float) -> None:
        """Learn the log's rows before the window that had ended by ``until``, in the order of their ends."""
        table, first = jobs.table, max(0, jobs.first - _MAX_HISTORY)
        rows = slice(first, jobs.first)
        ends = table.submit[rows] + np.maximum(table.wait[rows], 0.0) + table.run[rows]
        for row in np.argsort(ends, kind="stable").tolist():
            if ends[row] <= until:
                self._times.learn(*_key(jobs, first + row), float(table.run[first + row]))

    def forecast(self, jobs: LoopJobs, row: int) -> Floats:
        """Probabilities by bin, shape ``(bins,)``; nothing above the job's limit."""
        return self._times.forecast(*_key(jobs, jobs.first + row))

    def learn(self, jobs: LoopJobs, row: int) -> None:
        """Learn a job that has ended."""
        self._times.learn(*_key(jobs, jobs.first + row), float(jobs.run[row]))


def _key(jobs: LoopJobs, row: int) -> tuple[int, int, int, int, int, float]:
    """User, account, executable, queue, processors and requested time of a row of the log."""
    table = jobs.table
    return (
        int(table.user[row]),
        int(table.group[row]),
        int(table.executable[row]) if len(table.executable) else UNKNOWN_CODE,
        int(table.queue[row]),
        int(table.processors[row]),
        float(table.requested_time[row]),
    )
