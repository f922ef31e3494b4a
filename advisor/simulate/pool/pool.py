"""A pool of equal processors, under EASY backfilling or Slurm's, that a caller drives event by event.

The closed loop of `advisor rehearse`, `whatif`, `recommend` and `plan` has one for each machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.model.errors import BadInput
from advisor.simulate.heap import ENDING
from advisor.simulate.pool._forecast import forecast_starts
from advisor.simulate.pool._kernel import advance
from advisor.simulate.pool._state import (
    EVENT,
    GONE,
    JOB,
    RUNNING,
    SCALARS,
    STARTS,
    WAITING,
    Arrays,
    blocks_of,
    dequeue,
    enqueue,
    is_whole,
    stop,
)
from advisor.simulate.pool.rules import Rules

_ROOM: Final = 256  # events beyond those that a call asks for: one pass may start many jobs


class Event(NamedTuple):
    """A job (by its row) that has started or ended; time in seconds."""

    time: float
    row: int
    has_started: bool


class Resources(NamedTuple):
    """What jobs wait for beside processors, such as memory.

    Attributes:
        sizes: What the machine has of each resource, shape ``(k,)``.
        needs: What each row takes of it, shape ``(capacity, k)``.
    """

    sizes: Floats
    needs: Floats


class Pool:
    """Runs jobs by row number; every job is added once, and may be removed and added again.

    Args:
        capacity: Rows; a row is 0 to ``capacity - 1``.
        time: The clock's start, seconds.
        rules: Scheduling rules of a slurmctld, each processor being a node; None: EASY backfilling.
        resources: None: jobs wait for processors alone.
    """

    def __init__(
        self,
        processors: int,
        capacity: int,
        time: float = 0.0,
        rules: Rules | None = None,
        resources: Resources | None = None,
    ) -> None:
        self.processors = processors
        self._resources = resources or Resources(np.empty(0), np.empty((capacity, 0)))
        sizes = self._resources.sizes
        self._arrays = Arrays(
            jobs=np.zeros(capacity, JOB),
            queue=np.zeros(capacity, np.int64),
            least=blocks_of(capacity),
            running=np.zeros(capacity, np.int64),
            ending=np.zeros(3 * capacity + 128, ENDING),
            events=np.zeros(2 * capacity + _ROOM, EVENT),
            scalars=np.zeros(1, SCALARS),
            other_ends=np.zeros(capacity),
            owner=np.full(processors if rules else 0, -1),
            needs=self._resources.needs,
            stock=np.vstack((sizes, sizes, np.zeros(len(sizes)))),
            windows=np.vstack((np.full(len(sizes), -math.inf), np.full(len(sizes), math.inf))),
            groups=np.zeros(1),
        )
        self._scalars = self._arrays.scalars
        self._scalars["now"] = time
        self._scalars["free"], self._scalars["head"] = processors, -1
        self._scalars["is_whole"] = is_whole(self._resources.needs, sizes)
        if rules is not None:
            self._set_rules(rules, time)

    def _set_rules(self, rules: Rules, time: float) -> None:
        for name, value in (
            ("by_node", True),
            ("cycle", rules.cycle_seconds),
            ("last_cycle", time - rules.cycle_seconds),
            ("reservations", rules.reservations),
            ("depth", rules.depth),
            ("horizon", rules.horizon_seconds),
            ("window", rules.window_seconds),
            ("widening", rules.widening_seconds),
        ):
            self._scalars[name] = value

    @property
    def now(self) -> float:
        """The pool's clock, seconds."""
        return float(self._scalars["now"][0])

    @property
    def is_interrupted(self) -> bool:
        """Whether the last `advance` returned at a watched job's start."""
        return bool(self._scalars["stops"][0])

    @property
    def free(self) -> int:
        """Processors that no job has."""
        return int(self._scalars["free"][0])

    @property
    def next_end(self) -> float:
        """When the next running job may end, seconds; infinite: none runs. A stopped job may still show."""
        endings = int(self._scalars["endings"][0])
        return float(self._arrays.ending["time"][0]) if endings else math.inf

    @property
    def next_event(self) -> float:
        """When the next job may end, or backfilling is due, seconds; infinite: neither will be."""
        cycle = float(self._scalars["next_cycle"][0]) if self._scalars["is_cycle_due"][0] else math.inf
        return min(self.next_end, cycle)

    @property
    def waiting(self) -> Ints:
        """Rows in the queue's order."""
        places = self._arrays.queue[int(self._scalars["first"][0]) : int(self._scalars["last"][0])]
        return np.asarray(places[places != GONE])

    @property
    def waiting_processors(self) -> int:
        """Processors that the jobs in the queue ask for."""
        return int(self._arrays.jobs["processors"][self.waiting].sum())

    @property
    def running(self) -> Ints:
        """Rows of running jobs by planned end."""
        ahead, running = int(self._scalars["ahead"][0]), int(self._scalars["running"][0])
        return self._arrays.running[ahead : ahead + running]

    @property
    def ran(self) -> Floats:
        """The time that each of :attr:`running` has run, seconds."""
        return np.asarray(self.now - self._arrays.jobs["start"][self.running])

    def is_waiting(self, row: int) -> bool:
        """Whether the job is in the queue."""
        return bool(self._arrays.jobs["where"][row] == WAITING)

    def is_running(self, row: int) -> bool:
        """Whether the job has processors."""
        return bool(self._arrays.jobs["where"][row] == RUNNING)

    def add(
        self,
        row: int,
        *,
        processors: int,
        limit: float,
        run: float,
        order: float,
        rank: float = 0.0,
    ) -> None:
        """Put a job in the queue; it can start with the next call of `advance`.

        Args:
            row: Free, or of a job that was removed, stopped or has ended.
            processors: Number of processors of the job, at least 1.
            limit, run: Seconds; the job is killed at its limit.
            order: Its place among jobs of equal rank, smallest first; usually its submission.
            rank: Jobs of smaller rank come first.

        Raises:
            BadInput: The job is larger than the machine.
        """
        needs, sizes = self._resources.needs[row], self._resources.sizes
        is_too_large = bool(np.any(needs > sizes))
        if processors > self.processors or is_too_large:
            more = f". Of other resources it needs {needs}; the machine has {sizes}" if is_too_large else ""
            raise BadInput(
                f"it needs {processors} processors, and the machine has {self.processors}{more}",
                where=f"simulated cluster, job in row {row} of those that are simulated",
                mend="Simulate a larger machine (--nodes), or leave the job out of the log",
                code="simulate.too_large",
            )
        job = self._arrays.jobs[row]
        job["rank"], job["order"], job["limit"], job["run"] = rank, order, limit, run
        job["processors"], job["is_watched"] = processors, False
        enqueue(self._arrays, row)

    def watch(self, row: int, *, is_watched: bool) -> None:
        """Let `advance` return at the job's start, or no longer."""
        self._arrays.jobs["is_watched"][row] = is_watched

    def remove(self, row: int) -> None:
        """Take a waiting job out of the queue."""
        dequeue(self._arrays, row)

    def stop(self, row: int) -> None:
        """End a running job now; it may be added again."""
        stop(self._arrays, row)

    def set_other_ends(self, ends: Sequence[float]) -> None:
        """Say when running jobs of other partitions end by their limits, seconds, ascending.

        Slurm's plan looks at them where it merges ends (``advisor.simulate.pool._nodes.will_run``).
        """
        self._arrays.other_ends[: len(ends)] = ends
        self._scalars["others"] = len(ends)

    def advance(self, until: float) -> list[Event]:
        """Go on to ``until`` (seconds, inclusive), or until a watched job has started.

        `is_interrupted` says which.
        """
        found: list[Event] = []
        is_done = False
        while not is_done:
            self._scalars["events"] = 0
            is_done = advance(self._arrays, until, len(self._arrays.jobs))
            events = self._arrays.events[: int(self._scalars["events"][0])]
            found += [Event(float(t), int(row), bool(kind == STARTS)) for t, row, kind in events.tolist()]
        return found

    def forecast(self, runs: Floats, starts: Floats | None = None) -> Floats:
        """Forecast the start of each waiting job if no other job comes; seconds, shape ``(capacity,)``.

        Args:
            runs: Forecast run times by row, shape ``(capacity,)``, seconds; of running jobs from their start.
                Jobs are still planned by their limits, as Slurm does.
            starts: Array that the starts of waiting jobs are written into, and that is returned; None: a new
                one of NaN.
        """
        if starts is None:
            starts = np.full(len(self._arrays.jobs), math.nan)
        forecast_starts(self._arrays, runs, starts)
        return starts
