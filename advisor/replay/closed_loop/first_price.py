"""The price with which a policy begins: that after the rows before the window, under the same budget."""

from __future__ import annotations

from typing import Final

import numpy as np

from advisor.decide.price.demand_price import DemandPrice, Pace
from advisor.decide.price.tokens import DAY, Tokens
from advisor.replay.closed_loop.world import Policy, World

EARLIER_JOBS: Final = 5_000
_MIN_EARLIER_JOBS: Final = 200


class PricedPolicy(Policy):
    """A policy whose spending is paced by a price; the keys of its demand begin with the job's row."""

    demand_price: DemandPrice


def first_price(world: World, policy: PricedPolicy, *, pace: Pace, earlier_jobs: int) -> DemandPrice:
    """Let a policy of its own decide the rows before the window, and return the price that it leaves.

    Args:
        world: The world before its first job.
        policy: The policy that decides those rows; it begins with the pace's first price.
        earlier_jobs: The largest number of rows before the window; older ones than the price remembers are
            left out.
    """
    jobs = world.jobs
    remembered = world.now - pace.window_days * DAY
    count = min(jobs.first - int(np.searchsorted(jobs.table.submit[: jobs.first], remembered)), earlier_jobs)
    largest = int(jobs.table.processors[jobs.first - count : jobs.first].max(initial=0))
    if count < _MIN_EARLIER_JOBS or largest > jobs.machine:
        return DemandPrice(pace, world.now)
    earlier = jobs.before(count)
    tokens = Tokens(
        world.tokens.per_second,
        time=float(earlier.submit[0]),
        until=float(earlier.submit[-1]),
        max_days=world.options.max_days,
        held=pace.reserve_days * world.tokens.per_day,
    )
    World(earlier, world.options, policy, tokens).run()
    rows = slice(earlier.first, jobs.first)
    table = jobs.table
    has_ended = table.submit[rows] + table.wait[rows].clip(0.0) + table.run[rows] <= world.now
    return policy.demand_price.after_rehearsal(world.now, lambda key: bool(has_ended[key[0]]))
