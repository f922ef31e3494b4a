"""A log's jobs estimated by k-NN one by one, from what was known at each submission.

The weekly backtest of the cutoff and replays of the published rule ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.model.estimate import Estimate
from advisor.model.table import JobTable
from advisor.predict.knn.estimator import KnnEstimator
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.known import Known, Target
from advisor.predict.knn.parameters import KnnParameters

Rows = NDArray[np.int64]
Tick: TypeAlias = Callable[[int], None]

_STEP: Final = 256
"""Rows between two ticks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EstimateColumns:
    """Many estimates: the fields of :class:`Estimate` as arrays of one length."""

    seconds: Floats
    variance: Floats
    lower: Floats
    upper: Floats
    neighbours: NDArray[np.int64]
    coverage: float

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

    Args:
        features: ndarray, shape (jobs, features): Of every row of the log.
        rows: Rows to estimate, in submission order.
        tick: Called now and then with the number of rows done since the last call.
    """
    estimator = KnnEstimator(parameters, encoder.schema)
    results = np.empty((len(rows), 5))
    last_tick = 0
    known = Known.of(table, target)
    for index, row in enumerate(_known_at_submission(estimator, table, features, rows, known)):
        found = estimator.estimate(features[row])
        results[index] = found.seconds, found.variance, found.lower, found.upper, found.neighbours
        if tick is not None and (index - last_tick >= _STEP or index == len(rows) - 1):
            tick(index + 1 - last_tick)
            last_tick = index + 1
    return _columns(results, estimator.coverage)


def _known_at_submission(
    estimator: KnnEstimator, table: JobTable, features: Floats, rows: Rows, known: Known
) -> Iterator[int]:
    """Yield each row once the estimator has learned what was known before the row's submission."""
    until = np.searchsorted(known.times, table.submit[rows], side="left")  # strictly before
    learned = int(until[0]) if len(rows) else 0
    _learn(estimator, table, features, known, slice(0, learned))
    for row, end in zip(rows.tolist(), until.tolist(), strict=True):
        if learned < end:
            _learn(estimator, table, features, known, slice(learned, end))
            learned = end
        yield row


def _columns(results: Floats, coverage: float) -> EstimateColumns:
    seconds, variance, lower, upper, neighbours = results.T
    return EstimateColumns(
        seconds=seconds,
        variance=variance,
        lower=lower,
        upper=upper,
        neighbours=neighbours.astype(np.int64),
        coverage=coverage,
    )


def _learn(estimator: KnnEstimator, table: JobTable, features: Floats, known: Known, part: slice) -> None:
    rows = known.rows[part]
    estimator.add_many(
        features[rows], known.labels[rows], times=known.times[part], job_ids=table.job_id[rows]
    )
