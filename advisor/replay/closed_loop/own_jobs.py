"""A site's own jobs, or a log's, as a closed loop needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.model.job import Job
from advisor.model.table import JobTable
from advisor.replay.closed_loop.log import Floats, LoopJobs, loop_jobs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnJobs:
    """The jobs of a window of a history; times in epoch seconds.

    Attributes:
        jobs: All that were submitted in it. Those that ran in the cloud have the run time that they would
            have had on-premise.
        here: Those of them that ran on-premise: what would have happened without us is known of them.
        job_at: The submission of a row of the table of ``jobs``.
    """

    jobs: LoopJobs
    here: LoopJobs
    job_at: Callable[[int], Job]

    @property
    def in_cloud(self) -> int:
        """Number of jobs of the window that ran in the cloud."""
        return len(self.jobs) - len(self.here)


def in_epoch_seconds(table: JobTable) -> JobTable:
    """The same jobs with submissions in seconds since the epoch."""
    return replace(table, submit=table.submit + table.start_of_log, start_of_log=0.0)


def as_on_premise(table: JobTable, in_cloud: NDArray[np.bool_], slowdown: Floats) -> JobTable:
    """The jobs with the run times that they would have had on-premise; all arrays of shape ``(n,)``.

    Args:
        table: The jobs.
        in_cloud: Whether a job ran in the cloud.
        slowdown: s(c) of each job.
    """
    return replace(table, run=np.where(in_cloud, table.run / slowdown, table.run))


def that_fit(table: JobTable, machine: int) -> JobTable:
    """The jobs that ran, whose wait is known, and that are no larger than the machine."""
    return table.select(
        np.isfinite(table.run) & (table.run > 0.0) & np.isfinite(table.wait) & (table.processors <= machine)
    )


def window(fitting: JobTable, *, since: float, machine: int) -> LoopJobs:
    """The jobs submitted since a moment, with all earlier ones to learn from.

    Args:
        fitting: The jobs in submission order; see :func:`that_fit`.
        since: Beginning, in the table's seconds.
        machine: Processors on-premise.

    Raises:
        BadInput: Nothing was submitted since (``whatif.empty``).
    """
    skip = int(np.searchsorted(fitting.submit, since))
    if skip == len(fitting):
        raise BadInput(
            "no finished job was submitted since then",
            where="--since",
            mend="Go further back, or run `advisor ingest` first",
            code="whatif.empty",
        )
    return loop_jobs(fitting, skip=skip, nodes=machine)


def busiest(table: JobTable) -> int:
    """The largest number of processors that were busy at one moment."""
    ran = table.run > 0
    start = (table.submit + np.maximum(table.wait, 0.0))[ran]
    times = np.concatenate([start, start + table.run[ran]])
    change = np.concatenate([table.processors[ran], -table.processors[ran]])
    order = np.lexsort((change, times))  # at one moment ends come first
    return int(np.cumsum(change[order]).max(initial=0))
