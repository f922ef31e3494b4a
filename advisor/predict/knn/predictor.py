"""Wait, run time and size class of a submission, from three models.

The learn loop teaches it; `advisor serve` asks it under the published policies. Under the `price` policy the
run time comes from `advisor.predict.run_times` and the wait from a simulation of the queue; only the size
class is from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.model.cluster import ClusterState
from advisor.model.errors import BadInput
from advisor.model.estimate import NO_SIZE, Estimates, SizeEstimate
from advisor.model.job import Job, JobOutcome
from advisor.model.table import JobTable
from advisor.predict.knn.estimator import KnnEstimator
from advisor.predict.knn.features import Encoder, FeatureSchema
from advisor.predict.knn.known import TARGETS, Known
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.tracker import StateColumns
from advisor.predict.size.size_model import SizeModel, part_of

FORMAT: Final = 1


class Predictor:
    """Wait and run time by k-NN on one feature vector, and the size class.

    Args:
        wait, run: Parameters of the two estimators, which share the features (Cunha et al., section IV-A).
        size: Without it every job's size is unknown. It is stored separately: it is retrained weekly, whereas
            the knowledge bases change every few seconds.
        probability_cut: Probability, 0 to 1, from which a job is small.

    Notes:
        One thread uses an instance, or each caller holds a lock of its own around every call.
    """

    def __init__(
        self,
        wait: KnnParameters,
        run: KnnParameters,
        *,
        encoder: Encoder | None = None,
        size: SizeModel | None = None,
        probability_cut: float = 0.5,
        coverage: float = 0.9,
    ) -> None:
        self.encoder = encoder if encoder is not None else Encoder()
        self.wait = KnnEstimator(wait, self.encoder.schema, coverage=coverage)
        self.run = KnnEstimator(run, self.encoder.schema, coverage=coverage)
        self.size = size
        self.probability_cut = probability_cut

    def estimate(self, job: Job, state: ClusterState | None) -> Estimates:
        """Predict one submission; without a state the cluster's features are unknown."""
        features = self.encoder.encode(job, state)
        return Estimates(
            wait=self.wait.estimate(features),
            run=self.run.estimate(features),
            size=self.size_of(job),
        )

    def size_of(self, job: Job) -> SizeEstimate:
        """Predict the size class only, where another estimator gives wait and run time."""
        return NO_SIZE if self.size is None else self.size.classify(job, self.probability_cut)

    def learn_wait(self, job: Job, start_time: float, state: ClusterState | None) -> bool:
        """Learn the wait of a job that has started on-premise; returns False where nothing was learned.

        ``state`` is the cluster's state at the job's submission. A start before the submission means that the
        log's clocks disagree, and nothing is learned from it.
        """
        wait = start_time - job.submit_time
        if wait < 0:
            return False
        features = self.encoder.encode(job, state)
        return self.wait.add(features, wait, time=start_time, job_id=job.job_id)

    def learn(self, outcome: JobOutcome, state: ClusterState | None, *, wait: bool = True) -> None:
        """Learn from a finished job.

        A requeued job teaches the wait for its first start, where that is known: the time to its last start
        is more than waiting. A job whose run was cut short teaches its wait only, and one that never ran
        nothing.

        Args:
            state: The cluster's state at the job's submission.
            wait: False where the wait is already learned (:meth:`learn_wait`) or was not spent in the
                on-premise queue.
        """
        if not outcome.run_seconds > 0:
            return
        waited = outcome.first_wait_seconds
        if wait and waited is not None:
            self.learn_wait(outcome.job, outcome.job.submit_time + waited, state)
        if outcome.is_whole:
            features = self.encoder.encode(outcome.job, state)
            self.run.add(features, outcome.run_seconds, time=outcome.end_time, job_id=outcome.job.job_id)

    def learn_table(self, table: JobTable, states: StateColumns, *, until: float = np.inf) -> None:
        """Learn from a log the waits of jobs started, and the run times of jobs ended, before ``until``.

        Args:
            table: Finished jobs, treated as in :meth:`learn`. Its clock may differ from the encoder's
                (``start_of_log``).
            states: The state at each row's submission, as from :func:`advisor.predict.knn.tracker.states_of`.
            until: Seconds on the table's clock.
        """
        features = self.encoder.encode_table(table, states)
        to_our_clock = table.start_of_log - self.encoder.start_of_log
        for estimator, target in ((self.wait, TARGETS[0]), (self.run, TARGETS[1])):
            known = Known.of(table, target)
            before = known.before(until)
            rows = known.rows[before]
            times = known.times[before] + to_our_clock
            estimator.add_many(features[rows], known.labels[rows], times=times, job_ids=table.job_id[rows])

    def warm(self) -> None:
        """Compile, or load from the cache, all code that :meth:`estimate` needs."""
        self.wait.warm()
        self.run.warm()
        self.encoder.encode(Job(job_id=0, submit_time=0.0, processors=1, user="warm"), None)

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything but the size model: plain arrays, and metadata for JSON."""
        arrays = {f"wait.{name}": array for name, array in self.wait.to_arrays().items()}
        arrays |= {f"run.{name}": array for name, array in self.run.to_arrays().items()}
        meta = {
            "format": FORMAT,
            "schema": {"name": self.encoder.schema.name, "features": list(self.encoder.schema.features)},
            "start_of_log": self.encoder.start_of_log,
            "utc_offset_seconds": self.encoder.utc_offset_seconds,
            "cases": {"wait": len(self.wait), "run": len(self.run)},
        }
        return arrays, meta

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, NDArray[Any]],
        meta: Mapping[str, Any],
        *,
        size: SizeModel | None = None,
        probability_cut: float = 0.5,
    ) -> Predictor:
        """Rebuild the predictor from :meth:`to_arrays`; raises BadInput for missing or foreign parts."""
        try:
            if meta["format"] != FORMAT:
                msg = f"format {meta['format']}, not {FORMAT}"
                raise ValueError(msg)  # noqa: TRY301 (every damage becomes one message below)
            schema = FeatureSchema(str(meta["schema"]["name"]), tuple(meta["schema"]["features"]))
            encoder = Encoder(
                schema,
                start_of_log=float(meta["start_of_log"]),
                utc_offset_seconds=float(meta["utc_offset_seconds"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(
                f"damaged model: {error!r}",
                where="predictor",
                mend="Restart `advisor control`, which builds it anew from the history",
                code="predictor.arrays",
            ) from None
        wait = KnnEstimator.from_arrays(part_of(arrays, "wait."), schema)
        run = KnnEstimator.from_arrays(part_of(arrays, "run."), schema)
        predictor = cls(
            wait.parameters, run.parameters, encoder=encoder, size=size, probability_cut=probability_cut
        )
        predictor.wait, predictor.run = wait, run
        return predictor
