"""Chances that a job is done by a time, on-premise or in the cloud. Compiled, pure.

A run time is given as ``ended``: the probability that it is over by each edge of
:data:`advisor.predict.run_times.grid.GRID`, shape ``(bins,)``, ascending to 1. A wait is given as likely
values ``waits`` (seconds) with their ``shares``, both of shape ``(n,)``.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.predict.run_times.grid import BINS, GRID, MAX_SECONDS, bin_of

Floats = NDArray[np.float64]

_LOG_STEP: Final = math.log(MAX_SECONDS) / (BINS - 1)
_HALVINGS: Final = 40
_ROUNDING: Final = 1e-9


def ended_of(probabilities: Floats) -> Floats:
    """The probability that a run is over by each edge, from the probability of each bin."""
    ended = np.cumsum(probabilities)
    return np.asarray(ended / ended[-1])


@compiled
def ended_by(ended: Floats, seconds: float, limit: float) -> float:
    """P(run time <= seconds); a job is ended at its limit, seconds."""
    if seconds >= limit - _ROUNDING or seconds >= MAX_SECONDS:
        return 1.0
    if seconds < 1.0:
        return 0.0
    k = bin_of(seconds)
    before = ended[k - 1] if k else 0.0
    passed = math.log(seconds) / _LOG_STEP - (k - 1)
    return float(before + (ended[k] - before) * min(1.0, max(0.0, passed)))


@compiled
def run_at(ended: Floats, level: float, limit: float) -> float:
    """The run time that is not exceeded with probability ``level``, seconds, at most the limit."""
    before = 0.0
    for k in range(BINS):
        if ended[k] >= level:
            share = (level - before) / (ended[k] - before) if ended[k] > before else 1.0
            return float(min(limit, math.exp((k - 1 + max(0.0, share)) * _LOG_STEP)))
        before = ended[k]
    return float(min(limit, GRID[BINS - 1]))


@compiled
def kept_here(waits: Floats, shares: Floats, ended: Floats, left: float, limit: float) -> float:
    """P(wait + run time <= left) of a job that waits on-premise; ``left`` in seconds."""
    kept = 0.0
    for i in range(waits.shape[0]):
        if waits[i] <= left:
            kept += shares[i] * ended_by(ended, left - waits[i], limit)
    return kept


@compiled
def kept_there(ended: Floats, left: float, start: float, slowdown: float, limit: float) -> float:
    """P(done within ``left`` seconds) of a job that starts in the cloud now, and runs ``start`` later."""
    return ended_by(ended, (left - start) / slowdown, limit)


@compiled
def ready_here(waits: Floats, shares: Floats, ended: Floats, level: float, limit: float) -> float:
    """The seconds within which a job that waits on-premise is done with probability ``level``."""
    low, high = 0.0, waits.max() + limit
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if kept_here(waits, shares, ended, middle, limit) < level:
            low = middle
        else:
            high = middle
    return float(high)


@compiled
def mean_run(ended: Floats, limit: float) -> float:
    """Expected run time, seconds, where no job runs longer than the limit."""
    total, before = 0.0, 0.0
    for k in range(BINS):
        total += (ended[k] - before) * min(math.exp((k - 0.5) * _LOG_STEP), limit)
        before = ended[k]
    return float(total)


@compiled
def not_started_by(waits: Floats, shares: Floats, seconds: float) -> float:
    """P(wait > seconds)."""
    left = 0.0
    for i in range(waits.shape[0]):
        if waits[i] > seconds:
            left += shares[i]
    return left
