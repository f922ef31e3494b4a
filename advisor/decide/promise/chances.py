"""Chances that a job is done by a time, on-premise or in the cloud, for its price list. Compiled, pure.

A run time is given as ``ended``: the probability that it is over by each edge of
:data:`advisor.predict.run_times.grid.GRID`, shape ``(bins,)``, ascending to 1. A wait is given as likely
values ``waits`` (seconds) with their ``shares``, both of shape ``(n,)``.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.predict.run_times.grid import GRID, MAX_SECONDS, STEP, bin_of, mean, quantile

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
    passed = math.log(seconds) / STEP - (k - 1)
    return float(before + (ended[k] - before) * min(1.0, max(0.0, passed)))


def run_at(ended: Floats, level: float, limit: float) -> float:
    """The run time that is not exceeded with probability ``level``, seconds, at most the limit."""
    return min(limit, quantile(_chances(ended), level))


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
def late_by_loss(
    ended: Floats,
    alive: Floats,
    left: float,
    start: float,
    slowdown: float,
    limit: float,
    at_risk: float,
) -> float:
    """P(too late for the loss of its spot instance) of a job that would be done within ``left`` seconds.

    A job that loses its instance is started again at once, on-demand, from its beginning or its last
    checkpoint. It is too late where it would not have ended before the loss, and has no time for another
    start and what it then has to do. With checkpoints the moment of the loss does not matter, but for the
    first ``at_risk`` seconds of its run: what is lost is the same.

    Args:
        alive: P(a spot instance lives that long) by the edges of ``GRID``, shape ``(bins,)``, descending.
        start: Seconds until the job begins to run there, on spot and on-demand.
        at_risk: Seconds of its run there that a loss undoes at most; infinite without checkpoints.
    """
    late, before, shorter = 0.0, 0.0, 1.0
    for k in range(ended.shape[0]):
        probability, before = ended[k] - before, ended[k]
        longer = min(GRID[k], limit)
        whole, shorter = start + slowdown * math.sqrt(min(shorter, longer) * longer), longer
        if probability > 0.0 and whole <= left < whole + min(whole, start + at_risk):
            late += probability * (_alive_for(alive, left - whole) - _alive_for(alive, whole))
    return late


@compiled
def rest_of(ended: Floats, done: float, limit: float) -> Floats:
    """The rest of a run of which ``done`` seconds are kept: P(rest over) by the edges of ``GRID``."""
    over = ended_by(ended, done, limit)
    rest = np.ones(ended.shape[0])
    if over < 1.0:
        for k in range(ended.shape[0]):
            rest[k] = (ended_by(ended, done + GRID[k], limit) - over) / (1.0 - over)
    return rest


@compiled
def _alive_for(alive: Floats, seconds: float) -> float:
    """P(a spot instance lives for some seconds); within a bin it is linear in the logarithm of the time."""
    if seconds <= 1.0:
        return 1.0
    k = bin_of(seconds)
    before = alive[k - 1] if k else 1.0
    passed = math.log(seconds) / STEP - (k - 1)
    return float(before + (alive[k] - before) * min(1.0, max(0.0, passed)))


@compiled
def ready_here(waits: Floats, shares: Floats, ended: Floats, level: float, limit: float) -> float:
    """The seconds within which a job that waits on-premise is done with probability ``level``."""
    low, high = 0.0, waits.max() + min(limit, MAX_SECONDS)  # by then every job has ended
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if kept_here(waits, shares, ended, middle, limit) < level:
            low = middle
        else:
            high = middle
    return float(high)


def mean_run(ended: Floats, limit: float) -> float:
    """Expected run time, seconds, where no job runs longer than the limit."""
    return mean(_chances(ended), limit)


def _chances(ended: Floats) -> Floats:
    return np.diff(ended, prepend=0.0)


@compiled
def not_started_by(waits: Floats, shares: Floats, seconds: float) -> float:
    """P(wait > seconds)."""
    left = 0.0
    for i in range(waits.shape[0]):
        if waits[i] > seconds:
            left += shares[i]
    return left


@compiled
def needed_share(
    waits: Floats,
    shares: Floats,
    ended: Floats,
    left: float,
    start: float,
    slowdown: float,
    limit: float,
    keeps_place: bool,  # noqa: FBT001 - compiled code has no keyword-only arguments
) -> float:
    """The share of the expected cost of a start in the cloud now that keeps a promise.

    It is the cost of those runs that end there in time and would be late on-premise, over the cost of all
    runs. Long runs cost more, so a start that is likely to be a long run in vain has a small share.

    Args:
        waits: Ascending.
        left, start: Seconds until the deadline, and until the job begins to run there.
        keeps_place: Whether a job that is in time on-premise as well comes back when its slot comes.
    """
    needed, paid, before, shorter = 0.0, 0.0, 0.0, 1.0
    for k in range(ended.shape[0]):
        probability, before = ended[k] - before, ended[k]
        longer = min(GRID[k], limit)
        run, shorter = math.sqrt(min(shorter, longer) * longer), longer
        if probability <= 0.0:
            continue
        cost, late = slowdown * run, 0.0
        for i in range(waits.shape[0]):
            if waits[i] > left - run:
                late += shares[i]
                paid += probability * shares[i] * cost
            elif keeps_place:
                paid += probability * shares[i] * min(cost, max(0.0, waits[i] - start))
            else:
                paid += probability * shares[i] * cost
        if start + cost <= left:
            needed += probability * late * cost
    return float(needed / paid) if paid > 0.0 else 0.0
