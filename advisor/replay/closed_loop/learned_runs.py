"""Run times as distributions, learned from a log as its jobs end."""

from __future__ import annotations

from typing import Final

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.predict.run_times.events import submissions_and_ends
from advisor.predict.run_times.grid import GRID
from advisor.predict.run_times.job_numbers import JobNumbers
from advisor.predict.run_times.run_times import RunTimes
from advisor.replay.closed_loop.log import LoopJobs

MAX_HISTORY: Final = 100_000
"""Rows before the window that teach, the newest."""


class LearnedRuns:
    """`RunTimes` asked and taught by the rows of a closed loop."""

    edges: Floats = GRID

    def __init__(self) -> None:
        self._times = RunTimes()
        self._places: dict[int, Ints] = {}  # row of the log to where the experts looked at its submission

    def learn_history(self, jobs: LoopJobs, until: float) -> None:
        """Learn the log's rows before the window that had ended by ``until``, in the order of their ends."""
        table, first = jobs.table, max(0, jobs.first - MAX_HISTORY)
        rows = slice(first, jobs.first)
        ends = table.submit[rows] + np.maximum(table.wait[rows], 0.0) + table.run[rows]
        for number, has_ended in submissions_and_ends(table.submit[rows], ends):
            row = first + number
            if not has_ended:
                self._places[row] = self._times.look_up(_key(jobs, row))
            elif ends[number] <= until:
                self._learn(jobs, row, float(table.run[row]))
        self._places.clear()

    def submitted(self, jobs: LoopJobs, row: int) -> None:
        """Note where the experts look for a job at its submission."""
        self._places[jobs.first + row] = self._times.look_up(_key(jobs, jobs.first + row))

    def forecast(self, jobs: LoopJobs, row: int) -> Floats:
        """Probabilities by bin, shape ``(bins,)``; nothing above the job's limit."""
        return self._times.forecast(_key(jobs, jobs.first + row))

    def learn(self, jobs: LoopJobs, row: int) -> None:
        """Learn a job that has ended."""
        self._learn(jobs, jobs.first + row, float(jobs.run[row]))

    def _learn(self, jobs: LoopJobs, row: int, run: float) -> None:
        place = self._places.pop(row, None)
        if jobs.table.is_whole[row]:  # the run time of the others is unknown
            self._times.learn(_key(jobs, row), run, place=place)


def _key(jobs: LoopJobs, row: int) -> JobNumbers:
    table = jobs.table
    return JobNumbers(
        int(table.user[row]),
        int(table.account[row]),
        int(table.application[row]),
        int(table.queue[row]),
        int(table.processors[row]),
        float(table.requested_time[row]),
    )
