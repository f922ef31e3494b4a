"""The least a job with a deadline can cost if all of the market's future is known. Exact, compiled."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled

_NEVER: Final = 1e18
_IDLE: Final = 0
_SPOT: Final = 1
_ON_DEMAND: Final = 2
_CHOICES: Final = ((_SPOT, True), (_SPOT, False), (_ON_DEMAND, True), (_ON_DEMAND, False))
"""Market, and whether the job is there already."""


class Least(NamedTuple):
    """Of the best plan: its cost in on-demand seconds, and what it uses of each market, seconds."""

    cost: float
    on_demand: float
    spot: float


def omniscient(
    has_spot: NDArray[np.bool_],
    *,
    tick: int,
    work: float,
    time: float,
    changeover: int,
    spot_price: float,
) -> Least:
    """Plan a job with the market's future in view.

    Backward induction over ticks i, slack s (time left less work left) and the market m that runs. Waiting
    costs a tick of slack, a start the changeover; a start that is begun is gone through with, since anything
    else would cost more. Slack is counted in the greatest common divisor of tick and changeover, so that
    nothing but the slack at the begin is rounded (down, by less than that).

    Args:
        has_spot: Whether spot can be had at each tick from the job's begin to its deadline.
        tick, changeover: Seconds.
        work, time: Run time, and time to the deadline, seconds.
        spot_price: Price of an hour on spot over that of an hour on-demand.
    """
    unit = math.gcd(tick, changeover) or tick
    cost, on_demand = _least(
        has_spot, unit, tick // unit, changeover // unit, int((time - work) // unit), work, spot_price
    )
    spot = (cost - on_demand) / spot_price if spot_price > 0.0 else 0.0
    return Least(cost, on_demand, spot)


@compiled
def _least(
    has_spot: NDArray[np.bool_],
    unit: int,
    tick: int,
    changeover: int,
    slack: int,
    work: float,
    spot_price: float,
) -> tuple[float, float]:
    """`tick`, `changeover` and `slack` are in units of `unit` seconds; costs are in seconds on-demand."""
    ticks = min(has_spot.shape[0], math.ceil((work / unit + slack) / tick))
    length = max(1, -(-changeover // tick))  # ticks of a start, the last of them partly worked
    layers = length + 1
    cost, on_demand = np.zeros((layers, slack + 1, 3)), np.zeros((layers, slack + 1, 3))
    stays = 0  # ticks for which spot is there from now on
    for i in range(ticks - 1, -1, -1):
        stays = stays + 1 if has_spot[i] else 0
        at, after = i % layers, (i + 1) % layers
        for s in range(slack + 1):
            left = work + (slack - s - i * tick) * unit
            cost[at, s], on_demand[at, s] = 0.0, 0.0
            if left <= 0.0:
                continue
            cost[at, s] = _NEVER
            if s >= tick:
                cost[at, s] = cost[after, s - tick, _IDLE]
                on_demand[at, s] = on_demand[after, s - tick, _IDLE]
            for to, goes_on in _CHOICES:
                price = spot_price if to == _SPOT else 1.0
                starts, lasts = (0, 1) if goes_on else (changeover, length)
                used = min(float(lasts * tick * unit), left + starts * unit)
                if s < starts or (to == _SPOT and stays * tick * unit < used):
                    continue
                now = used * price
                paid = used if to == _ON_DEMAND else 0.0
                if used == lasts * tick * unit:
                    then = (i + lasts) % layers
                    now += cost[then, s - starts, to]
                    paid += on_demand[then, s - starts, to]
                for m in range(3):
                    if (m == to) == goes_on and now < cost[at, s, m]:
                        cost[at, s, m], on_demand[at, s, m] = now, paid
    return float(cost[0, slack, _IDLE]), float(on_demand[0, slack, _IDLE])
