"""Fitness of k-NN parameters: RMSE on log entries outside the knowledge base (Cunha et al., IV-A, V-A).

`advisor tune` searches by it, and compares what it found with the parameters in force.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.predict.knn import _search
from advisor.predict.knn.features import CUNHA_TABLE_I, Encoder, FeatureSchema
from advisor.predict.knn.known import Known, Target
from advisor.predict.knn.parameters import MAX_NEIGHBOURS, KnnParameters
from advisor.predict.knn.tracker import StateColumns

TEST_ENTRIES: Final = 500
"""Log entries on which the fitness is measured (section V-A)."""

NAN_PENALTY: Final = 1e12
"""RMSE in seconds of an individual with a NaN estimate; it grows with their number (section IV-B)."""


@dataclass(frozen=True, slots=True, eq=False)
class TuningProblem:
    """A fixed knowledge base and the log entries that follow it.

    Attributes:
        cases: ndarray of shape (cases, features): In the order in which their labels became known.
        labels, times: ndarray of shape (cases,): The observed times and when they became known, seconds.
        queries: ndarray of shape (entries, features): Features of the test entries at their submission.
        truths: ndarray of shape (entries,): Observed times of the test entries, seconds.
    """

    cases: Floats
    labels: Floats
    times: Floats
    job_ids: NDArray[np.int64]
    queries: Floats
    truths: Floats
    schema: FeatureSchema = CUNHA_TABLE_I

    @classmethod
    def from_log(
        cls,
        table: JobTable,
        states: StateColumns,
        encoder: Encoder,
        target: Target,
        *,
        at: int | None = None,
        entries: int = TEST_ENTRIES,
    ) -> TuningProblem:
        """Take the last test entries known at row ``at``, and as cases all jobs known before the first one.

        A wait is known once the job has started, a run time once it has ended.

        Args:
            table: A log in submission order. Rows with a run time of 0 or less, or a label that is negative
                or not known, are left out.
            states: The cluster's state at each row's submission.
            at: The row whose submission is now; by default all is known.

        Raises:
            BadInput: The log is too short.
        """
        known = Known.of(table, target)
        is_over = at is None or at >= len(table)
        over = known.rows if is_over else known.rows[known.before(float(table.submit[at]))]
        test = np.sort(over)[-entries:]
        before = known.before(table.submit[test[0]]) if len(test) == entries else slice(0, 0)
        base = known.rows[before]
        if len(base) == 0:
            raise _too_short(table, len(test), entries)
        features = encoder.encode_table(table, states)
        return cls(
            cases=features[base],
            labels=known.labels[base].astype(np.float64),
            times=known.times[before],
            job_ids=table.job_id[base],
            queries=np.ascontiguousarray(features[test]),
            truths=known.labels[test].astype(np.float64),
            schema=encoder.schema,
        )


def _too_short(table: JobTable, found: int, entries: int) -> BadInput:
    return BadInput(
        f"it has {found} of the {entries} jobs to test with, and no job that ended before them",
        where=f"history {table.name!r}",
        mend="Ingest more finished jobs (`advisor ingest`), or test on fewer jobs (--entries)",
        code="tuning.too_short",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Bounds of the chromosomes ``[k, omega, s, w_1 .. w_n]``, and their mapping to the unit cube.

    k, omega and s are uniform in their logarithms, weights uniform from 0 to 1 (only their ratio to omega
    squared matters).
    """

    k: tuple[int, int] = (1, 64)
    omega: tuple[float, float] = (0.02, 5.0)
    s: tuple[int, int] = (100, 10_000)

    def decode(self, genes: Floats) -> KnnParameters:
        """Parameters at a point of the unit cube, shape (3 + features,)."""
        return KnnParameters(
            k=round(_log_scale(self.k, genes[0])),
            omega=_log_scale(self.omega, genes[1]),
            s=round(_log_scale(self.s, genes[2])),
            weights=tuple(genes[3:].tolist()),
        )

    def encode(self, parameters: KnnParameters) -> Floats:
        """The point of the unit cube nearest to ``parameters``."""
        largest = max(1.0, *parameters.weights)
        genes: Floats = np.array(
            [
                _log_share(self.k, parameters.k),
                _log_share(self.omega, parameters.omega / math.sqrt(largest)),
                _log_share(self.s, parameters.s),
                *(weight / largest for weight in parameters.weights),
            ]
        )
        return np.minimum(np.maximum(genes, 0.0), 1.0)

    def within(self, problem: TuningProblem) -> SearchSpace:
        """The same space with k and s no larger than the problem's knowledge base."""
        cases = len(problem.cases)
        s = (min(self.s[0], cases), min(self.s[1], cases))
        return SearchSpace(k=(self.k[0], min(self.k[1], MAX_NEIGHBOURS, cases)), omega=self.omega, s=s)


def _log_scale(bounds: tuple[float, float], share: float) -> float:
    low, high = math.log(bounds[0]), math.log(bounds[1])
    return math.exp(low + (high - low) * float(share))


def _log_share(bounds: tuple[float, float], value: float) -> float:
    low, high = math.log(bounds[0]), math.log(bounds[1])
    return (math.log(value) - low) / (high - low) if high > low else 0.0


class Fitness:
    """RMSE of parameters on a problem, by the compiled search that also answers submissions."""

    def __init__(self, problem: TuningProblem) -> None:
        self.problem = problem
        features = len(problem.schema)
        self._base = _search.Base(
            cases=np.ascontiguousarray(problem.cases.T),
            labels=problem.labels,
            times=problem.times,
            job_ids=problem.job_ids,
            nominal=problem.schema.nominal,
            low=np.empty(features),
            high=np.empty(features),
            weights=np.empty(features),
        )
        self._results = np.empty((len(problem.queries), 5))

    def predict(self, parameters: KnnParameters) -> Floats:
        """Estimates of the test entries, seconds; NaN where there is none."""
        base, cases = self._base, len(self._base.labels)
        begin = max(0, cases - parameters.s)
        for feature in range(len(base.weights)):
            base.low[feature], base.high[feature] = _search.extremes(base.cases[feature, begin:])
        base.weights[:] = parameters.weights
        _search.estimate_rows(
            base,
            _search.Window(begin, cases, cases - 1),
            self.problem.queries,
            parameters.omega,
            0.9,
            _search.scratch_for(parameters.k),
            self._results,
        )
        return self._results[:, _search.SECONDS].copy()

    def __call__(self, parameters: KnnParameters) -> float:
        """RMSE (Eq. 5), seconds; at least ``NAN_PENALTY`` when any estimate is NaN."""
        errors = self.predict(parameters) - self.problem.truths
        unknown = int(np.count_nonzero(np.isnan(errors)))
        if unknown:
            return NAN_PENALTY * (1.0 + unknown / len(errors))
        return math.sqrt(float(np.mean(errors * errors)))
