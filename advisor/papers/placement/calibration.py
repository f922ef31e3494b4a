"""Intervals that keep their promised coverage while the load changes: adaptive conformal inference.

Gibbs and Candes, "Adaptive conformal inference under distribution shift", NeurIPS 2021, equation 2: after
each truth the error level of the next interval moves by ``rate * (promised - missed)``, so that the long-run
share of misses is the promised one whatever the times do. Additions:

- The level is kept as log-odds, whose steps are small near 0, so that it never reaches 0, where every
  interval is as wide as possible. The recent share of misses moves it too: a proportional term beside the
  integral one (Angelopoulos et al., "Conformal PID control for time series prediction", NeurIPS 2023), so
  that intervals recover quickly when everything changes.
- An interval can extend beyond all training times: a share of its mass is spread over the neighbourhood.
- Where many times are equal (no wait at all), an interval would cover more often than promised. As in a
  smoothed conformal predictor (Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005)
  that time is left out for some jobs.
- Forecasts of a user's queued jobs are right or wrong together. Their levels are spread around the current
  one, the more the more jobs there are; otherwise a single burst would decide a month.
- A requested time bounds a run only where the site enforces it: the overrun is learned.

A miss counts as soon as a job has waited, or run, beyond its interval: those that have ended are the short
ones.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.papers.forests.distribution import EDGES, fill_quantiles
from advisor.papers.forests.submission_features import FEATURES

COVERAGE: Final = 0.9
"""Promised share of truths within a forecast's interval."""
GRACE_SECONDS: Final = 60.0
"""How long a job may run on at its limit: Slurm checks every 30 s, and ``KillWait`` is 30 s."""

_PROMISED: Final = math.log((1.0 - COVERAGE) / COVERAGE)  # as log-odds
_RATE: Final = 0.03
"""Step of the log-odds: a miss lowers them by nine tenths of it, a hit raises them by one tenth."""
_RECENT_JOBS: Final = 50.0
_RECENT_WEIGHT: Final = 10.0
"""Log-odds per unit of recent misses: a tenth more than promised counts 1."""
_RESTORING_SHARE: Final = 1e-4
"""Share of its distance from the start that the level moves back per job: ten thousand jobs forget it."""
_MIN_LOG_ODDS, _MAX_LOG_ODDS = -9.0, 3.0
_OVERRUN_RATE: Final = 0.02
_SMOOTHED_SHARE: Final = 0.05
"""Share of the mass that is spread: one job in twenty is unlike all jobs of its leaves."""
_SMOOTHING_DECAY: Final = float(EDGES[-2] / EDGES[-1])
"""Factor from bin to bin: a time that is e times as far away is e times less likely."""
_LEVEL_SPREAD: Final = 0.25
"""Spread of the levels in log-odds, per factor e of queued jobs of the user."""
_GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0
_ROUNDING_SECONDS: Final = 1e-3
_TIME_OF_DAY: Final = FEATURES.index("time_of_day")
_WAITING: Final = FEATURES.index("same_user_jobs")
_RUNNING: Final = FEATURES.index("same_user_running_jobs")


class IntervalCalibration:
    """Calibration of one target's intervals: what was learned from those whose truth is known."""

    def __init__(self) -> None:
        self._log_odds = _PROMISED
        self._recent = 1.0 - COVERAGE  # share of recent jobs missed
        self._overrun = 0.0

    @property
    def cut(self) -> tuple[float, float]:
        """Input of :func:`cut_interval`: log-odds of the current error level, logarithm of the overrun.

        The overrun is the factor on requested times.
        """
        return self._log_odds - _RECENT_WEIGHT * (self._recent - (1.0 - COVERAGE)), self._overrun

    def learn(self, *, inside: bool) -> None:
        """Learn whether a truth lay within its interval."""
        missed = 0.0 if inside else 1.0
        restoring = _RESTORING_SHARE * (_PROMISED - self._log_odds)
        moved = self._log_odds + _RATE * ((1.0 - COVERAGE) - missed) + restoring
        self._log_odds = min(max(moved, _MIN_LOG_ODDS), _MAX_LOG_ODDS)
        self._recent += (missed - self._recent) / _RECENT_JOBS

    def learn_overrun(self, run: float, requested_time: float) -> None:
        """Learn from a run time in seconds and its request; infinite or NaN: nothing.

        The overrun follows the quantile of all runs above which an interval's upper end leaves them.
        """
        if math.isfinite(requested_time):
            missed = run > longest_run(requested_time, self._overrun)
            moved = self._overrun + _OVERRUN_RATE * (float(missed) - (1.0 - COVERAGE) / 2.0)
            self._overrun = max(0.0, moved)


@compiled
def longest_run(requested_time: float, overrun: float) -> float:
    """Upper limit of every interval of a run time, seconds."""
    return requested_time * math.exp(overrun) + GRACE_SECONDS


@compiled
def cut_interval(
    mass: Floats, features: Floats, target: int, requested_time: float, where: Floats, out: Floats
) -> None:
    """Write the lower and upper end of a forecast's interval, in seconds.

    Args:
        mass: float64, shape (bins,): Probability of each bin of `EDGES`; NaN gives NaN.
        features: float64, shape (features,): Of the job, as `PlacementFeatures` gives them.
        target: 0: its wait, 1: its run time.
        requested_time: Seconds; infinite where unknown.
        where: float64, shape (2,): :attr:`IntervalCalibration.cut`.
        out: float64, shape (2,): Written.
    """
    if math.isnan(mass[0]):
        out[:] = np.nan
        return
    same_user = features[_WAITING] + (features[_RUNNING] if target else 0.0)
    offset = _level_offset(same_user, features[_TIME_OF_DAY])
    log_odds = where[0] + _LEVEL_SPREAD * math.log1p(same_user) * math.log(offset / (1.0 - offset))
    tail = 0.5 / (1.0 + math.exp(-log_odds))
    likely = _smoothed(mass)
    levels = np.array([tail, 1.0 - tail])
    fill_quantiles(likely, levels, EDGES, out)
    if out[0] < EDGES[1]:  # the first bin is one time: none at all
        out[0] = 0.0
        if offset * likely[0] < tail:
            out[0] = EDGES[1]
            if out[1] < EDGES[1]:
                levels[1] = likely[0] + (1.0 - likely[0]) * (1.0 - tail)
                fill_quantiles(likely, levels[1:], EDGES, out[1:])
    if out[1] < EDGES[1]:
        out[1] = 0.0
    if target:
        longest = longest_run(requested_time, where[1])
        out[0], out[1] = min(out[0], longest), min(out[1], longest)


@compiled
def _level_offset(same_user: float, time_of_day: float) -> float:
    """A number between 0 and 1 for a job, spread evenly over jobs that are submitted together.

    Multiples of the golden ratio are evenly spread. The multiple is the number of the user's queued jobs plus
    the second of the day: no random number, so that every replay is the same.
    """
    offset = (_GOLDEN * (same_user + math.floor(time_of_day + _ROUNDING_SECONDS))) % 1.0
    return min(max(offset, 1e-4), 1.0 - 1e-4)


@compiled
def _smoothed(mass: Floats) -> Floats:
    """The mass with a share of it spread over its neighbourhood, so that no time is impossible."""
    bins = len(mass)
    spread = np.empty(bins)
    carried = 0.0
    for index in range(bins):
        carried = carried * _SMOOTHING_DECAY + mass[index]
        spread[index] = carried
    carried = total = 0.0
    for index in range(bins - 1, -1, -1):
        spread[index] += carried
        carried = (carried + mass[index]) * _SMOOTHING_DECAY
        total += spread[index]
    for index in range(bins):
        spread[index] = (1.0 - _SMOOTHED_SHARE) * mass[index] + _SMOOTHED_SHARE * spread[index] / total
    return spread
