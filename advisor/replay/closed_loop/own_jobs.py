"""A site's own jobs, or a log's, as the closed loop of `whatif`, `recommend` and `plan` needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from advisor.arrays import Ints
from advisor.model.errors import BadInput
from advisor.model.job import Job
from advisor.model.machine import Machine
from advisor.model.table import UNKNOWN_CODE, JobTable
from advisor.replay.closed_loop.log import LoopJobs, loop_jobs, on_premise_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnJobs:
    """The jobs of a window of a history; times in epoch seconds.

    Attributes:
        since: The beginning of the window that was asked for; the history may be shorter.
        jobs: All that were submitted in it. Those that ran in the cloud have the run time that they would
            have had on-premise.
        here: Those of them that ran on-premise: what would have happened without us is known of them.
        job_at: The submission of a row of the table of ``jobs``.
    """

    since: float
    jobs: LoopJobs
    here: LoopJobs
    job_at: Callable[[int], Job]

    @property
    def in_cloud(self) -> int:
        """Number of jobs of the window that ran in the cloud."""
        return len(self.jobs) - len(self.here)

    def on_one_machine(self) -> OwnJobs:
        """The same jobs, all of which wait for all nodes."""
        return replace(self, jobs=self.jobs.on_one_machine(), here=self.here.on_one_machine())


def in_epoch_seconds(table: JobTable) -> JobTable:
    """The same jobs with submissions in seconds since the epoch."""
    return replace(table, submit=table.submit + table.start_of_log, start_of_log=0.0)


def by_eligibility(table: JobTable) -> Ints:
    """The rows in the order in which the jobs might first start, shape ``(n,)``."""
    return np.argsort(table.submit + table.ineligible_seconds, kind="stable")


def from_eligibility(table: JobTable) -> JobTable:
    """The jobs as if submitted when they might first start: until then no free processor is of use to them.

    What they waited for, such as another job's end, is taken to come when it came.
    """
    late = table.ineligible_seconds
    return replace(table, submit=table.submit + late, wait=table.wait - late).select(by_eligibility(table))


class AtHome(NamedTuple):
    """A job that ran in the cloud, as it would have run on-premise.

    Attributes:
        run: Seconds.
        held: What it would have held of processors, memory (MiB) and GPUs.
    """

    run: float
    queue: str | None
    held: tuple[int, int, int]


def as_on_premise(table: JobTable, cloud: Mapping[int, AtHome]) -> JobTable:
    """The jobs as they would have run on-premise, of which those of some rows ran in the cloud."""
    names = dict.fromkeys(table.names.get("queue", ()))
    names |= dict.fromkeys(one.queue for one in cloud.values() if one.queue is not None)
    codes = {name: code for code, name in enumerate(names)}
    run, queue, held = table.run.copy(), table.queue.copy(), table.held.copy()
    for row, one in cloud.items():
        run[row], held[row] = one.run, one.held
        queue[row] = UNKNOWN_CODE if one.queue is None else codes[one.queue]
    return replace(table, run=run, queue=queue, held=held, names={**table.names, "queue": tuple(codes)})


def with_array_tasks(jobs: Iterable[Job]) -> dict[tuple[int, float], Job]:
    """Submissions by id and time; a task of a job array has as many tasks as are among them of its array."""
    found = {(job.job_id, job.submit_time): job for job in jobs}
    tasks = Counter(job.array_job_id for job in found.values())
    return {
        key: job if job.array_job_id is None else structs.replace(job, array_tasks=tasks[job.array_job_id])
        for key, job in found.items()
    }


def that_fit(table: JobTable, machine: int) -> JobTable:
    """The jobs that ran, whose wait is known, and that are no larger than the machine."""
    return table.select(which_fit(table, machine))


def which_fit(table: JobTable, machine: int, machines: Sequence[Machine] = ()) -> NDArray[np.bool_]:
    """Of which jobs :func:`that_fit` is true, shape ``(n,)``.

    Args:
        machines: Where they are known, no job is larger than its own, and one of no machine does not fit.
    """
    known = on_premise_of(table, machines, machine)
    fits = (table.processors <= machine) if known is None else known.which_fit()
    return np.asarray(fits & np.isfinite(table.run) & (table.run > 0.0) & np.isfinite(table.wait), np.bool_)


def window(fitting: JobTable, *, since: float, machine: int, machines: Sequence[Machine] = ()) -> LoopJobs:
    """The jobs submitted since a moment, with all earlier ones to learn from.

    Args:
        fitting: The jobs in submission order; see :func:`that_fit`.
        since: Beginning, in the table's seconds.
        machines: See :func:`which_fit`.

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
    return loop_jobs(fitting, skip=skip, nodes=machine).on_machines(machines)


def busiest(table: JobTable) -> int:
    """The largest number of processors that were busy at one moment."""
    ran = table.run > 0
    start = (table.submit + np.maximum(table.wait, 0.0))[ran]
    times = np.concatenate([start, start + table.run[ran]])
    change = np.concatenate([table.processors[ran], -table.processors[ran]])
    order = np.lexsort((change, times))  # at one moment ends come first
    return int(np.cumsum(change[order]).max(initial=0))
