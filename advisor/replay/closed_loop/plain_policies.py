"""Policies to compare with: overflow, Starburst's waiting budget, the clairvoyant."""

from __future__ import annotations

from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.decide.price.demand_price import DemandPrice, Pace
from advisor.replay.closed_loop.first_price import EARLIER_JOBS, PricedPolicy, first_price
from advisor.replay.closed_loop.world import Policy, World, price_now

_NOW: Final = 1.0  # seconds; a job that is forecast to wait less starts at once
_PACE: Final = Pace(reserve_days=4.0)  # of Starburst, which has no tokens ahead


class Overflow(Policy):
    """Slurm's ``-p onprem,burst`` under a budget: a job starts there as soon as tokens cover its limit.

    Jobs are served in the queue's order, and none overtakes another to the cloud.
    """

    name = "overflow"

    def submitted(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        if world.pool.is_waiting(row):
            self.round(world)

    def round(self, world: World) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        starts = world.forecast(world.jobs.limit)
        for row in world.pool.waiting.tolist():
            if starts[row] - world.now <= _NOW:
                continue
            limit = float(world.jobs.limit[row])
            if world.most(row, 0.0, limit, world.options.boot_seconds) <= world.tokens.held:
                world.start_in_cloud(row, limit, keeps_place=False)


class Starburst(Policy):
    """Starburst's waiting budget: a job waits in proportion to what it costs, then bursts (Luo et al. 2024).

    The factor is the price of time, which follows demand and money as the one price does.
    """

    name = "starburst"

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or _PACE
        self._price: DemandPrice

    def begin(self, world: World) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._price = DemandPrice(self._pace, world.now)

    def round(self, world: World) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        ranked: list[tuple[float, int]] = []
        for row in world.pool.waiting.tolist():
            limit = float(world.jobs.limit[row])
            cost = world.most(row, 0.0, limit, 0.0)
            index = (world.now - float(world.jobs.submit[row])) / cost
            self._price.note(row, index=index, cost=cost, now=world.now)
            ranked.append((index, row))
        tokens = world.tokens
        reserve = tokens.reserve(0.0, self._price.pace.reserve_days)
        price = self._price.price(world.now, held=tokens.held, reserve=reserve, per_day=tokens.per_day)
        for index, row in sorted(ranked, reverse=True):
            if index < price:
                break
            world.start_in_cloud(row, float(world.jobs.limit[row]), keeps_place=False)


class Clairvoyant(PricedPolicy):
    """The same price with true run times, for waits and costs: what no advisor can know.

    Args:
        earlier_jobs: Rows before the window on which the price is rehearsed.
    """

    name = "clairvoyant"

    def __init__(self, pace: Pace | None = None, *, earlier_jobs: int = EARLIER_JOBS) -> None:
        self._pace = pace or Pace()
        self._earlier_jobs = earlier_jobs

    def begin(self, world: World) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        earlier = Clairvoyant(self._pace, earlier_jobs=0)
        self.demand_price = first_price(world, earlier, pace=self._pace, earlier_jobs=self._earlier_jobs)

    def submitted(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._consider(world, row, world.forecast(world.jobs.run))

    def round(self, world: World) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        starts = world.forecast(world.jobs.run)
        ranked = [(self._index(world, row, starts), row) for row in world.pool.waiting.tolist()]
        is_stale = False
        for index, row in sorted(ranked, reverse=True):
            if index < price_now(self.demand_price, world):
                break
            if is_stale:
                starts = world.forecast(world.jobs.run)
            is_stale = self._consider(world, row, starts)

    def _index(self, world: World, row: int, starts: Floats) -> float:
        options, run = world.options, float(world.jobs.run[row])
        wait = starts[row] - world.now
        if wait <= _NOW:
            return -1.0
        saving = wait - options.boot_seconds - (options.slowdown - 1.0) * run
        cost = world.most(row, 0.0, run, options.boot_seconds)
        self.demand_price.note((row,), index=saving / cost, cost=cost, now=world.now)
        return float(saving / cost)

    def _consider(self, world: World, row: int, starts: Floats) -> bool:
        index = self._index(world, row, starts)
        if index <= 0.0 or index < price_now(self.demand_price, world):
            return False
        return world.start_in_cloud(row, float(np.nextafter(world.jobs.run[row], np.inf)), keeps_place=False)
