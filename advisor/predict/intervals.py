"""Intervals of the price's forecasts of waits and run times, with the coverage that they claim.

A tail is the distance of a bound from its forecast, on the scale of logarithms. It grows if a true value lies
beyond the bound, and shrinks by a nineteenth of that if not: adaptive conformal inference (Gibbs and Candes,
NeurIPS 2021) in the form that follows the quantile itself (Angelopoulos et al., "Conformal PID control for
time series prediction", NeurIPS 2023). True values are known late: if thousands of jobs wait, the first known
ones are those of short jobs, which all had the same interval. So no tail grows beyond the true values
observed.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import astuple, dataclass
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from advisor.arrays import Floats
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimate

_TAIL: Final = 0.05
"""Share of true values beyond each bound of an interval of 90 %."""
_STEP: Final = 0.05
"""A true value beyond the bound moves the tail by nearly this much, on the scale of logarithms."""
_FIRST_STEPS: Final = 5.0
_FEW: Final = 20.0
"""The first steps are larger: ``_FIRST_STEPS`` by the number of jobs and ``_FEW``."""
_SPREAD_SHARE: Final = 0.005
"""The weight of a new wait in the learned spread of waits."""
_RECALL: Final = 0.002
"""The decay of the largest remembered true value with each job, on the scale of logarithms."""
WAIT_SCALE: Final = 60.0
"""Seconds that are added to waits before they are compared, because a minute more or less does not matter."""
WAIT_CLASSES: Final = (1.0, 3600.0, 86400.0)
"""Planned waits above which the next class begins, seconds."""
_ROUNDING: Final = 1e-6  # seconds


class _Bounds(NamedTuple):
    """The range of a tail; the upper tail may exceed it only up to the largest true value observed."""

    lower: tuple[float, float]
    upper: tuple[float, float]


@dataclass(slots=True)
class _Tails:
    """The distances of bounds from forecasts, as logarithms.

    Attributes:
        highest: The upper tail's limit.
        mean, variance: Moments of truth over forecast; at first those of a uniform distribution on [0, 1].
    """

    lower: float
    upper: float
    highest: float = -math.inf
    count: float = 0.0
    mean: float = 0.5
    variance: float = 1.0 / 12.0

    def learn(self, given: Estimate, truth: float, score: float, bounds: _Bounds) -> None:
        """Learn a true value, seconds, and the logarithm of its ratio to the forecast."""
        self.count += 1.0
        step = max(_STEP, _FIRST_STEPS / (self.count + _FEW))
        self.highest = max(bounds.upper[1], score, self.highest - _RECALL)
        self.lower -= step * ((truth < given.lower - _ROUNDING) - _TAIL)
        self.lower = min(max(self.lower, bounds.lower[0]), bounds.lower[1])
        self.upper += step * ((truth > given.upper + _ROUNDING) - _TAIL)
        self.upper = min(max(self.upper, bounds.upper[0]), self.highest)
        share = max(_SPREAD_SHARE, 1.0 / (self.count + _FEW))
        change = math.exp(min(score, self.upper)) - self.mean
        self.mean += share * change
        self.variance = (1.0 - share) * (self.variance + share * change * change)


_AT_ONCE: Final = _Bounds(lower=(-9.0, 0.0), upper=(0.0, 0.4))
_WAITING: Final = _Bounds(lower=(-9.0, -0.5), upper=(-0.2, 0.4))
_RUNNING: Final = _Bounds(lower=(-3.0, 1.0), upper=(-1.0, 3.0))


class Intervals:
    """Turns forecasts into estimates with 90 % intervals, and learns how wide these have to be."""

    def __init__(self) -> None:
        self._waits = [_Tails(0.0, 0.0, mean=1.0, variance=0.0), *(_Tails(-4.0, 0.0) for _ in WAIT_CLASSES)]
        self._runs = _Tails(0.0, 0.0)

    def wait(self, planned: float) -> Estimate:
        """The estimate of a wait that was planned by time limits, seconds."""
        tails, scaled = self._waits[wait_class(planned)], planned + WAIT_SCALE
        return Estimate(
            seconds=planned,
            variance=scaled * scaled * tails.variance,
            lower=max(0.0, scaled * math.exp(tails.lower) - WAIT_SCALE),
            upper=max(0.0, scaled * math.exp(tails.upper) - WAIT_SCALE),
        )

    def learn_wait(self, given: Estimate, waited: float) -> None:
        """Learn how long a job has waited, seconds, for which :meth:`wait` gave an estimate."""
        if _has_interval(given) and waited >= 0.0:
            score = math.log((waited + WAIT_SCALE) / (given.seconds + WAIT_SCALE))
            bounds = _WAITING if given.seconds > WAIT_CLASSES[0] else _AT_ONCE
            self._waits[wait_class(given.seconds)].learn(given, waited, score, bounds)

    def run(self, forecast: Estimate, limit: float) -> Estimate:
        """The estimate of a forecast run time, with the learned interval, within the limit (seconds)."""
        lower = forecast.lower * math.exp(self._runs.lower)
        upper = min(limit, forecast.upper * math.exp(self._runs.upper))
        return structs.replace(forecast, lower=min(lower, upper), upper=upper)

    def learn_run(self, given: Estimate, ran: float) -> None:
        """Learn how long a job has run, seconds, for which :meth:`run` gave an estimate."""
        if _has_interval(given):
            self._runs.learn(given, ran, 0.0, _RUNNING)

    def to_array(self) -> Floats:
        """The learned state, as an array."""
        return np.array([astuple(tails) for tails in (*self._waits, self._runs)])

    @classmethod
    def from_array(cls, array: Floats) -> Intervals:
        """Rebuild from :meth:`to_array`. Raises BadInput for a damaged array."""
        result = cls()
        if array.shape != result.to_array().shape or np.any(np.isnan(array)):
            raise BadInput(
                "the array of the intervals is damaged",
                where="run times",
                mend="Remove the folder models/run-times of paths.state: `advisor control` learns them anew",
                code="run_times.arrays",
            )
        *result._waits, result._runs = (_Tails(*row) for row in array.tolist())
        return result


def _has_interval(given: Estimate) -> bool:
    return given.is_usable and given.lower <= given.upper


def wait_class(planned: float) -> int:
    """The class of a planned wait, seconds: 0 up to the first of :data:`WAIT_CLASSES`."""
    return bisect.bisect_left(WAIT_CLASSES, planned)
