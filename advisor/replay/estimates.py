"""A log's jobs estimated one by one, from what was known at each submission."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.model.estimate import Estimate
from advisor.model.table import JobTable
from advisor.predict.forecast.rolling import Known
from advisor.predict.knn.estimator import KnnEstimator
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.fitness import Target
from advisor.predict.knn.parameters import KnnParameters

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Tick: TypeAlias = Callable[[int], None]

__all__ = ["EstimateColumns", "Known", "estimate_rows"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EstimateColumns:
    """Many estimates: the fields of :class:`Estimate` as arrays of one length."""

    seconds: Floats
    variance: Floats
    lower: Floats
    upper: Floats
    neighbours: NDArray[np.int64]
    coverage: float

    def __len__(self) -> int:
        return len(self.seconds)

    def estimate(self, index: int) -> Estimate:
        """One row as a record."""
        return Estimate(
            seconds=float(self.seconds[index]),
            variance=float(self.variance[index]),
            lower=float(self.lower[index]),
            upper=float(self.upper[index]),
            coverage=self.coverage,
            neighbours=int(self.neighbours[index]),
        )


def estimate_rows(
    table: JobTable,
    features: Floats,
    rows: Rows,
    parameters: KnnParameters,
    target: Target,
    *,
    encoder: Encoder,
    tick: Tick | None = None,
) -> EstimateColumns:
    """Estimate rows of a log in submission order.

    Before each one the knowledge base takes in what became known *before* its submission: waits of jobs
    that had started, run times of jobs that had ended (Cunha et al., section V).

    Parameters
    ----------
    table : JobTable
        The whole log.
    features : ndarray of shape (jobs, features)
        Of every row.
    rows : ndarray of int64
        Rows to estimate, in submission order.
    parameters : KnnParameters
        Of the estimator.
    target : {"wait", "run"}
        Which estimator.
    encoder : Encoder
        The schema of the features.
    tick : callable, optional
        Called now and then with the number of rows done since the last call.

    Returns
    -------
    EstimateColumns
        One per row, in the order of `rows`.
    """
    known = Known.of(table, target)
    estimator = KnnEstimator(parameters, encoder.schema)
    submits = table.submit[rows]
    until = np.searchsorted(known.times, submits, side="left")  # strictly before the submission
    first = int(until[0]) if len(rows) else 0
    _learn(estimator, table, features, known, slice(0, first))
    results = np.empty((len(rows), 5))
    learned, last_tick = first, 0
    for index, row in enumerate(rows):
        if learned < until[index]:
            _learn(estimator, table, features, known, slice(learned, int(until[index])))
            learned = int(until[index])
        estimate = estimator.estimate(features[row])
        results[index] = (
            estimate.seconds,
            estimate.variance,
            estimate.lower,
            estimate.upper,
            estimate.neighbours,
        )
        if tick is not None and (index - last_tick >= 256 or index == len(rows) - 1):
            tick(index + 1 - last_tick)
            last_tick = index + 1
    seconds, variance, lower, upper, neighbours = results.T
    return EstimateColumns(
        seconds=seconds,
        variance=variance,
        lower=lower,
        upper=upper,
        neighbours=neighbours.astype(np.int64),
        coverage=estimator.coverage,
    )


def _learn(estimator: KnnEstimator, table: JobTable, features: Floats, known: Known, part: slice) -> None:
    rows = known.rows[part]
    estimator.add_many(
        features[rows], known.labels[rows], times=known.times[part], job_ids=table.job_id[rows]
    )
