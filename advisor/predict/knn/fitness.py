"""How good k-NN parameters are: RMSE on log entries not in the knowledge base (Cunha et al., IV-A, V-A)."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.predict.knn import _search
from advisor.predict.knn.features import CUNHA_TABLE_I, Encoder, FeatureSchema
from advisor.predict.knn.knn import MAX_NEIGHBOURS, KnnParameters
from advisor.predict.knn.tracker import StateColumns

Floats = NDArray[np.float64]
Target: TypeAlias = Literal["wait", "run"]

TEST_ENTRIES: Final = 500
"""Log entries the fitness is measured on (section V-A)."""

NAN_PENALTY: Final = 1e12
"""RMSE of an individual that gave a NaN anywhere, seconds; more for more of them (section IV-B)."""


@dataclass(frozen=True, slots=True, eq=False)
class TuningProblem:
    """A fixed knowledge base and the log entries that follow it.

    Attributes
    ----------
    cases : ndarray of shape (cases, features)
        Oldest first, by when each became known.
    labels, times : ndarray of shape (cases,)
        What happened, seconds; when it became known, seconds.
    job_ids : ndarray of shape (cases,)
        For ties.
    queries : ndarray of shape (entries, features)
        The test entries, as submitted.
    truths : ndarray of shape (entries,)
        What happened to them, seconds.
    schema : FeatureSchema
        Of the features.
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
        """Take the last test entries before row ``at``, and as cases all that was known before the first one.

        Known means: started before its submission (waits), ended before it (run times).

        Parameters
        ----------
        table : JobTable
            A log in submission order. Rows with a run time of 0 or less, or a label that is negative or not
            known, are left out.
        states : StateColumns
            What each row met.
        encoder : Encoder
            How rows become features.
        target : {"wait", "run"}
            Which of the two estimators.
        at : int, optional
            Row of the table that stands for now; its end by default.
        entries : int
            Test entries.

        Raises
        ------
        BadInput
            The log is too short.
        """
        labels = table.first_wait if target == "wait" else table.whole_run
        known = table.submit + labels if target == "wait" else table.end
        usable = np.flatnonzero((table.run > 0) & (labels >= 0))
        test = usable[usable < (len(table) if at is None else at)][-entries:]
        base = usable[known[usable] < table.submit[test[0]]] if len(test) == entries else test[:0]
        if len(base) == 0:
            raise BadInput(
                f"{len(test)} of {entries} test entries, {len(base)} cases known before them",
                where=f"history {table.name!r}",
                mend="Ingest more finished jobs (`advisor ingest`), or ask for fewer test entries.",
                code="tuning.too_short",
            )
        base = base[np.argsort(known[base], kind="stable")]
        features = encoder.encode_table(table, states)
        return cls(
            cases=features[base],
            labels=labels[base].astype(np.float64),
            times=known[base],
            job_ids=table.job_id[base],
            queries=np.ascontiguousarray(features[test]),
            truths=labels[test].astype(np.float64),
            schema=encoder.schema,
        )

    @property
    def fingerprint(self) -> str:
        """Hash of everything in it: a search may be resumed on the same problem only."""
        digest = hashlib.sha256("\0".join(self.schema.features).encode())
        for array in (self.cases, self.labels, self.times, self.job_ids, self.queries, self.truths):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Where chromosomes ``[k, omega, s, w_1 .. w_n]`` live, and their form in the unit cube.

    k, omega and s are spread evenly over their logarithms, weights evenly from 0 to 1 (only their ratio to
    omega squared matters).
    """

    k: tuple[int, int] = (1, 64)
    omega: tuple[float, float] = (0.02, 5.0)
    s: tuple[int, int] = (100, 10_000)

    def decode(self, genes: Floats) -> KnnParameters:
        """Parameters of a point of the unit cube."""
        return KnnParameters(
            k=round(_log_scale(self.k, genes[0])),
            omega=_log_scale(self.omega, genes[1]),
            s=round(_log_scale(self.s, genes[2])),
            weights=tuple(genes[3:].tolist()),
        )

    def encode(self, parameters: KnnParameters) -> Floats:
        """The point of the unit cube nearest to some parameters."""
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
        """The same space with s and k no larger than the knowledge base there is."""
        most = len(problem.cases)
        s = (min(self.s[0], most), min(self.s[1], most))
        return SearchSpace(k=(self.k[0], min(self.k[1], MAX_NEIGHBOURS, most)), omega=self.omega, s=s)


def _log_scale(bounds: tuple[float, float], share: float) -> float:
    low, high = math.log(bounds[0]), math.log(bounds[1])
    return math.exp(low + (high - low) * float(share))


def _log_share(bounds: tuple[float, float], value: float) -> float:
    low, high = math.log(bounds[0]), math.log(bounds[1])
    return (math.log(value) - low) / (high - low) if high > low else 0.0


class Fitness:
    """RMSE of parameters on a problem; the same compiled search as on the submit path."""

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
        """Estimates of the test entries, seconds; NaN where none can be given."""
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
        """Eq. 5, seconds; at least ``NAN_PENALTY`` when any estimate is NaN."""
        errors = self.predict(parameters) - self.problem.truths
        unknown = int(np.count_nonzero(np.isnan(errors)))
        if unknown:
            return NAN_PENALTY * (1.0 + unknown / len(errors))
        return math.sqrt(float(np.mean(errors * errors)))
