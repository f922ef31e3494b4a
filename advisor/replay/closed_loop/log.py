"""The jobs of a log as a closed loop needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats, Ints
from advisor.model.errors import BadInput
from advisor.model.machine import Machine, places_by_partition
from advisor.model.table import UNKNOWN_CODE, JobTable
from advisor.simulate.pool.machines import Machines
from advisor.simulate.pool.pool import Pool
from advisor.simulate.pool.rules import Rules

_SHORTEST_RUN = 1e-3  # seconds; a job of run time 0 would end before it starts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoopJobs:
    """Jobs in submission order, and the log's rows before them, from which estimators may learn.

    Attributes:
        first: Row of the table that is row 0 here.
        submit: Shape ``(n,)``, seconds since the log's start, ascending.
        limit: Time limit, seconds; where the log has none, :func:`~advisor.model.table.limits_of`.
        run: True run time on-premise, seconds, cut at the limit, where a site kills the job.
        machine: Processors of the on-premise cluster.
        machines, places: Where it consists of several machines (partitions that share no nodes): their
            processors, and the number of the machine of each row of the table. None: there is one.
        too_large: Jobs of the log that ask for more than its machine has, which are left out.
        may_move, may_be_stopped: One flag for each row of the table: False for a job that the site's rules or
            its user keep on-premise, and for one that may not be stopped. None: all may.
    """

    table: JobTable
    first: int
    submit: Floats
    limit: Floats
    run: Floats
    processors: Ints
    machine: int
    may_move: NDArray[np.bool_] | None = None
    may_be_stopped: NDArray[np.bool_] | None = None
    machines: tuple[int, ...] | None = None
    places: Ints | None = None
    too_large: int = 0

    def __len__(self) -> int:
        return len(self.submit)

    @property
    def core_seconds(self) -> float:
        """The core-seconds of all jobs on-premise."""
        return float(np.sum(self.run * self.processors))

    @property
    def span(self) -> float:
        """From the first submission to the last, seconds."""
        return float(self.submit[-1] - self.submit[0])

    def before(self, rows: int) -> LoopJobs:
        """As many rows of the table before these, under the same rules."""
        earlier = loop_jobs(self.table, skip=self.first - rows, jobs=rows, nodes=self.machine)
        return replace(
            earlier,
            may_move=self.may_move,
            may_be_stopped=self.may_be_stopped,
            machines=self.machines,
            places=self.places,
        )

    def pool(self, rules: Rules | None = None) -> Pool | Machines:
        """The on-premise processors, empty, at the first submission; each row is a row of it."""
        count, begin = len(self), float(self.submit[0])
        if self.machines is None or self.places is None:
            return Pool(self.machine, count, begin, rules)
        return Machines(self.machines, self.places[self.first : self.first + count], begin, rules)


def places_of(table: JobTable, machines: Sequence[Machine]) -> Ints:
    """The number of the machine of each row, by its partition; -1: none of them.

    A job whose partition is not known is taken to be of the first.
    """
    number = places_by_partition(machines)
    of_code = np.array([*(number.get(name, -1) for name in table.names.get("queue", ())), 0])
    return np.where(table.queue == UNKNOWN_CODE, 0, of_code[table.queue])


def on_machines(jobs: LoopJobs, machines: Sequence[Machine]) -> LoopJobs:
    """The same jobs, all of which fit their machines; with one machine, all wait for it."""
    if len(machines) < 2:
        return jobs
    sizes = tuple(machine.processors for machine in machines)
    return replace(jobs, machines=sizes, places=places_of(jobs.table, machines))


def loop_jobs(table: JobTable, *, skip: int = 0, jobs: int | None = None, nodes: int = 0) -> LoopJobs:
    """Take the rows ``skip .. skip + jobs`` of a log.

    Args:
        jobs: Rows that are replayed; None for all.
        nodes: Processors of the on-premise cluster; 0: as the log's header says, without the jobs that ask
            for more than that.

    Raises:
        BadInput: No job is left, the machine's size is unknown, or a job is larger than ``nodes``.
    """
    machine = nodes or table.total_processors
    is_too_large = table.processors > machine
    too_large = int(np.sum(is_too_large)) if not nodes and machine > 0 else 0
    if too_large:
        table = table.select(~is_too_large)
    last = len(table) if jobs is None else min(len(table), skip + jobs)
    if skip >= last:
        raise BadInput(
            f"the log has {len(table)} jobs that ran, and {skip} are skipped",
            where=table.name,
            mend="Skip fewer jobs with --skip",
            code="rehearse.no_jobs",
        )
    if machine <= 0:
        raise BadInput(
            "the log's header does not say how many processors the machine has (MaxProcs)",
            where=table.name,
            mend="Say it with --nodes",
            code="rehearse.no_machine",
        )
    rows = slice(skip, last)
    run = np.maximum(table.run[rows], _SHORTEST_RUN)
    limit = np.maximum(table.limits[rows], 1.0)
    processors = table.processors[rows]
    if int(processors.max()) > machine:
        row = int(np.argmax(processors > machine))
        raise BadInput(
            f"job {table.job_id[skip + row]} needs {processors[row]} processors; the machine has {machine}",
            where=table.name,
            mend="Rehearse a larger machine with --nodes",
            code="rehearse.too_large",
        )
    return LoopJobs(
        table=table,
        first=skip,
        submit=table.submit[rows],
        limit=limit,
        run=np.minimum(run, limit),
        processors=processors,
        machine=machine,
        too_large=too_large,
    )
