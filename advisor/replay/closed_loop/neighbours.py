"""Waits and run times by k nearest neighbours, as `advisor serve` forecasts them under the published rules.

They are taught by what the simulated site has seen: the rows of the log before the first job, then the
simulated waits and run times. Of a job in the cloud the wait on-premise stays unknown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from advisor.decide.submission.table_row import job_of
from advisor.model.cluster import ClusterState
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.fitness import TuningProblem
from advisor.predict.knn.known import TARGETS, Target
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.predictor import Predictor
from advisor.predict.knn.tracker import ClusterTracker, StateColumns, states_of
from advisor.predict.knn.tuning import GeneticSettings, tune
from advisor.replay.closed_loop.world import World
from advisor.replay.estimates import EstimateColumns, estimate_rows

MAX_TUNED_ROWS: Final = 3_000
"""Rows before the first job on which the GA works: 500 are the test entries, the others the cases."""
GENERATIONS: Final = 20
"""The paper's GA has 100; these take 5 to 30 s."""
_SEED: Final = 1


class Neighbours:
    """Follows the on-premise queue of a world, and forecasts its jobs.

    Args:
        generations: Generations of the genetic algorithm that tunes the estimators; 0: they stay untuned.
    """

    def __init__(self, world: World, generations: int) -> None:
        jobs = self._jobs = world.jobs
        self.past = jobs.table.select(slice(0, jobs.first))
        self._encoder = Encoder(
            start_of_log=self.past.start_of_log, utc_offset_seconds=self.past.utc_offset_seconds
        )
        self._tracker = ClusterTracker(jobs.machine)
        self._states: dict[int, ClusterState] = {}  # that each job has met at its submission
        states = states_of(self.past)
        self._past_features = self._encoder.encode_table(self.past, states)
        is_known = np.asarray(np.isfinite(self._past_features).any(axis=0))
        self._parameters = {
            target: _on(is_known, self._tuned(states, target, generations)) for target in TARGETS
        }
        self._predictor = Predictor(self._parameters["wait"], self._parameters["run"], encoder=self._encoder)
        self._predictor.learn_table(self.past, states, until=world.now)

    def of_past(self, rows: NDArray[np.int64]) -> dict[Target, EstimateColumns]:
        """Estimates of rows before the first job, each from what was known at its submission."""
        return {
            target: estimate_rows(
                self.past, self._past_features, rows, self._parameters[target], target, encoder=self._encoder
            )
            for target in TARGETS
        }

    def job(self, row: int) -> Job:
        """A row as a submission."""
        return job_of(self._jobs.table, self._jobs.first + row, with_queue=True)

    def submitted(self, row: int, now: float) -> Estimates:
        """Forecast a new job, which has not joined the queue."""
        state = self._states[row] = self._tracker.state(now)
        return self._predictor.estimate(self.job(row), state)

    def asked_again(self, row: int, now: float) -> Estimates:
        """Forecast a waiting job anew, from now on."""
        job = structs.replace(self.job(row), submit_time=now)
        return self._predictor.estimate(job, self._tracker.state(now).without(job))

    def joined(self, row: int, now: float) -> None:
        """A job waits on-premise."""
        job = self.job(row)
        self._tracker.submit(row, processors=job.processors, requested_time=job.requested_time, time=now)

    def left(self, row: int, now: float) -> None:
        """A waiting job has gone to the cloud."""
        self._tracker.finish(row, now)

    def started(self, row: int, now: float) -> None:
        """A job has started on-premise: its wait is known."""
        self._tracker.start(row, now)
        self._predictor.learn_wait(self.job(row), now, self._states[row])

    def ended(self, row: int, now: float) -> None:
        """A job has ended; in the cloud it has shown what it would have run on-premise."""
        self._tracker.finish(row, now)
        job, run = self.job(row), float(self._jobs.run[row])
        features = self._encoder.encode(job, self._states.pop(row))
        self._predictor.run.add(features, run, time=now, job_id=job.job_id)

    def _tuned(self, states: StateColumns, target: Target, generations: int) -> KnnParameters:
        start = KnnParameters.untuned(self._encoder.schema)
        if not generations:
            return start
        first = max(0, len(self.past) - MAX_TUNED_ROWS)
        try:
            problem = TuningProblem.from_log(
                self.past.select(slice(first, None)), _later(states, first), self._encoder, target
            )
        except BadInput:  # too few rows
            return start
        result = tune(
            problem,
            generator=np.random.default_rng([_SEED, TARGETS.index(target)]),
            start=start,
            settings=GeneticSettings(generations=generations),
        )
        return result.parameters


def _on(is_known: NDArray[np.bool_], parameters: KnnParameters) -> KnnParameters:
    """Parameters without weights on features that the log does not have.

    Such a feature is equally far away from every case. Its weight changes no estimate, but narrows the
    kernel, until the variance is infinite.
    """
    weights = tuple(np.where(is_known, parameters.weights, 0.0).tolist())
    return replace(parameters, weights=weights)


def _later(states: StateColumns, first: int) -> StateColumns:
    """The states from a row on."""
    return StateColumns(**{name: getattr(states, name)[first:] for name in states.__slots__})
