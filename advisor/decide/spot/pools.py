"""Choose the spot pools for a run: those where an hour of its work costs least, lost work included. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from advisor.model.spot_pools import SpotPool

LOST: Final = 1.25
"""Cost of an hour of lost work, as a multiple of the on-demand price of an hour.

It is added to what the lost hour itself was billed, because the job's user waits an hour longer. It was
chosen on spot traces (docs/measurements.md, "Spot pools").
"""
NEAR: Final = 0.05
"""Pools whose expected cost is at most this share above the best one's are all named; EC2 chooses one."""


def pools_for_run(
    pools: Sequence[SpotPool], run_seconds: float, on_demand_usd_per_hour: float, tries: int
) -> tuple[SpotPool, ...]:
    """The pools to launch a run in, the pool with the least expected cost first.

    A run whose instance EC2 takes back begins anew, with one try fewer; without a try left it runs on-demand.
    C(n), in US dollars per hour of work, is the expected cost of a run with n tries left. C(0) is the
    on-demand price, and a try in a pool costs::

        C(n) = price * lived + LOST * C(0) * (lived - stays) + (1 - stays) * C(n - 1)

    `SpotPool.outlook` gives both shares: ``lived``, the expected share of the run until its end or its
    instance's, and ``stays``, the probability that the instance lives for the whole run. Their difference is
    the expected share of the run that is lost. C(n - 1) is that of the best pool, or of on-demand where that
    is cheaper.

    Args:
        pools: The pools that may be used.
        run_seconds: Duration of the whole run, from its beginning.
        on_demand_usd_per_hour: Price of the instance that is launched if no spot pool is.
        tries: Number of times that the run may still be launched as spot.

    Returns:
        The pools within `NEAR` of the best; none where on-demand costs less.
    """
    rows = [(pool, *pool.outlook(run_seconds)) for pool in pools]
    falls_back, costs = on_demand_usd_per_hour, [on_demand_usd_per_hour] * len(rows)
    lost_hour = LOST * on_demand_usd_per_hour
    for _ in range(tries):
        costs = [
            pool.usd_per_hour * lived + lost_hour * (lived - stays) + (1.0 - stays) * falls_back
            for pool, stays, lived in rows
        ]
        falls_back = min([falls_back, *costs])
    limit = min((1.0 + NEAR) * min(costs, default=on_demand_usd_per_hour), on_demand_usd_per_hour)
    good = [number for number, cost in enumerate(costs) if cost <= limit and cost < on_demand_usd_per_hour]
    return tuple(rows[number][0] for number in sorted(good, key=lambda number: costs[number]))
