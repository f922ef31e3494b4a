"""A log's jobs forecast by distribution forests, each by a forest grown only on what was known before it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.model.estimate import Estimate, Estimates
from advisor.model.table import JobTable
from advisor.predict.calibration import AdaptiveLevel
from advisor.predict.distribution import BINS, Distributions
from advisor.predict.fitness import Target
from advisor.predict.placement_replay import features_of
from advisor.predict.rolling import COVERAGE, TARGETS, ForecastOptions, Known, RollingForests

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

__all__ = ["COVERAGE", "ForecastColumns", "ForecastOptions", "estimates_at", "forecast_rows"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastColumns:
    """One target's forecasts of some rows.

    Attributes
    ----------
    rows : int64, shape (n,)
        Rows of the table, in submission order.
    mean : float64, shape (n,)
        Seconds; NaN before there is a forest.
    quantiles : float64, shape (n, 20)
        Equally likely values, seconds.
    mass : float64, shape (n, bins)
        Probabilities of `advisor.predict.distribution.EDGES`, not capped; NaN where there are none.
    variance, lower, upper : float64, shape (n,)
        Of the predictive distribution; `lower` and `upper` bound its middle 90 %.
    level : float
        Error level of the intervals at the end (:attr:`AdaptiveLevel.level`).
    """

    rows: Rows
    mean: Floats
    quantiles: Floats
    mass: Floats
    variance: Floats
    lower: Floats
    upper: Floats
    level: float = 1.0 - COVERAGE

    def estimate(self, index: int) -> Estimate:
        """One forecast as the decision meets it."""
        return Estimate(
            seconds=float(self.mean[index]),
            variance=float(self.variance[index]),
            lower=float(self.lower[index]),
            upper=float(self.upper[index]),
            coverage=COVERAGE,
            neighbours=0,
            quantiles=tuple(self.quantiles[index].tolist()),
        )


def estimates_at(forecasts: Mapping[Target, ForecastColumns], index: int) -> Estimates | None:
    """Both forecasts of one row as the decision meets them; None before there is a forest of each."""
    wait, run = forecasts["wait"], forecasts["run"]
    if not (np.isfinite(wait.mean[index]) and np.isfinite(run.mean[index])):
        return None
    return Estimates(wait=wait.estimate(index), run=run.estimate(index))


def forecast_rows(
    table: JobTable,
    rows: Rows,
    options: ForecastOptions,
    *,
    features: Floats | None = None,
    rolling: RollingForests | None = None,
    tick: Callable[[int], None] | None = None,
) -> dict[Target, ForecastColumns]:
    """Forecast waits and run times of rows of a log, in submission order.

    Parameters
    ----------
    table : JobTable
        The whole log.
    rows : int64
        Rows that ran, in submission order; the first `options.first` get no forecast.
    options : ForecastOptions
        How forecasts are made.
    features : float64, optional
        Of every row (`features_of`); computed when not given.
    rolling : RollingForests, optional
        Grown on the way; to be had by the caller.
    tick : callable, optional
        Told now and then how many rows were done.

    Returns
    -------
    dict
        ``"wait"`` and ``"run"``, one forecast per row. Run times are capped by the requested time: no job
        runs longer than it may.
    """
    if features is None:
        features = features_of(table, stop=int(rows.max()) + 1 if len(rows) else 0)
    forests = rolling if rolling is not None else RollingForests(options)
    known = {target: Known.of(table, target) for target in TARGETS}
    found = {target: _Found.of(len(rows)) for target in TARGETS}
    for begin in range(min(options.first, len(rows)), len(rows), options.retrain_jobs):
        part = slice(begin, min(begin + options.retrain_jobs, len(rows)))
        now = float(table.submit[rows[begin]])
        for target in forests.grow(known, features, now=now, number=begin):
            found[target].fill(part, forests.predict(target, features[rows[part]]))
        if tick is not None:
            tick(part.stop - part.start)
    return {target: found[target].columns(table, rows, target) for target in TARGETS}


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Distributions while they are being made; NaN where there is none."""

    mean: Floats
    mass: Floats

    @classmethod
    def of(cls, count: int) -> _Found:
        return cls(np.full(count, np.nan), np.full((count, BINS), np.nan))

    def fill(self, part: slice, distributions: Distributions) -> None:
        self.mean[part] = distributions.mean
        self.mass[part] = distributions.mass

    def columns(self, table: JobTable, rows: Rows, target: Target) -> ForecastColumns:
        limit = np.full(len(rows), np.inf) if target == "wait" else table.requested_time[rows]
        most = np.where(np.isnan(limit), np.inf, limit)
        distributions = Distributions(mean=self.mean, mass=self.mass)
        bounds, level = self._bounds(table, rows, target, most)
        bounds = np.minimum(bounds, most[:, None])
        mean = np.minimum(self.mean, most)
        quantiles = np.minimum(distributions.quantiles(), most[:, None])
        return ForecastColumns(
            rows=rows,
            mean=mean,
            quantiles=quantiles,
            mass=self.mass,
            variance=np.mean((quantiles - mean[:, None]) ** 2, axis=1),
            lower=bounds[:, 0],
            upper=bounds[:, 1],
            level=level,
        )

    def _bounds(self, table: JobTable, rows: Rows, target: Target, most: Floats) -> tuple[Floats, float]:
        """Interval of each row, at a level that follows how often they held so far; and the last level."""
        level = AdaptiveLevel(COVERAGE)
        bounds = np.full((len(rows), 2), np.nan)
        labels = (table.first_wait if target == "wait" else table.whole_run)[rows]
        times = table.submit[rows] + labels if target == "wait" else table.end[rows]
        open_rows = list[tuple[float, int]]()
        for index, now in enumerate(table.submit[rows].tolist()):
            while open_rows and open_rows[0][0] < now:
                _, past = heapq.heappop(open_rows)
                low, high = bounds[past]
                level.learn(inside=bool(low <= labels[past] <= min(high, most[past])))
            if np.isnan(self.mean[index]):
                continue
            one = Distributions(mean=self.mean[index : index + 1], mass=self.mass[index : index + 1])
            bounds[index] = one.quantiles(np.array(level.bounds))[0]
            if labels[index] >= 0:
                heapq.heappush(open_rows, (float(times[index]), index))
        return bounds, level.level
