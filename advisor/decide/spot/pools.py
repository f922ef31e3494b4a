"""Choose the spot pools for a run: those where an hour of its work costs least, lost work included. Pure.

Question 4 asks whether there is one; the provision loop, at the launch, which ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.model.checkpoint_word import NO_CHECKPOINT
from advisor.model.spot_pools import LASTS_HOURS, NEGLIGIBLE, SpotPool

LOST: Final = 2.0
"""Cost of an hour of lost work, as a multiple of the on-demand price of an hour.

It is added to what the lost hour itself was billed, because the job's user waits an hour longer.
"""
DEARER: Final = 0.25
"""Share by which the expected money of a run may exceed that in the pool with the lowest price.

Without a limit a run that is likely to be lost would go where it lasts at any money up to that on-demand.
`LOST` and this share were chosen on spot traces (docs/measurements.md, "Spot pools").
"""
NEAR: Final = 0.05
"""Pools whose expected cost is at most this share above the best one's are all named; EC2 chooses one."""


def pools_for_run(
    pools: Sequence[SpotPool],
    run_seconds: float,
    on_demand_usd_per_hour: float,
    tries: int,
    at_risk_seconds: float = NO_CHECKPOINT,
) -> tuple[SpotPool, ...]:
    """The pools to launch a run in, the pool with the least expected cost first.

    A run whose instance EC2 takes back begins anew, or goes on from its last checkpoint, with one try fewer;
    without a try left it runs on-demand. U(n), in US dollars per hour of work, is the expected money of a run
    with n tries left, and C(n) its cost, lost work included. On-demand both are the price of an hour. A try
    in a pool has::

        U(n) = price * lived + left * U(n - 1)
        C(n) = price * lived + LOST * C(0) * lost + left * C(n - 1)
        left = 1 - lived + lost

    `SpotPool.outlook` gives both shares: ``lived``, the expected share of the run until its end or its
    instance's, and ``stays``, the probability that the instance lives for the whole run. Without checkpoints
    the expected share of the run that is lost is their difference, and what is left to be done ``1 - stays``.
    Else the last seconds before a loss are lost, at most those at risk. U(n - 1) and C(n - 1) are those of
    the choice with the least cost, on-demand among them, whose money is at most ``1 + DEARER`` times that of
    a run which always goes to the pool with the lowest price (of several the one that lasts). That pool
    itself is never too dear.

    Args:
        pools: The pools that may be used; those that are not open are left out.
        run_seconds: Duration of the whole run, from its beginning.
        on_demand_usd_per_hour: Price of the instance that is launched if no spot pool is.
        tries: Number of times that the run may still be launched as spot.
        at_risk_seconds: The part of the run that a loss undoes at most: the time between two checkpoints.

    Returns:
        The pools within `NEAR` of the best; none where on-demand costs less and is not too dear.
    """
    pools = [pool for pool in pools if pool.is_open]
    if not pools or tries <= 0:
        return ()
    on_demand = (on_demand_usd_per_hour, on_demand_usd_per_hour)
    rows = [(pool.usd_per_hour, *_shares(pool, run_seconds, at_risk_seconds)) for pool in pools]
    low = min(range(len(rows)), key=lambda number: (rows[number][0], rows[number][3]))
    low_price, low_lived, _, low_left = rows[low]
    low_usd, (next_cost, next_usd) = on_demand_usd_per_hour, on_demand
    lost_hour = LOST * on_demand_usd_per_hour
    choices: list[tuple[float, float]] = []  # cost and money, by pool
    for _ in range(tries):
        low_usd = low_price * low_lived + low_left * low_usd
        choices = [
            (price * lived + lost_hour * lost + left * next_cost, price * lived + left * next_usd)
            for price, lived, lost, left in rows
        ]
        most_usd = max((1.0 + DEARER) * low_usd, choices[low][1])
        next_cost, next_usd = min(choice for choice in [*choices, on_demand] if choice[1] <= most_usd)
    if (next_cost, next_usd) == on_demand:
        return ()
    limit = (1.0 + NEAR) * next_cost
    if on_demand_usd_per_hour <= most_usd:
        limit = min(limit, on_demand_usd_per_hour)
    good = [number for number, (cost, usd) in enumerate(choices) if usd <= most_usd and cost <= limit]
    return tuple(pools[number] for number in sorted(good, key=lambda number: choices[number]))


def _shares(pool: SpotPool, run_seconds: float, at_risk_seconds: float) -> tuple[float, float, float]:
    """The expected shares of a run that are lived, lost, and left to be done after one try in a pool."""
    stays, lived = pool.outlook(run_seconds)
    if at_risk_seconds >= run_seconds:
        return lived, lived - stays, 1.0 - stays
    # the integral of the survival over the time at risk, less what runs that are not lost have of it
    _, lived_at_risk = pool.outlook(at_risk_seconds)
    lost = (lived_at_risk - stays) * at_risk_seconds / run_seconds
    return lived, lost, 1.0 - lived + lost


def rounds_for_run(
    pools: Sequence[SpotPool],
    run_seconds: float,
    on_demand_usd_per_hour: float,
    tries: int,
    at_risk_seconds: float = NO_CHECKPOINT,
) -> tuple[tuple[SpotPool, ...], ...]:
    """The pools to try for a run, round after round, while those of the round before have no room.

    Each round is what :func:`pools_for_run` chooses among the pools that no earlier round has tried.
    """
    rounds: list[tuple[SpotPool, ...]] = []
    left = list(pools)
    while good := pools_for_run(left, run_seconds, on_demand_usd_per_hour, tries, at_risk_seconds):
        rounds.append(good)
        left = [pool for pool in left if pool not in good]
    return tuple(rounds)


def lives_of(pools: Sequence[SpotPool], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(a new instance lives that long), by time, in that pool of some where it is the least likely.

    It is ``stays`` of :meth:`SpotPool.outlook` for many times at once, 14 times as fast.

    Args:
        pools: At least one.
        seconds: Ascending times, shape (n,).
    """
    hours, at = np.array((0.0, *LASTS_HOURS)), seconds / 3600.0
    lasts = np.maximum([(1.0, *pool.lasts) for pool in pools], NEGLIGIBLE)
    hazards = -np.log(np.minimum.accumulate(lasts, axis=1))
    # beyond the last known age the hazard goes on as it was before it
    beyond = np.maximum(0.0, at - hours[-1]) / (hours[-1] - hours[-2])
    found = [np.interp(at, hours, row) + (row[-1] - row[-2]) * beyond for row in hazards]
    return np.asarray(np.exp(-np.max(found, axis=0)))
