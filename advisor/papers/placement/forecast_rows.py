"""Forecasts of a log's jobs, each by forests grown only on what was known before it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.model.estimate import Estimate, Estimates, holds
from advisor.model.table import JobTable
from advisor.papers.forests.distribution import BINS, Distributions
from advisor.papers.forests.placement_replay import features_of
from advisor.papers.forests.rolling import ForecastOptions, RollingForests
from advisor.papers.placement.calibration import COVERAGE, IntervalCalibration, cut_interval
from advisor.predict.knn.known import TARGETS, Known, Target

Rows = NDArray[np.int64]

__all__ = ["COVERAGE", "ForecastColumns", "ForecastOptions", "estimates_at", "forecast_rows"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastColumns:
    """One target's forecasts of some rows.

    Attributes:
        rows: int64, shape (n,): Rows of the table, in submission order.
        mean: float64, shape (n,): Seconds; NaN before there is a forest.
        quantiles: float64, shape (n, 20): Equally likely values, seconds.
        mass: float64, shape (n, bins): Probabilities of `advisor.papers.forests.distribution.EDGES`,
            without the limit by the request; NaN before there is a forest.
        variance, lower, upper: float64, shape (n,): Of the forecast; 90 % of all truths lie between `lower`
            and `upper`.
    """

    rows: Rows
    mean: Floats
    quantiles: Floats
    mass: Floats
    variance: Floats
    lower: Floats
    upper: Floats

    def estimate(self, index: int) -> Estimate:
        """One forecast as a record."""
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
    """Both forecasts of one row as records; None before there is a forest of each."""
    wait, run = forecasts["wait"], forecasts["run"]
    if not (np.isfinite(wait.mean[index]) and np.isfinite(run.mean[index])):
        return None
    return Estimates(wait=wait.estimate(index), run=run.estimate(index))


def forecast_rows(
    table: JobTable,
    rows: Rows,
    options: ForecastOptions,
    *,
    tick: Callable[[int], None] | None = None,
) -> dict[Target, ForecastColumns]:
    """Forecast waits and run times of rows of a log.

    Args:
        rows: Rows that ran, in submission order; the first `options.first` get no forecast.
        tick: Called now and then with the number of rows done since.

    Returns:
        ``"wait"`` and ``"run"``, one forecast per row. Run times are limited by the requested time.
    """
    features = features_of(table, stop=int(rows.max()) + 1 if len(rows) else 0)
    forests = RollingForests(options)
    known = {target: Known.of(table, target) for target in TARGETS}
    partial = {target: _PartialForecasts.of(len(rows)) for target in TARGETS}
    for begin in range(min(options.first, len(rows)), len(rows), options.retrain_jobs):
        part = slice(begin, min(begin + options.retrain_jobs, len(rows)))
        now = float(table.submit[rows[begin]])
        for target in forests.grow(known, features, now=now, number=begin):
            partial[target].fill(part, forests.predict(target, features[rows[part]]))
        if tick is not None:
            tick(part.stop - part.start)
    return {target: partial[target].columns(table, rows, target, features[rows]) for target in TARGETS}


@dataclass(frozen=True, slots=True, eq=False)
class _PartialForecasts:
    """Distributions of the rows forecast so far; NaN for the others."""

    mean: Floats
    mass: Floats

    @classmethod
    def of(cls, count: int) -> _PartialForecasts:
        return cls(np.full(count, np.nan), np.full((count, BINS), np.nan))

    def fill(self, part: slice, distributions: Distributions) -> None:
        self.mean[part] = distributions.mean
        self.mass[part] = distributions.mass

    def columns(self, table: JobTable, rows: Rows, target: Target, features: Floats) -> ForecastColumns:
        limit = np.full(len(rows), np.inf) if target == "wait" else table.requested_time[rows]
        longest = np.where(np.isnan(limit), np.inf, limit)
        mean = np.minimum(self.mean, longest)
        distributions = Distributions(mean=self.mean, mass=self.mass)
        quantiles = np.minimum(distributions.quantiles(), longest[:, None])
        intervals = _Intervals.of(table, rows, target, longest)
        for index in range(len(rows)):
            intervals.cut(index, self.mass[index], features[index])
        return ForecastColumns(
            rows=rows,
            mean=mean,
            quantiles=quantiles,
            mass=self.mass,
            variance=np.mean((quantiles - mean[:, None]) ** 2, axis=1),
            lower=intervals.bounds[:, 0],
            upper=intervals.bounds[:, 1],
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Intervals:
    """Intervals of one target, each calibrated by what was known at its submission about earlier ones.

    Attributes:
        submit, begin, labels, longest: float64, shape (n,): Seconds: submission, begin of the wait or run,
            its length, and the requested time.
        bounds: float64, shape (n, 2): The intervals; NaN where there is no forecast.
        calibration: In its present state.
        due: Heap of what becomes known: when, whether only that an interval was exceeded, index.
        judged: ndarray of bool, shape (n,): Whether the row's interval has been judged.
    """

    target: Target
    submit: Floats
    begin: Floats
    labels: Floats
    longest: Floats
    bounds: Floats
    calibration: IntervalCalibration
    due: list[tuple[float, bool, int]]
    judged: NDArray[np.bool_]

    @classmethod
    def of(cls, table: JobTable, rows: Rows, target: Target, longest: Floats) -> _Intervals:
        submit, is_wait = table.submit[rows], target == "wait"
        return cls(
            target,
            submit,
            submit if is_wait else table.start[rows],
            (table.first_wait if is_wait else table.whole_run)[rows],
            longest,
            np.full((len(rows), 2), np.nan),
            IntervalCalibration(),
            [],
            np.zeros(len(rows), np.bool_),
        )

    def cut(self, index: int, mass: Floats, features: Floats) -> None:
        """Compute the interval of the next row."""
        while self.due and self.due[0][0] < self.submit[index]:
            _, is_exceeded, past = heapq.heappop(self.due)
            self._learn(past, is_exceeded=is_exceeded)
        if np.isnan(mass[0]):
            return
        where = np.array(self.calibration.cut)
        target = TARGETS.index(self.target)
        cut_interval(mass, features, target, self.longest[index], where, self.bounds[index])
        label = self.labels[index]
        if label >= 0:
            known, exceeded = self.begin[index] + label, self.begin[index] + self.bounds[index, 1]
            heapq.heappush(self.due, (float(known), False, index))
            if exceeded < known:
                heapq.heappush(self.due, (float(exceeded), True, index))

    def _learn(self, index: int, *, is_exceeded: bool) -> None:
        label = float(self.labels[index])
        if not self.judged[index]:
            self.judged[index] = True
            lower, upper = self.bounds[index].tolist()
            self.calibration.learn(inside=holds(lower, label, upper))
        if self.target == "run" and not is_exceeded:
            self.calibration.learn_overrun(label, float(self.longest[index]))
