"""Intervals that hold as often as they promise while the load changes: adaptive conformal inference.

Gibbs and Candes, "Adaptive conformal inference under distribution shift", NeurIPS 2021, equation 2: after
each truth the error level of the next interval moves by ``rate * (promised - missed)``, so that the share of
misses over a long time is the promised one whatever the times do. Here more is done:

- The level is kept as log-odds. Near 0 a step is small, so that a level never comes to 0, where every
  interval is as wide as can be. The share of misses among the last intervals moves it, too, as long as they
  are the last: a proportional term beside the integral one (Angelopoulos et al., "Conformal PID control for
  time series prediction", NeurIPS 2023), so that a month in which everything changes is not lost.
- An interval can grow beyond all that a forest has seen: a share of its mass is spread over its surroundings.
- Where many times are the same (no wait at all), an interval would hold more often than promised. As in a
  smoothed conformal predictor (Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005)
  that time is left out for some jobs.
- Jobs that a user has in the queue together are right or wrong together. They are cut at levels spread around
  the one in force, the more the more there are, or a single burst would decide a month.
- A requested time bounds a run only where the site enforces it: how far runs go beyond it is learned.

A miss is known as soon as a job has waited, or run, for longer than its interval says. It counts then: those
that have ended are the short ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.predict.forecast.distribution import EDGES, cut
from advisor.predict.forecast.submission_features import FEATURES

Floats = NDArray[np.float64]

COVERAGE: Final = 0.9
"""Promised share of truths within the interval of a forecast."""
GRACE_SECONDS: Final = 60.0
"""A job at its limit runs on until Slurm looks for such jobs (30 s), and for its ``KillWait`` (30 s)."""

_PROMISED: Final = math.log((1.0 - COVERAGE) / COVERAGE)  # as log-odds
_RATE: Final = 0.03
"""Log-odds by which a job that was missed moves the level, less a tenth: nine that are held move it back."""
_RECENT_JOBS: Final = 50.0
_RECENT_WEIGHT: Final = 10.0
"""Log-odds for a share of 1: a tenth more misses than promised among the last jobs are one."""
_FORGOTTEN: Final = 1e-4
"""Share of the level's way from where it began that each job takes back: ten thousand forget it."""
_MIN_LOG_ODDS, _MAX_LOG_ODDS = -9.0, 3.0
_OVERRUN_RATE: Final = 0.02
_BEYOND_SHARE: Final = 0.05
"""Mass that is spread: one job in twenty is like none of those that its leaves hold."""
_BEYOND_DECAY: Final = float(EDGES[-2] / EDGES[-1])
"""From bin to bin: a time that is e times as far away is e times less likely."""
_SPREAD: Final = 0.25
"""Log-odds by which levels are spread, for e times as many jobs of a user in the queue."""
_GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0
_ROUNDING_SECONDS: Final = 1e-3
_TIME_OF_DAY: Final = FEATURES.index("time_of_day")
_WAITING: Final = FEATURES.index("same_user_jobs")
_RUNNING: Final = FEATURES.index("same_user_running_jobs")


class IntervalCalibration:
    """Where the next intervals of one target are cut.

    Parameters
    ----------
    state : sequence of float, optional
        :attr:`state` of an earlier one.

    Raises
    ------
    ValueError
        The state is not three finite numbers.
    """

    def __init__(self, state: Sequence[float] | None = None) -> None:
        start = (_PROMISED, 1.0 - COVERAGE, 0.0)
        self._log_odds, self._recent, self._overrun = (float(x) for x in (start if state is None else state))
        if not all(math.isfinite(number) for number in self.state):
            msg = f"{state!r} are not three finite numbers"
            raise ValueError(msg)

    @property
    def state(self) -> tuple[float, float, float]:
        """All there is: log-odds of the error level, share of the last jobs missed, logarithm of the overrun.

        The overrun is what a requested time is multiplied by.
        """
        return self._log_odds, self._recent, self._overrun

    @property
    def cut(self) -> tuple[float, float]:
        """What :func:`cut_interval` needs: log-odds of the error level now, logarithm of the overrun."""
        return self._log_odds - _RECENT_WEIGHT * (self._recent - (1.0 - COVERAGE)), self._overrun

    @property
    def level(self) -> float:
        """The error level now, above 0 and below 1."""
        return 1.0 / (1.0 + math.exp(-self.cut[0]))

    def learn(self, *, inside: bool) -> None:
        """Take in whether a truth lay within the interval it had been given."""
        missed = 0.0 if inside else 1.0
        forgotten = _FORGOTTEN * (_PROMISED - self._log_odds)
        moved = self._log_odds + _RATE * ((1.0 - COVERAGE) - missed) + forgotten
        self._log_odds = min(max(moved, _MIN_LOG_ODDS), _MAX_LOG_ODDS)
        self._recent += (missed - self._recent) / _RECENT_JOBS

    def learn_overrun(self, run: float, requested_time: float) -> None:
        """Take in how long a job ran of what it had asked for (seconds; infinite or NaN: nothing).

        What the request is multiplied by follows a quantile of all runs: as many are longer as are to lie
        above the upper end of an interval.
        """
        if math.isfinite(requested_time):
            missed = run > longest_run(requested_time, self._overrun)
            moved = self._overrun + _OVERRUN_RATE * (float(missed) - (1.0 - COVERAGE) / 2.0)
            self._overrun = max(0.0, moved)


@compiled
def longest_run(requested_time: float, overrun: float) -> float:
    """Seconds that no interval of a run time goes beyond."""
    return requested_time * math.exp(overrun) + GRACE_SECONDS


@compiled
def cut_interval(
    mass: Floats, features: Floats, target: int, requested_time: float, where: Floats, out: Floats
) -> None:
    """Fill ``out`` with the lower and the upper end of a forecast's interval, seconds.

    Parameters
    ----------
    mass : float64, shape (bins,)
        Probability of each bin of `EDGES`; NaN gives NaN.
    features : float64, shape (features,)
        Of the job, as `PlacementFeatures` gives them.
    target : int
        0: its wait, 1: its run time.
    requested_time : float
        Seconds; infinite where it is not known.
    where : float64, shape (2,)
        :attr:`IntervalCalibration.cut`.
    out : float64, shape (2,)
        Written.
    """
    if math.isnan(mass[0]):
        out[:] = np.nan
        return
    together = features[_WAITING] + (features[_RUNNING] if target else 0.0)
    place = _place(together, features[_TIME_OF_DAY])
    log_odds = where[0] + _SPREAD * math.log1p(together) * math.log(place / (1.0 - place))
    tail = 0.5 / (1.0 + math.exp(-log_odds))
    likely = _spread(mass)
    levels = np.array([tail, 1.0 - tail])
    cut(likely, levels, EDGES, out)
    if out[0] < EDGES[1]:  # the first bin is one time: none at all
        out[0] = 0.0
        if place * likely[0] < tail:
            out[0] = EDGES[1]
            if out[1] < EDGES[1]:
                levels[1] = likely[0] + (1.0 - likely[0]) * (1.0 - tail)
                cut(likely, levels[1:], EDGES, out[1:])
    if out[1] < EDGES[1]:
        out[1] = 0.0
    if target:
        most = longest_run(requested_time, where[1])
        out[0], out[1] = min(out[0], most), min(out[1], most)


@compiled
def _place(together: float, time_of_day: float) -> float:
    """A number above 0 and below 1 for a job, spread evenly over jobs that are submitted together.

    Multiples of the golden ratio are, and replay and live have the same: of how many jobs the user has in the
    queue, and of the second.
    """
    place = (_GOLDEN * (together + math.floor(time_of_day + _ROUNDING_SECONDS))) % 1.0
    return min(max(place, 1e-4), 1.0 - 1e-4)


@compiled
def _spread(mass: Floats) -> Floats:
    """The mass with a share of it spread over its neighbourhood, so that no time is impossible."""
    bins = len(mass)
    spread = np.empty(bins)
    carried = 0.0
    for index in range(bins):
        carried = carried * _BEYOND_DECAY + mass[index]
        spread[index] = carried
    carried = total = 0.0
    for index in range(bins - 1, -1, -1):
        spread[index] += carried
        carried = (carried + mass[index]) * _BEYOND_DECAY
        total += spread[index]
    for index in range(bins):
        spread[index] = (1.0 - _BEYOND_SHARE) * mass[index] + _BEYOND_SHARE * spread[index] / total
    return spread
