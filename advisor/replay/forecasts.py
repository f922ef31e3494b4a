"""A log's jobs forecast by distribution forests, each by a forest grown only on what was known before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.model.estimate import Estimate
from advisor.model.table import JobTable
from advisor.predict.distribution import LEVELS, DistributionForest, ForestSettings
from advisor.predict.fitness import Target
from advisor.predict.placement_features import features_of
from advisor.replay.estimates import Known

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

COVERAGE = 0.9
_LOW, _HIGH = (1.0 - COVERAGE) / 2.0, (1.0 + COVERAGE) / 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """How forecasts are made.

    Attributes
    ----------
    first : int
        Jobs that are only learned from.
    retrain_jobs : int
        New forests after so many submissions.
    forest : ForestSettings
        How they are grown.
    """

    first: int = 1_000
    retrain_jobs: int = 500
    forest: ForestSettings = ForestSettings()


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
    variance, lower, upper : float64, shape (n,)
        Of the predictive distribution; `lower` and `upper` bound its middle 90 %.
    """

    rows: Rows
    mean: Floats
    quantiles: Floats
    variance: Floats
    lower: Floats
    upper: Floats

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


def forecast_rows(
    table: JobTable,
    rows: Rows,
    options: ForecastOptions,
    *,
    features: Floats | None = None,
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
    targets: tuple[Target, Target] = ("wait", "run")
    known = {target: Known.of(table, target) for target in targets}
    found = {target: _Found.of(len(rows)) for target in targets}
    for begin in range(min(options.first, len(rows)), len(rows), options.retrain_jobs):
        part = slice(begin, min(begin + options.retrain_jobs, len(rows)))
        now = float(table.submit[rows[begin]])
        for target in targets:
            past = known[target].rows[: np.searchsorted(known[target].times, now, side="left")]
            past = past[np.isfinite(features[past, 0])][-options.forest.most_jobs :]
            if len(past):
                labels = known[target].labels[past]
                forest = DistributionForest.train(features[past], labels, options.forest)
                found[target].fill(part, forest, features[rows[part]])
        if tick is not None:
            tick(part.stop - part.start)
    limits = {"wait": np.full(len(rows), np.inf), "run": table.requested_time[rows]}
    return {target: found[target].columns(rows, limits[target]) for target in targets}


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Forecasts while they are being made; `bounds` are the interval's two quantiles."""

    mean: Floats
    quantiles: Floats
    bounds: Floats

    @classmethod
    def of(cls, count: int) -> _Found:
        return cls(np.full(count, np.nan), np.full((count, len(LEVELS)), np.nan), np.full((count, 2), np.nan))

    def fill(self, part: slice, forest: DistributionForest, features: Floats) -> None:
        distributions = forest.predict(features)
        self.mean[part] = distributions.mean
        self.quantiles[part] = distributions.quantiles()
        self.bounds[part] = distributions.quantiles(np.array([_LOW, _HIGH]))

    def columns(self, rows: Rows, limit: Floats) -> ForecastColumns:
        most = np.where(np.isnan(limit), np.inf, limit)
        mean = np.minimum(self.mean, most)
        quantiles = np.minimum(self.quantiles, most[:, None])
        bounds = np.minimum(self.bounds, most[:, None])
        return ForecastColumns(
            rows=rows,
            mean=mean,
            quantiles=quantiles,
            variance=np.mean((quantiles - mean[:, None]) ** 2, axis=1),
            lower=bounds[:, 0],
            upper=bounds[:, 1],
        )
