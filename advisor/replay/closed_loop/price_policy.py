"""The one price in a closed loop: each job's best slice in the cloud, where it saves enough for its money."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.decide.price.demand_price import DemandKept, DemandPrice, Pace
from advisor.decide.price.slices import (
    MAX_CLOUD_STARTS,
    SHORTER_BELOW,
    CloudOffer,
    Slice,
    best_slice,
    forget_below,
)
from advisor.decide.submission.priced import saving_deviation
from advisor.model.estimate import Estimate
from advisor.predict.intervals import Intervals
from advisor.replay.closed_loop.first_price import EARLIER_JOBS, PricedPolicy, first_price
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.pool_runs import PoolRuns
from advisor.replay.closed_loop.world import World, price_now

_NOW: Final = 1.0  # seconds; a job that is forecast to wait less starts at once
_MAX_FORECASTS: Final = 16  # of the queue in a round: a queue of thousands is not simulated for each move


class RunForecasts(Protocol):
    """Run times as distributions over bins, learned as jobs end."""

    edges: Floats

    def submitted(self, jobs: LoopJobs, row: int) -> None:
        """Note what was known when a job was submitted: its end teaches what followed that."""
        ...

    def forecast(self, jobs: LoopJobs, row: int) -> Floats:
        """Probabilities by bin, shape ``(bins,)``; nothing above the job's limit."""
        ...

    def learn_history(self, jobs: LoopJobs, until: float) -> None:
        """Learn the log's rows before the first job that had ended by ``until``, seconds."""
        ...

    def learn(self, jobs: LoopJobs, row: int) -> None:
        """Learn a job that has ended."""
        ...


class PricePolicy(PricedPolicy):
    """Decide by one price, with what was known at each moment.

    Args:
        forecasts: Makes untaught forecasts of run times.
        loss_weight: How many saved hours one lost hour outweighs.
        earlier_jobs: Rows before the window on which the price is rehearsed, so that it does not begin blind;
            0: it begins with ``pace.first_price``.
        fixed_price: Seconds that a core-second has to save; None: the budget sets the price.
        uncertainty_limit: Largest standard deviation of a saving, seconds.
    """

    name = "price"

    def __init__(
        self,
        forecasts: Callable[[], RunForecasts],
        *,
        pace: Pace | None = None,
        loss_weight: float = 1.0,
        earlier_jobs: int = EARLIER_JOBS,
        fixed_price: float | None = None,
        uncertainty_limit: float = math.inf,
    ) -> None:
        self._make = forecasts
        self._forecasts = forecasts()
        self._pace = pace or Pace()
        self._loss_weight = loss_weight
        self._earlier_jobs = earlier_jobs
        self._fixed_price = fixed_price
        self._uncertainty_limit = uncertainty_limit
        self._intervals = Intervals()
        self._planned: dict[int, Estimate] = {}
        self._returns: Ints
        self._queue: PoolRuns
        self._ran: Floats  # seconds of on-premise run time that a job is known to need more than

    @property
    def demand(self) -> DemandKept:
        """The present demand from which the price is read; seconds per core-second and core-seconds."""
        return self.demand_price.kept()

    def begin(self, world: World) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self.demand_price = self._first_price(world)
        self._forecasts.learn_history(world.jobs, world.now)
        self._queue = PoolRuns(world.jobs.limit, self._forecasts.edges)
        self._returns = np.zeros(len(world.jobs), np.int64)
        self._ran = np.zeros(len(world.jobs))

    def submitted(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._forecasts.submitted(world.jobs, row)
        self._queue.see(row, self._forecasts.forecast(world.jobs, row))
        wait = self._starts(world)[row] - world.now
        if self._uncertainty_limit < math.inf:
            self._planned[row] = self._intervals.wait(wait)
        self._consider(world, row, wait)

    def round(self, world: World) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        starts = self._starts(world)
        going: list[tuple[float, int]] = []
        for row in world.pool.waiting.tolist():
            wait = starts[row] - world.now
            may_go = world.may_move(row) and self._returns[row] < MAX_CLOUD_STARTS
            if row in world.cloud or wait <= _NOW or not may_go:
                continue
            offered = self._best(world, row, 0.0, wait, world.options.boot_seconds)
            if self._is_worth(world, row, 0.0, wait, offered):
                going.append((offered.value, row))
        is_stale, forecasts = False, 1
        for _, row in sorted(going, reverse=True):
            if is_stale and forecasts < _MAX_FORECASTS:
                starts = self._starts(world)
                forecasts += 1
            is_stale = self._consider(world, row, starts[row] - world.now)

    def slice_ended(self, world: World, row: int, elapsed: float) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._ran[row] = max(self._ran[row], elapsed)
        wait = 0.0
        if row in world.keeps_place:
            wait = max(0.0, self._starts(world)[row] - world.now)
        self._buy(world, row, elapsed, wait, 0.0, lambda stop: world.go_on(row, elapsed, stop))
        if row not in world.cloud:
            self._returns[row] += 1

    def turn_came(self, world: World, row: int) -> bool:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        elapsed = world.elapsed(row)
        offered = self._best(world, row, elapsed, 0.0, world.boot_left(row), is_whole=True)
        stays = self._is_worth(world, row, elapsed, 0.0, offered) and world.run_to_end(row)
        if not stays:
            self._ran[row] = max(self._ran[row], elapsed)
            self._returns[row] += 1
        return stays

    def started(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        if (planned := self._planned.pop(row, None)) is not None:
            self._intervals.learn_wait(planned, world.now - float(world.jobs.submit[row]))

    def ended(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._forecasts.learn(world.jobs, row)
        self._queue.forget(row)

    def _first_price(self, world: World) -> DemandPrice:
        if self._fixed_price is not None:
            return DemandPrice(self._pace, world.now)
        earlier = PricePolicy(
            self._make,
            pace=self._pace,
            loss_weight=self._loss_weight,
            earlier_jobs=0,
            uncertainty_limit=self._uncertainty_limit,
        )
        return first_price(world, earlier, pace=self._pace, earlier_jobs=self._earlier_jobs)

    def _chances(self, world: World, row: int) -> Floats:
        """The run time by all that is known now, for a job that has run in the cloud without an end, too."""
        chances = self._forecasts.forecast(world.jobs, row)
        if self._ran[row] > 0.0:
            forget_below(chances, self._forecasts.edges, float(self._ran[row]))
        return chances

    def _starts(self, world: World) -> Floats:
        # By expected run times: limits leave 6 % more wait (docs/measurements.md, "Forecasts of waits")
        return self._queue.starts(world.pool)

    def _consider(self, world: World, row: int, wait: float) -> bool:
        """Start a waiting job in the cloud where that is worth the price."""
        if wait <= _NOW or not world.may_move(row):
            return False
        boot = world.options.boot_seconds
        return self._buy(
            world, row, 0.0, wait, boot, lambda stop: world.start_in_cloud(row, stop, keeps_place=True)
        )

    def _buy(
        self,
        world: World,
        row: int,
        elapsed: float,
        wait: float,
        start: float,
        begin: Callable[[float], bool],
    ) -> bool:
        """Begin the best slice where it is worth the price; else a shorter one that the account can pay.

        Args:
            begin: Begins a slice to a stop; False where the money at hand does not cover it.
        """
        offered = self._best(world, row, elapsed, wait, start)
        if not self._is_worth(world, row, elapsed, wait, offered):
            return False
        if begin(offered.stop):
            return True
        if not world.may_be_stopped(row) or world.tokens.price_share(row) >= SHORTER_BELOW:
            return False
        longest = world.longest(row, start)
        shorter = self._best(world, row, elapsed, wait, start, longest=longest)
        return shorter.value >= self._price_now(world, row) and begin(shorter.stop)

    def _best(
        self,
        world: World,
        row: int,
        elapsed: float,
        wait: float,
        start: float,
        *,
        longest: float = math.inf,
        is_whole: bool = False,
    ) -> Slice:
        options = world.options
        return best_slice(
            self._chances(world, row),
            self._forecasts.edges,
            limit=float(world.jobs.limit[row]),
            elapsed=elapsed,
            wait=wait,
            offer=CloudOffer(
                start_seconds=start,
                slowdown=options.slowdown,
                cost_per_second=int(world.billed[row]),
                paid_start_seconds=start if options.bills_boot else 0.0,
                is_whole=is_whole or not world.may_be_stopped(row),
            ),
            loss_weight=self._loss_weight,
            longest=longest,
        )

    def _is_worth(self, world: World, row: int, elapsed: float, wait: float, offered: Slice) -> bool:
        # a job that has returned from the cloud and goes there again is further demand
        key = row, int(self._returns[row]), elapsed
        self.demand_price.note(key, index=offered.value, cost=offered.cost, now=world.now)
        is_sure = offered.value > 0.0 and self._is_sure(world, row, elapsed, wait, offered)
        return is_sure and offered.value >= self._price_now(world, row)

    def _is_sure(self, world: World, row: int, elapsed: float, wait: float, offered: Slice) -> bool:
        """Whether the standard deviation of what a start saves is within the limit; only a start is asked."""
        if elapsed > 0.0 or self._uncertainty_limit == math.inf:
            return True
        deviation = saving_deviation(
            self._chances(world, row),
            self._forecasts.edges,
            offered.stop,
            float(world.jobs.limit[row]),
            wait,
            self._intervals.wait(wait).variance,
            world.options.boot_seconds,
            world.options.slowdown,
        )
        return float(deviation) <= self._uncertainty_limit

    def _price_now(self, world: World, row: int) -> float:
        if self._fixed_price is not None:
            return self._fixed_price
        return world.tokens.price_share(row) * price_now(self.demand_price, world)
