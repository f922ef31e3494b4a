"""How long spot can be had, and cannot, from the spells seen so far: one survival curve for each."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.predict.survival.hazard import stays
from advisor.predict.survival.node_survival import GROWTH, SHRINK, Intervals, fit_survival

PRIOR_HOURS: Final = (0.25, 1.0, 4.0, 16.0)
"""Spells of either kind that stand for those not seen yet: four weigh less than a day of a busy pool."""
_WIDER: Final = 1.7
_OLDEST: Final = 48 * 3600.0


class SpotChances(NamedTuple):
    """How the next step of time goes, by class of the current spell's age.

    Attributes:
        step: Seconds.
        ages: Lower edge of each class of age, seconds, shape (classes,), from 0.
        older: Probability that a spell which goes on is in the next class a step later; shape (classes,).
        stays_up, stays_down: Probability that spot can be had, or cannot, a step later as well; shape
            (classes,).
    """

    step: float
    ages: Floats
    older: Floats
    stays_up: Floats
    stays_down: Floats


def ages_in_spell(has_spot: NDArray[np.bool_], tick: float) -> Floats:
    """For how long spot could be had, or could not, at each tick; seconds, of the shape of `has_spot`."""
    at = np.arange(len(has_spot))
    begins = np.concatenate([[True], has_spot[1:] != has_spot[:-1]])
    return np.asarray((at - np.maximum.accumulate(np.where(begins, at, 0))) * tick, np.float64)


def spot_chances(has_spot: NDArray[np.bool_], tick: float, step: float) -> SpotChances:
    """Fit the chances to the past.

    Args:
        has_spot: Whether spot could be had at each tick until now; shape (ticks,), may be empty.
        tick: Seconds between two of them.
        step: Seconds of the step that the chances are for.
    """
    now = len(has_spot) * tick
    changes = np.flatnonzero(has_spot[1:] != has_spot[:-1]) + 1
    bounds = np.concatenate([[0], changes, [len(has_spot)]]) if len(has_spot) else np.zeros(1, np.int64)
    start, end = bounds[:-1] * tick, bounds[1:] * tick
    is_up = has_spot[bounds[:-1]] if len(has_spot) else np.zeros(0, np.bool_)
    ages = _ages(step)
    widths = np.append(np.diff(ages), np.inf)
    return SpotChances(
        step=step,
        ages=ages,
        older=np.minimum(1.0, step / widths),
        stays_up=_stays(start[is_up], end[is_up], now, ages, step),
        stays_down=_stays(start[~is_up], end[~is_up], now, ages, step),
    )


def _ages(step: float) -> Floats:
    ages = [0.0, step]
    while ages[-1] < _OLDEST:
        ages.append(_WIDER * ages[-1])
    return np.array(ages)


def _stays(start: Floats, end: Floats, now: float, ages: Floats, step: float) -> Floats:
    """By class of age, the probability that a spell lasts for a step more; the one that lasts is open."""
    prior = 3600.0 * np.array(PRIOR_HOURS)
    count = len(start) + len(prior)
    seen = Intervals(
        node=np.zeros(count, np.int64),
        start=np.concatenate([now - prior, start]),
        end=np.concatenate([np.full(len(prior), now), end]),
        completed=np.concatenate([np.ones(len(prior), np.bool_), end < now]),
        began=np.full(count, GROWTH, np.int64),
        ended=np.full(count, SHRINK, np.int64),
        size=np.ones(count),
    )
    hazard = fit_survival(seen, now, 1).hazard
    middles = np.sqrt(ages * np.append(ages[1:], _WIDER * ages[-1]))
    return np.array([stays(hazard, np.inf, 1.0, middle, step) for middle in middles])
