"""The jobs of a log as a closed loop needs them: those that `advisor rehearse` simulates, those before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats, Ints
from advisor.model.errors import BadInput
from advisor.model.machine import Machine, machine_index_by_partition
from advisor.model.table import UNKNOWN_CODE, JobTable
from advisor.simulate.pool.machines import Machines
from advisor.simulate.pool.pool import Pool, Resources
from advisor.simulate.pool.rules import Rules

_RESOURCES = 3  # processors, memory, GPUs
_SHORTEST_RUN = 1e-3  # seconds; a job of run time 0 would end before it starts


class OnPremise(NamedTuple):
    """The machines on-premise (partitions that share no nodes), and what jobs hold of them.

    Attributes:
        sizes: What each has of processors, memory (MiB) and GPUs, and the processors of each subset of its
            nodes to which partitions are bound, shape ``(m, 3 + s)``; 0: no job waits for it.
        places: The number of the machine of each row of the table, shape ``(n,)``; -1: none of them.
        held: What each row of the table holds of its machine, shape ``(n, 3 + s)``.
    """

    sizes: Ints
    places: Ints
    held: Ints

    def which_fit(self) -> NDArray[np.bool_]:
        """Which rows are no larger than their machine, shape ``(n,)``."""
        return np.asarray((self.places >= 0) & np.all(self.held <= self.sizes[self.places], axis=1))

    def as_one(self) -> OnPremise:
        """The same jobs on one machine that has all."""
        sizes, held = self.sizes[:, :_RESOURCES], self.held[:, :_RESOURCES]
        return OnPremise(sizes.sum(axis=0, keepdims=True), np.minimum(self.places, 0), held)

    def of(self, rows: slice | NDArray[np.bool_]) -> OnPremise:
        """The same machines, with these rows of the table."""
        return self._replace(places=self.places[rows], held=self.held[rows])

    def machines(self, begin: float, rules: Rules | None) -> Machines:
        """The machines, empty, at a moment; a row of this is a row of theirs."""
        needs = self.held[:, 1:].astype(np.float64)
        resources = [Resources(size[1:].astype(np.float64), needs) for size in self.sizes]
        return Machines(self.sizes[:, 0].tolist(), self.places, begin, rules, resources)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoopJobs:
    """Jobs in submission order, and the log's rows before them, from which estimators may learn.

    Attributes:
        first: Row of the table that is row 0 here.
        submit: Shape ``(n,)``, seconds since the log's start, ascending.
        limit: Time limit, seconds; where the log has none, :func:`~advisor.model.table.limits_of`.
        run: True run time on-premise, seconds, cut at the limit, where a site kills the job.
        machine: Processors of the on-premise cluster.
        on_premise: What it consists of. None: one machine, on which jobs wait for processors alone.
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
    on_premise: OnPremise | None = None
    too_large: int = 0

    def __len__(self) -> int:
        return len(self.submit)

    def on_machines(self, machines: Sequence[Machine]) -> LoopJobs:
        """The same jobs, all of which fit, on a site's machines; unchanged where these are not known."""
        return replace(self, on_premise=on_premise_of(self.table, machines, self.machine))

    def on_one_machine(self) -> LoopJobs:
        """The same jobs on one machine that has all nodes."""
        return replace(self, on_premise=self.on_premise and self.on_premise.as_one())

    @property
    def held(self) -> Ints:
        """What the first ``first + n`` rows of the table hold on-premise, shape ``(first + n, 3)``."""
        if self.on_premise is not None:
            return self.on_premise.held[: self.first + len(self), :_RESOURCES]
        asked = self.table.processors[: self.first + len(self)]
        return np.column_stack((asked, np.zeros_like(asked), np.zeros_like(asked)))

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
            on_premise=self.on_premise,
        )

    def pool(self, rules: Rules | None = None) -> Pool | Machines:
        """The on-premise processors, empty, at the first submission; each row is a row of it."""
        count, begin = len(self), float(self.submit[0])
        if self.on_premise is None:
            return Pool(self.machine, count, begin, rules)
        return self.on_premise.of(slice(self.first, self.first + count)).machines(begin, rules)


def places_of(table: JobTable, machines: Sequence[Machine]) -> Ints:
    """The number of the machine of each row, by its partition; -1: none of them.

    A job whose partition is not known is taken to be of the first. Where there is one machine all are: a
    partition may have had another name, or have had nodes of it that are not managed.
    """
    number, other = machine_index_by_partition(machines), 0 if len(machines) == 1 else -1
    of_code = np.array([*(number.get(name, other) for name in table.names.get("queue", ())), 0])
    return np.where(table.queue == UNKNOWN_CODE, 0, of_code[table.queue])


def on_premise_of(table: JobTable, machines: Sequence[Machine], processors: int) -> OnPremise | None:
    """What the jobs of a table hold of a site's machines; None where no usable node of these is known.

    Args:
        table: Jobs that ran on-premise, or as if they had.
        processors: Of all nodes, of which some may not be usable at the moment. They count where there is one
            machine, and the others in proportion.
    """
    if not any(one.processors for one in machines):
        return None
    places, names = places_of(table, machines), table.names.get("queue", ())
    bound = [[part for part in one.subsets if part.partitions] for one in machines]
    more = max(map(len, bound))
    sizes = np.zeros((len(machines), _RESOURCES + more), np.int64)
    sizes[:, :_RESOURCES] = [(one.processors, one.memory_mb, one.gpus) for one in machines]
    held = np.hstack((table.held, np.zeros((len(table), more), np.int64)))
    for place, parts in enumerate(bound):
        for column, part in enumerate(parts, _RESOURCES):
            sizes[place, column] = part.size
            codes = [code for code, name in enumerate(names) if name in part.partitions]
            rows = (places == place) & np.isin(table.queue, codes)
            held[rows, column] = held[rows, 0]
    if len(machines) == 1:
        sizes = sizes * processors // sizes[0, 0]
    held[:, _RESOURCES:] = np.minimum(held[:, _RESOURCES:], sizes[places, _RESOURCES:])  # some may be down
    held[:, 1:][sizes[places, 1:] == 0] = 0
    return OnPremise(sizes, places, held)


def loop_jobs(table: JobTable, *, skip: int = 0, jobs: int | None = None, nodes: int = 0) -> LoopJobs:
    """Take the rows ``skip .. skip + jobs`` of a log.

    Args:
        jobs: Rows that are replayed; None for all.
        nodes: Processors of the on-premise cluster; 0: as the log's header says. Jobs that ask for more are
            left out.

    Raises:
        BadInput: No job is left, or the machine's size is unknown.
    """
    machine = nodes or table.total_processors
    is_too_large = table.processors > machine
    too_large = int(np.sum(is_too_large)) if machine > 0 else 0
    if too_large:
        table = table.select(~is_too_large)
    last = len(table) if jobs is None else min(len(table), skip + jobs)
    if skip >= last:
        raise BadInput(
            f"the log has {len(table):,} jobs that ran and fit the machine, and {skip:,} are skipped",
            where=table.name,
            mend="Skip fewer jobs with --skip"
            + (", or give a larger machine with --nodes" if too_large else ""),
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
