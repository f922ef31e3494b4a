"""One site on a virtual clock: on-premise processors under EASY, a cloud with room for all, a budget.

`advisor rehearse`, `whatif`, `recommend` and `plan` run one for each policy and budget.

The world knows what happens; a :class:`Policy` decides. Time goes from event to event: a submission, a start,
an end, the end of a slice, and a round of decisions every few minutes while jobs wait.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.decide.price.demand_price import DemandPrice
from advisor.decide.price.tokens import Tokens
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.pool_runs import StartsForecast
from advisor.simulate.pool.pool import Event
from advisor.simulate.pool.rules import Rules

Progress = Callable[[int, int], None]
"""Called with (jobs submitted, jobs)."""

_NEVER: Final = math.inf
_MOMENT: Final = 1e-6  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """The cloud, the money and the clock.

    Attributes:
        boot_seconds: Time from the request of a node to the job's start.
        slowdown: s, run time in the cloud over run time on-premise.
        bills_boot: Whether the boot is paid for.
        budget_share: Core-seconds that may be bought, as a share of those of the log.
        round_seconds: Between two rounds of decisions while jobs wait.
        max_days: The most days of the budget's accrual that are kept: its period.
        rules: Scheduling rules of the site's slurmctld, each processor being a node; None: EASY backfilling.
        node_processors: Processors of a cloud node; a job pays for whole nodes.
    """

    boot_seconds: float = 120.0
    slowdown: float = 1.05
    bills_boot: bool = False
    budget_share: float = 0.05
    round_seconds: float = 600.0
    max_days: float = 30.0
    rules: Rules | None = None
    node_processors: int = 1


class Money(Protocol):
    """The core-seconds that may be spent; times are those of the log. See :class:`Tokens`."""

    per_second: float

    @property
    def held(self) -> float:
        """The core-seconds that may be committed now."""
        ...

    @property
    def per_day(self) -> float:
        """The budget of a day."""
        ...

    def held_for(self, key: int) -> float:
        """The core-seconds that a row's start may commit now."""
        ...

    def accrue(self, now: float) -> None:
        """Go on to a time."""
        ...

    def reserve(self, days_ahead: float, reserve_days: float) -> float:
        """The core-seconds that should be at hand now."""
        ...

    def price_share(self, key: int) -> float:
        """The share of the price that holds for a row's job."""
        ...

    def commit(self, key: int, most: float) -> bool:
        """Take the most that a row's start may cost; False, and nothing is taken, where it is not there."""
        ...

    def settle(self, key: int, actual: float) -> None:
        """Give back what a start has not cost."""
        ...


class Policy:
    """A policy; this base class moves no job. Methods may use the world's actuators and its rows.

    Attributes:
        name: The policy's name in the rehearsal's rows.
    """

    name = "all-on-premise"

    def begin(self, world: World) -> None:
        """Learn from the log's rows before the first job."""

    def submitted(self, world: World, row: int) -> None:
        """A job was submitted; it is in the queue."""

    def round(self, world: World) -> None:
        """A round of decisions is due, and jobs wait."""

    def slice_ended(self, world: World, row: int, elapsed: float) -> None:
        """A job has run ``elapsed`` seconds, to its stop: let it go on, or it returns to its place."""

    def turn_came(self, world: World, row: int) -> bool:
        """A job in the cloud could start on-premise at its kept place; True: it stays in the cloud."""
        return row in world.cloud

    def started(self, world: World, row: int) -> None:
        """A job has started on-premise."""

    def ended(self, world: World, row: int) -> None:
        """A job has ended, here or there."""


@dataclass(slots=True)
class CloudRun:
    """A slice under way: ``elapsed`` run time before it, its ``stop``; seconds of on-premise run time."""

    began: float
    elapsed: float
    stop: float
    boot: float
    paid_boot: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoopResult:
    """The outcome of each row; seconds and core-seconds.

    Attributes:
        end: End of each job.
        cost: Core-seconds paid in the cloud.
        moved: Whether the job was started in the cloud at least once.
    """

    end: Floats
    cost: Floats
    moved: NDArray[np.bool_]


def price_now(price: DemandPrice, world: World) -> float:
    """The price of time in a world, seconds per core-second."""
    tokens = world.tokens
    reserve = tokens.reserve(price.days_ahead(world.now, world.options.max_days), price.pace.reserve_days)
    return price.price(world.now, held=tokens.held, reserve=reserve, per_day=tokens.per_day)


class World:
    """One site while a policy decides for it.

    Args:
        tokens: The money; None: the budget share accrues evenly.
    """

    def __init__(
        self, jobs: LoopJobs, options: WorldOptions, policy: Policy, tokens: Money | None = None
    ) -> None:
        count = len(jobs)
        self.jobs = jobs
        self.options = options
        self.pool = jobs.pool(options.rules)
        self._held = jobs.held[jobs.first :, 0]
        self.billed = -(-jobs.processors // options.node_processors) * options.node_processors
        self.budget = options.budget_share * jobs.core_seconds
        self.tokens: Money = tokens or Tokens(
            self.budget / max(jobs.span, 1.0),
            time=float(jobs.submit[0]),
            until=float(jobs.submit[-1]),
            max_days=options.max_days,
        )
        self.now = float(jobs.submit[0])
        self.cloud: dict[int, CloudRun] = {}
        self.keeps_place: set[int] = set()
        self.end = np.full(count, math.nan)
        self.cost = np.zeros(count)
        self.moved = np.zeros(count, np.bool_)
        self._forecast = StartsForecast(count)
        self._stops: list[tuple[float, int, int]] = []
        self._version = np.zeros(count, np.int64)
        self._policy = policy

    # ---------------------------------------------------------------------------- what a policy may do

    def most(self, row: int, elapsed: float, stop: float, boot: float) -> float:
        """The highest cost of a slice, core-seconds."""
        run = self.options.slowdown * (stop - elapsed)
        return float(self.billed[row]) * (run + (boot if self.options.bills_boot else 0.0))

    def longest(self, row: int, boot: float) -> float:
        """The longest slice that the money at hand pays for, seconds of on-premise run time."""
        seconds = self.tokens.held_for(row) / float(self.billed[row])
        return (seconds - (boot if self.options.bills_boot else 0.0)) / self.options.slowdown - _MOMENT

    def start_in_cloud(self, row: int, stop: float, *, keeps_place: bool) -> bool:
        """Start a waiting job in the cloud, up to a run time of ``stop``; False: no tokens, or it may not."""
        if not self.may_move(row) or not self._begin_slice(row, 0.0, stop, self.options.boot_seconds):
            return False
        self.moved[row] = True
        if keeps_place and self.may_be_stopped(row):
            self.pool.watch(row, is_watched=True)
            self.keeps_place.add(row)
        else:
            self.pool.remove(row)
        return True

    def may_move(self, row: int) -> bool:
        """Whether the site's rules let a job move."""
        allowed = self.jobs.may_move
        return allowed is None or bool(allowed[self.jobs.first + row])

    def may_be_stopped(self, row: int) -> bool:
        """Whether a job may be stopped and requeued: only then it may leave the cloud before its end."""
        allowed = self.jobs.may_be_stopped
        return allowed is None or bool(allowed[self.jobs.first + row])

    def go_on(self, row: int, elapsed: float, stop: float) -> bool:
        """Let a job whose slice has just ended run on to ``stop``; False: the tokens do not suffice."""
        return self._begin_slice(row, elapsed, stop, 0.0)

    def run_to_end(self, row: int) -> bool:
        """Let a job in the cloud run to its limit, without another stop; False: the tokens do not suffice."""
        run, elapsed, limit = self.cloud[row], self.elapsed(row), float(self.jobs.limit[row])
        if self.most(row, run.stop, limit, 0.0) > self.tokens.held_for(row):
            return False  # its slice is committed already
        boot = self.boot_left(row)
        self._settle(row)
        return self._begin_slice(row, elapsed, limit, boot)

    def elapsed(self, row: int) -> float:
        """Run time so far of a job in the cloud, seconds of on-premise run time."""
        run = self.cloud[row]
        return run.elapsed + max(0.0, self.now - run.began - run.boot) / self.options.slowdown

    def boot_left(self, row: int) -> float:
        """Seconds until a job in the cloud begins to run."""
        run = self.cloud[row]
        return max(0.0, run.began + run.boot - self.now)

    def forecast(self, runs: Floats) -> Floats:
        """Forecast starts of waiting jobs by forecast run times; see :meth:`Pool.forecast`.

        The next call overwrites the array.
        """
        return self._forecast.of(self.pool, runs)

    # ------------------------------------------------------------------------------------- the clock

    def run(self, progress: Progress | None = None) -> LoopResult:
        """Run until every job has ended."""
        jobs, pool, policy = self.jobs, self.pool, self._policy
        policy.begin(self)
        row, next_round = 0, self.now
        count = len(jobs)
        while True:
            submission = float(jobs.submit[row]) if row < count else _NEVER
            stop = self._stops[0][0] if self._stops else _NEVER
            due = max(next_round, self.now) if len(pool.waiting) else _NEVER
            until = min(submission, stop, due)
            self._advance(until)
            if until == _NEVER:
                if not self._stops:
                    break
                continue  # a start on-premise has begun a slice
            if self._stops and self._stops[0][0] <= until:
                self._slice_ends()
            elif submission <= until:
                self._submit(row)
                row += 1
                if progress is not None and row % 500 == 0:
                    progress(row, count)
            else:
                next_round = until + self.options.round_seconds
                policy.round(self)
        return LoopResult(end=self.end, cost=self.cost, moved=self.moved)

    def _advance(self, until: float) -> None:
        while True:
            for event in self.pool.advance(until):
                self._take(event)
            if not self.pool.is_interrupted:
                break
        if until < _NEVER:
            self.now = until
            self.tokens.accrue(until)

    def _take(self, event: Event) -> None:
        policy = self._policy
        row = event.row
        self.now = event.time
        self.tokens.accrue(event.time)
        if not event.has_started:
            self.end[row] = event.time
            policy.ended(self, row)
            return
        if row in self.cloud:
            self.pool.watch(row, is_watched=False)
            self.keeps_place.discard(row)
            if policy.turn_came(self, row):
                self.pool.stop(row)
                return
            self._settle(row)
        policy.started(self, row)

    def _submit(self, row: int) -> None:
        self._enqueue(row)
        self._policy.submitted(self, row)

    def _enqueue(self, row: int) -> None:
        jobs = self.jobs
        self.pool.add(
            row,
            processors=int(self._held[row]),
            limit=float(jobs.limit[row]),
            run=float(jobs.run[row]),
            order=float(row),
        )

    def _begin_slice(self, row: int, elapsed: float, stop: float, boot: float) -> bool:
        if not self.tokens.commit(row, self.most(row, elapsed, stop, boot)):
            return False
        self.cloud[row] = CloudRun(self.now, elapsed, stop, boot, boot if self.options.bills_boot else 0.0)
        self._version[row] += 1
        self._tell_other_ends()
        run = min(float(self.jobs.run[row]), stop)
        time = self.now + boot + self.options.slowdown * (run - elapsed)
        heapq.heappush(self._stops, (time, row, int(self._version[row])))
        return True

    def _tell_other_ends(self) -> None:
        """Slurm plans by the limits of all running jobs, those of the burst partition too."""
        if self.options.rules is not None:
            limits = self.jobs.limit
            self.pool.set_other_ends(
                sorted(run.began + run.boot + float(limits[row]) for row, run in self.cloud.items())
            )

    def _settle(self, row: int) -> None:
        """End a slice now, and pay it."""
        run = self.cloud.pop(row)
        self._version[row] += 1
        self._tell_other_ends()
        seconds = max(0.0, self.now - run.began - run.boot) + min(run.paid_boot, self.now - run.began)
        cost = min(float(self.billed[row]) * seconds, self.most(row, run.elapsed, run.stop, run.paid_boot))
        self.tokens.settle(row, cost)
        self.cost[row] += cost

    def _slice_ends(self) -> None:
        _, row, version = heapq.heappop(self._stops)
        if version != self._version[row]:
            return
        policy = self._policy
        stop = self.cloud[row].stop
        self._settle(row)
        if self.jobs.run[row] <= stop + _MOMENT:
            self.end[row] = self.now
            if row in self.keeps_place:
                self.keeps_place.discard(row)
                self.pool.watch(row, is_watched=False)
                self.pool.remove(row)
            policy.ended(self, row)
            return
        policy.slice_ended(self, row, stop)
        if row not in self.cloud:
            if row in self.keeps_place:
                self.keeps_place.discard(row)
                self.pool.watch(row, is_watched=False)
            else:
                self._enqueue(row)
