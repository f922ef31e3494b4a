"""k nearest neighbours with the heterogeneous distance HEOM (Cunha et al. 2017, section IV-A).

`advisor.predict.knn.predictor` has one for waits and one for run times; replays have their own. The tests
compare it with the definition in plain Python, ``tests/predict/knn/heom.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimate
from advisor.predict.knn import _search
from advisor.predict.knn.features import CUNHA_TABLE_I, FeatureSchema
from advisor.predict.knn.parameters import KnnParameters

LARGEST_VALUE: Final = 1e150
"""A larger number counts as unknown: its square would not be finite."""
_WIDENING_RATE: Final = 0.1
"""Step of :meth:`KnnEstimator.judge` on the logarithm of the width: a miss widens later intervals by about a
tenth. The first 1,000 jobs of a site are enough to learn the width."""


class KnnEstimator:
    """Estimates a time from the most similar past cases.

    Neighbours are ordered by distance; at equal distance the newer case comes first, then the smaller job id.
    A feature has distance 1 where it is unknown in either case, and where all known values are equal and
    differ from the query's.

    Args:
        parameters: k (neighbours), omega (width of the kernel), s (most cases kept) and the features'
            weights.
        schema: The features; ``parameters`` has a weight for each, BadInput otherwise.
        coverage: Nominal coverage of the interval, between 0 and 1.

    Notes:
        An instance belongs to one thread, because its scratch arrays are reused by every estimate.

    Examples:
        >>> from advisor.predict.knn.features import FeatureSchema
        >>> schema = FeatureSchema("example", ("user", "requested_time"))
        >>> estimator = KnnEstimator(KnnParameters(k=2, omega=1.0, s=100, weights=(1.0, 1.0)), schema)
        >>> for job_id, (user, asked, ran) in enumerate([(1, 60, 30), (1, 60, 40), (2, 900, 800)]):
        ...     _ = estimator.add(np.array([user, asked], float), ran, time=float(job_id), job_id=job_id)
        >>> estimate = estimator.estimate(np.array([1, 60], float))
        >>> estimate.seconds, estimate.variance, estimate.neighbours
        (35.0, 50.0, 2)
    """

    def __init__(
        self, parameters: KnnParameters, schema: FeatureSchema = CUNHA_TABLE_I, *, coverage: float = 0.9
    ) -> None:
        if len(parameters.weights) != len(schema):
            raise BadInput(
                f"{len(parameters.weights)} weights for {len(schema)} features",
                where=f"k-NN parameters for {schema.name!r}",
                mend="Run `advisor tune`, which finds parameters for these features",
                code="knn.parameters",
            )
        self.parameters = parameters
        self.schema = schema
        self.coverage = coverage
        self.widening = 0.0
        self._size = 0
        self._next = 0
        features, room = len(schema), parameters.s  # memory that is not written to is not taken
        self._base = _search.Base(
            cases=np.empty((features, room)),
            labels=np.empty(room),
            times=np.empty(room),
            job_ids=np.empty(room, np.int64),
            nominal=schema.nominal,
            low=np.full(features, math.inf),
            high=np.full(features, -math.inf),
            weights=np.array(parameters.weights, np.float64),
        )
        self._scratch = _search.scratch_for(parameters.k)
        self._result = np.empty((1, 5))

    def __len__(self) -> int:
        """Cases in the knowledge base, at most s."""
        return self._size

    def add(self, features: Floats, label: float, *, time: float, job_id: int) -> bool:
        """Add a case; when there are already s cases, the oldest is dropped.

        Args:
            features: ndarray of shape (features,): NaN where unknown.
            label: The time that was observed, seconds.
            time: When the label became known, seconds.

        Returns:
            False when the label is NaN or infinite: the case is not added.
        """
        if not math.isfinite(label):
            return False
        is_full = self._size == self.parameters.s
        slot = self._next
        base = self._base
        _search.replace_case(base, slot, self._size if is_full else 0, self._clean(features), float(label))
        base.times[slot], base.job_ids[slot] = time, job_id
        self._size += not is_full
        self._next = (slot + 1) % self.parameters.s
        return True

    def add_many(self, features: Floats, labels: Floats, *, times: Floats, job_ids: NDArray[np.int64]) -> int:
        """Add cases of shape (cases, features) in order; returns how many had a finite label."""
        known = np.flatnonzero(np.isfinite(labels))
        rows = known[-self.parameters.s :]  # earlier ones would have been dropped again
        if self._size == 0 and len(rows):
            self._fill(self._clean(features[rows]), labels[rows], times[rows], job_ids[rows])
        else:
            for row in rows:
                self.add(features[row], labels[row], time=times[row], job_id=job_ids[row])
        return len(known)

    def estimate(self, features: Floats) -> Estimate:
        """Estimate one query of shape (features,), NaN where unknown (Eq. 3), with its uncertainty (Eq. 4).

        ``seconds`` is NaN without neighbours and where every kernel underflows; ``variance`` is infinite
        where the kernels sum to at most 1 (section IV-B).
        """
        self._search(features)
        seconds, variance, lower, upper, neighbours = self._result[0].tolist()
        if self.widening > 0.0:
            factor = math.exp(self.widening)
            lower, upper = max(0.0, (1.0 + lower) / factor - 1.0), (1.0 + upper) * factor - 1.0
        return Estimate(
            seconds=seconds,
            variance=variance,
            lower=lower,
            upper=upper,
            coverage=self.coverage,
            neighbours=int(neighbours),
        )

    def judge(self, *, inside: bool) -> None:
        """Adapt the interval's width to whether a true time lay within the interval of :meth:`estimate`.

        With few neighbours even their widest interval covers too rarely. It is therefore widened by a factor
        that follows the misses: online gradient descent on the quantile loss, as adaptive conformal inference
        does for scores (Gibbs and Candes 2021). It never becomes narrower than the interval of the
        neighbours alone.
        """
        missed = 0.0 if inside else 1.0
        self.widening = max(0.0, self.widening + _WIDENING_RATE * (missed - (1.0 - self.coverage)))

    def neighbours(self, features: Floats) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Job ids, distances (Eq. 1) and labels of the neighbours of one query, nearest first."""
        self._search(features)
        found = int(self._result[0, _search.NEIGHBOURS])
        slots = self._scratch.slots[:found]
        return self._base.job_ids[slots], np.sqrt(self._scratch.best[:found]), self._base.labels[slots]

    def warm(self) -> None:
        """Compile, or load from the cache, all code that an estimate needs; no case is added."""
        other = KnnEstimator(replace(self.parameters, s=2), self.schema)
        features = np.zeros(len(self.schema))
        for job_id in range(3):
            other.add(features, 1.0, time=0.0, job_id=job_id)
        other.estimate(features)
        other.neighbours(features)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that :meth:`from_arrays` needs, as plain arrays; cases oldest first."""
        order = self._oldest_first()
        return {
            "features": self._base.cases[:, order].T.copy(),
            "labels": self._base.labels[order],
            "times": self._base.times[order],
            "job_ids": self._base.job_ids[order],
            "chromosome": self.parameters.chromosome,
            "coverage": np.array([self.coverage]),
            "widening": np.array([self.widening]),
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], schema: FeatureSchema = CUNHA_TABLE_I
    ) -> KnnEstimator:
        """Rebuild the estimator from :meth:`to_arrays`; raises BadInput for a missing or misshapen array."""
        try:
            (coverage,) = arrays["coverage"].tolist()
            (widening,) = arrays["widening"].tolist()
            parameters = KnnParameters.from_chromosome(arrays["chromosome"])
            features = np.asarray(arrays["features"], np.float64)
            columns = [arrays[name] for name in ("labels", "times", "job_ids")]
            if features.shape != (len(columns[0]), len(schema)) or any(
                column.shape != columns[0].shape for column in columns
            ):
                msg = f"cases have shape {features.shape}"
                raise ValueError(msg)  # noqa: TRY301 (every damage becomes one message below)
        except (KeyError, ValueError, TypeError) as error:
            raise BadInput(
                f"damaged model: {error}",
                where=f"k-NN arrays for {schema.name!r}",
                mend="Restart `advisor control`, which builds it anew from the history",
                code="knn.arrays",
            ) from None
        estimator = cls(parameters, schema, coverage=coverage)
        estimator.widening = widening
        labels, times, job_ids = columns
        estimator.add_many(features, labels, times=times, job_ids=job_ids)
        return estimator

    def _search(self, features: Floats) -> None:
        """Find the neighbours of one query into the scratch arrays, and its estimate into the result."""
        newest = (self._next - 1) % self._size if self._size else 0
        _search.estimate_rows(
            self._base,
            _search.Window(0, self._size, newest),
            self._clean(features)[np.newaxis, :],
            self.parameters.omega,
            self.coverage,
            self._scratch,
            self._result,
        )

    def _clean(self, features: Floats) -> Floats:
        """Features as float64; values too large for a finite distance become unknown."""
        features = np.asarray(features, np.float64)
        if features.shape[-1] != len(self.schema):
            msg = (
                f"{features.shape[-1]} features where the schema {self.schema.name!r} has {len(self.schema)}"
            )
            raise ValueError(msg)
        known = np.abs(features) <= LARGEST_VALUE
        return features if known.all() else np.where(known, features, math.nan)

    def _oldest_first(self) -> NDArray[np.int64]:
        start = self._next if self._size == self.parameters.s else 0
        return (start + np.arange(self._size)) % self.parameters.s

    def _fill(self, features: Floats, labels: Floats, times: Floats, job_ids: NDArray[np.int64]) -> None:
        """Load all cases of an empty base at once, without holding up the threads that answer submissions."""
        base, count = self._base, len(labels)
        base.cases[:, :count] = features.T
        base.labels[:count], base.times[:count], base.job_ids[:count] = labels, times, job_ids
        base.low[:] = np.fmin.reduce(features, initial=math.inf)
        base.high[:] = np.fmax.reduce(features, initial=-math.inf)
        self._size = count
        self._next = count % self.parameters.s
