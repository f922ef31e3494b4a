"""The hedged start: a job starts in the cloud and keeps its place in the on-premise queue.

When its slot comes it stays in the cloud, if it is expected to end sooner there, or starts again on-premise,
no later than if it had only waited; a stop-loss bounds what it may cost until then. So a wrong forecast costs
money and hardly ever time. Forecasts make hedges cheap: a job's stop-loss is the one with the largest
expected gain less a *price of time* times its expected core-seconds. The price is the same for all jobs and
set by what the site may spend (:mod:`advisor.papers.placement.pacing`; docs/designs/0013-hedged-start.md).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.papers.placement._hedge_curves import best_stop

STOPS: Final[Floats] = np.concatenate([[0.0], np.geomspace(10.0, 3e6, 36)])
"""Stop-losses looked at, seconds in the cloud; 0 is no hedge, the last no stop-loss to speak of."""
PRICES: Final[Floats] = np.concatenate([np.geomspace(1e-5, 1e4, 91), [1e30]])
"""Prices of a core-second in seconds of turnaround, ascending; at the last nobody is hedged."""


def choose_stop(
    gain: Floats, seconds: Floats, price: float, *, longest: float = np.inf, most: float = np.inf
) -> int:
    """Choose a stop-loss that can be paid for.

    Args:
        gain, seconds: float64, shape (stops,): Expected for each of `STOPS`.
        price: Seconds of turnaround that a second in the cloud must bring.
        longest: Seconds the job can be in the cloud at most, by its time limit: no stop-loss takes longer.
        most: Seconds that can be paid for.

    Returns:
        Index into `STOPS`; 0: no hedge.
    """
    count = len(STOPS) if longest <= most else int(np.searchsorted(STOPS, most, side="right"))
    return int(best_stop(gain, seconds, price, count))
