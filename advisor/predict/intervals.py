"""Intervals of forecast waits and run times that cover what they promise.

A tail moves outwards when a truth lies beyond it, and a nineteenth as far inwards when not, on the scale of
logarithms: adaptive conformal inference (Gibbs and Candes, NeurIPS 2021) in the form that follows the
quantile itself (Angelopoulos et al., "Conformal PID control for time series prediction", NeurIPS 2023).
Truths come late: where thousands of jobs wait, those that are known are the short ones, and all of them were
given the same interval. So no tail moves further than truths have been.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import astuple, dataclass
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.model.estimate import Estimate

Floats = NDArray[np.float64]

_TAIL: Final = 0.05
"""Share of truths beyond either bound of an interval of nine tenths."""
_STEP: Final = 0.05
"""A miss moves a tail by nearly so much: a twentieth of the time."""
_FIRST_STEPS: Final = 5.0
_FEW: Final = 20.0
"""The first steps are larger: ``_FIRST_STEPS`` by the number of jobs and ``_FEW``."""
_SPREAD_SHARE: Final = 0.005
"""A new wait's share in the known spread of waits."""
_RECALL: Final = 0.002
"""By how much the largest truth that is remembered becomes less with each job."""
_WAIT_SCALE: Final = 60.0
"""Seconds that are added to waits before they are compared: a minute sooner or later is nothing."""
_CLASSES: Final = (1.0, 3600.0, 86400.0)
"""Planned waits above which the next class begins, seconds."""
_ROUNDING: Final = 1e-6  # seconds


class _Bounds(NamedTuple):
    """Where tails may lie; the upper one beyond that only as far as truths have been."""

    lower: tuple[float, float]
    upper: tuple[float, float]


@dataclass(slots=True)
class _Tails:
    """How far bounds lie from forecasts, as logarithms.

    Attributes:
        highest: The upper tail's limit.
        mean, variance: Of truths over forecasts; at first as if all from 0 to 1 were equally likely.
    """

    lower: float
    upper: float
    highest: float = -math.inf
    count: float = 0.0
    mean: float = 0.5
    variance: float = 1.0 / 12.0

    def learn(self, given: Estimate, truth: float, score: float, bounds: _Bounds) -> None:
        """Learn a truth, seconds, and the logarithm of its ratio to the forecast."""
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
    """Turns forecasts into estimates with intervals of nine tenths, and learns how wide these have to be."""

    def __init__(self) -> None:
        self._waits = [_Tails(0.0, 0.0, mean=1.0, variance=0.0), *(_Tails(-4.0, 0.0) for _ in _CLASSES)]
        self._runs = _Tails(0.0, 0.0)

    def wait(self, planned: float) -> Estimate:
        """A wait that was planned by time limits, seconds; before any is known, all up to it are likely."""
        tails, scaled = self._waits[_class(planned)], planned + _WAIT_SCALE
        return Estimate(
            seconds=planned,
            variance=scaled * scaled * tails.variance,
            lower=max(0.0, scaled * math.exp(tails.lower) - _WAIT_SCALE),
            upper=max(0.0, scaled * math.exp(tails.upper) - _WAIT_SCALE),
        )

    def learn_wait(self, given: Estimate, waited: float) -> None:
        """Learn how long a job has waited, seconds, for which :meth:`wait` gave an estimate."""
        if _has_interval(given) and waited >= 0.0:
            score = math.log((waited + _WAIT_SCALE) / (given.seconds + _WAIT_SCALE))
            bounds = _WAITING if given.seconds > _CLASSES[0] else _AT_ONCE
            self._waits[_class(given.seconds)].learn(given, waited, score, bounds)

    def run(self, forecast: Estimate, limit: float) -> Estimate:
        """A forecast run time with the interval that is known to be needed, within the limit (seconds)."""
        lower = forecast.lower * math.exp(self._runs.lower)
        upper = min(limit, forecast.upper * math.exp(self._runs.upper))
        return structs.replace(forecast, lower=min(lower, upper), upper=upper)

    def learn_run(self, given: Estimate, ran: float) -> None:
        """Learn how long a job has run, seconds, for which :meth:`run` gave an estimate."""
        if _has_interval(given):
            self._runs.learn(given, ran, 0.0, _RUNNING)

    def to_array(self) -> Floats:
        """All that was learned."""
        return np.array([astuple(tails) for tails in (*self._waits, self._runs)])

    @classmethod
    def from_array(cls, array: Floats) -> Intervals:
        """Rebuild from :meth:`to_array`. Raises BadInput for a damaged array."""
        result = cls()
        if array.shape != result.to_array().shape or np.any(np.isnan(array)):
            raise BadInput(
                "the array of the intervals is damaged",
                where="run times",
                mend="Delete the file; `advisor control` learns run times anew.",
                code="run_times.arrays",
            )
        *result._waits, result._runs = (_Tails(*row) for row in array.tolist())
        return result


def _has_interval(given: Estimate) -> bool:
    return given.is_usable and given.lower <= given.upper


def _class(planned: float) -> int:
    return bisect.bisect_left(_CLASSES, planned)
