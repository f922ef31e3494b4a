"""What a second of waiting is worth, learned from finished jobs only.

A job in the queue is sent to on-demand when paying is worth it: ``chance to start in time x predicted
core-seconds < price x seconds it is expected to wait yet``. The chance stands on the left because a job that
would wait longer than b is paid for anyway, only later (SWW costs nothing, Ambati et al., section 2.1). One
price holds for all jobs at a time; with it the mean wait bought per core-hour is the most there is.

Which price depends on the load, and the load shifts. So the site's past weeks are gone through at several
prices side by side, and the one that did best on the jobs that have finished is taken: a tuning by backtest
that is repeated every day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

STEPS: Final = (0.038, 0.05, 0.065)
"""Prices tried, as multiples of the processors of the site's mean job: at 0.05, a second of a job's waiting
is worth renting a twentieth of a typical job for a second. Unlike anything made of waits or costs this unit
does not shift with the load. The price adapts within these bounds only: a window of quiet weeks says little
about the busy ones to come, and left free it ran away (docs/designs/0010-waiting.md)."""
FIRST: Final = 1
"""Where it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How cost and waiting are weighed against each other, both as ratios to the oracle's.

    Attributes
    ----------
    cost_weight : float
        So many times is one per cent of the on-demand cost as dear as one per cent of the mean wait.
    accepted_cost : float
        Up to this ratio cost does not count.
    """

    cost_weight: float = 10.0
    accepted_cost: float = 1.02

    def loss(self, cost_ratio: float, wait_ratio: float) -> float:
        """The less the better."""
        return wait_ratio + self.cost_weight * max(0.0, cost_ratio - self.accepted_cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one price came to on the finished jobs of the past weeks: sums over them."""

    cost: float
    wait: float


def best(trials: Sequence[Trial], oracle: Trial, exchange: Exchange) -> int:
    """Index of the best trial; ties go to the first.

    Parameters
    ----------
    trials : sequence of Trial
        One for each price.
    oracle : Trial
        The same jobs under the oracle, hindsight on finished jobs.
    exchange : Exchange
        The weights.
    """
    if oracle.cost <= 0.0 or oracle.wait <= 0.0:
        return 0
    losses = [exchange.loss(trial.cost / oracle.cost, trial.wait / oracle.wait) for trial in trials]
    return int(np.argmin(losses))
