"""Cunha et al. 2017 in a closed loop: asked once, at the submission; k nearest neighbours, cutoff on doubt.

Everything is as published (`advisor.decide.submission.placement.published`), trained by what the simulated
site has seen: the rows of the log before the first job, then the simulated waits and run times. Of a job in
the cloud the wait on-premise stays unknown. A job moves if the tokens cover its time limit. Of the paper's
two columns, with the cutoff and without, the one that would have saved more before the first job is taken:
where the GA finds one neighbour best, every variance is infinite, and no job would move.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.decide.submission.placement import as_case, published
from advisor.decide.submission.table_row import job_of
from advisor.model.advice import Verdict
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimates
from advisor.model.settings import PlacementSettings
from advisor.model.site import Cutoff
from advisor.model.table import JobTable
from advisor.predict.knn.estimator import KnnEstimator
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.fitness import Target, TuningProblem
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.tracker import ClusterTracker, StateColumns, states_of
from advisor.predict.knn.tuning import GeneticSettings, tune
from advisor.replay.closed_loop.log import Floats
from advisor.replay.closed_loop.world import Policy, World, WorldOptions
from advisor.replay.cutoff_choice import PastJobs, choose_cutoff
from advisor.replay.estimates import EstimateColumns, estimate_rows

TARGETS: Final[tuple[Target, Target]] = ("wait", "run")
MAX_TUNED_ROWS: Final = 3_000
"""Rows before the first job on which the GA works: 500 are the test entries, the others the cases."""
GENERATIONS: Final = 20
"""The paper's GA has 100; these take 5 to 30 s."""
BACKTEST_ROWS: Final = 1_000
"""Rows before the first job on which the cutoff is chosen."""
_MIN_BACKTEST: Final = 100
_SEED: Final = 1


class Cunha2017(Policy):
    """The published placement rule.

    Args:
        generations: Of the GA that tunes the estimators; 0: they stay untuned.
        cutoff: The site's, if it has set one.
    """

    name = "cunha2017"

    def __init__(self, generations: int = GENERATIONS, *, cutoff: Cutoff | None = None) -> None:
        self._generations = generations
        self._given_cutoff = cutoff
        self._settings: PlacementSettings
        self._cutoff: Cutoff | None
        self._encoder: Encoder
        self._tracker: ClusterTracker
        self._features: Floats
        self._estimators: dict[Target, KnnEstimator]

    def begin(self, world: World) -> None:
        """Learn from the log's rows before the first job: parameters, cutoff and cases."""
        jobs = world.jobs
        past = jobs.table.select(slice(0, jobs.first))
        self._settings = settings_of(world.options)
        self._encoder = Encoder(start_of_log=past.start_of_log, utc_offset_seconds=past.utc_offset_seconds)
        self._tracker = ClusterTracker(jobs.machine)
        self._features = np.full((len(jobs), len(self._encoder.schema)), np.nan)
        states = states_of(past)
        features = self._encoder.encode_table(past, states)
        is_known = np.asarray(np.isfinite(features).any(axis=0))
        parameters = {target: _on(is_known, self._tuned(past, states, target)) for target in TARGETS}
        self._cutoff = self._given_cutoff or self._chosen_cutoff(past, features, parameters)
        self._estimators = {
            target: KnnEstimator(parameters[target], self._encoder.schema) for target in TARGETS
        }
        for target, estimator in self._estimators.items():
            labels = past.first_wait if target == "wait" else past.whole_run
            times = past.submit + labels if target == "wait" else past.end
            known = np.flatnonzero((past.run > 0) & (labels >= 0) & (times < world.now))
            known = known[np.argsort(times[known], kind="stable")]
            estimator.add_many(features[known], labels[known], times=times[known], job_ids=past.job_id[known])

    def submitted(self, world: World, row: int) -> None:
        """Ask the published rule, once."""
        jobs = world.jobs
        job = job_of(jobs.table, jobs.first + row, with_queue=True)
        features = self._encoder.encode(job, self._tracker.state(world.now))
        self._features[row] = features
        estimates = Estimates(
            wait=self._estimators["wait"].estimate(features), run=self._estimators["run"].estimate(features)
        )
        case = as_case(
            processors=job.processors,
            estimates=estimates,
            boot=self._settings.boot_seconds,
            settings=self._settings,
            cutoff=self._cutoff,
        )
        goes = published(case).verdict is Verdict.YES
        if goes and world.start_in_cloud(row, float(jobs.limit[row]), keeps_place=False):
            return
        self._tracker.submit(
            row, processors=job.processors, requested_time=job.requested_time, time=world.now
        )

    def started(self, world: World, row: int) -> None:
        """Learn the wait."""
        self._tracker.start(row, world.now)
        self._learn(world, "wait", row, world.now - float(world.jobs.submit[row]))

    def ended(self, world: World, row: int) -> None:
        """Learn the run time; of a job in the cloud what it would have taken on-premise."""
        self._tracker.finish(row, world.now)
        self._learn(world, "run", row, float(world.jobs.run[row]))

    def _learn(self, world: World, target: Target, row: int, label: float) -> None:
        job_id = int(world.jobs.table.job_id[world.jobs.first + row])
        self._estimators[target].add(self._features[row], label, time=world.now, job_id=job_id)

    def _tuned(self, past: JobTable, states: StateColumns, target: Target) -> KnnParameters:
        start = KnnParameters.untuned(self._encoder.schema)
        if not self._generations:
            return start
        first = max(0, len(past) - MAX_TUNED_ROWS)
        try:
            problem = TuningProblem.from_log(
                past.select(slice(first, None)), _later(states, first), self._encoder, target
            )
        except BadInput:  # too few rows
            return start
        result = tune(
            problem,
            generator=np.random.default_rng([_SEED, TARGETS.index(target)]),
            start=start,
            settings=GeneticSettings(generations=self._generations),
        )
        return result.parameters

    def _chosen_cutoff(
        self, past: JobTable, features: Floats, parameters: dict[Target, KnnParameters]
    ) -> Cutoff | None:
        """The cutoff that would have saved most, or no cutoff; None: too few rows, the settings' guess."""
        rows = np.flatnonzero(past.run > 0)[-BACKTEST_ROWS:]
        rows = rows[len(rows) // 2 :] if len(past) < 2 * BACKTEST_ROWS else rows
        if len(rows) < _MIN_BACKTEST:
            return None
        found: dict[Target, EstimateColumns] = {
            target: estimate_rows(past, features, rows, parameters[target], target, encoder=self._encoder)
            for target in TARGETS
        }
        chosen = choose_cutoff(
            PastJobs(
                processors=past.processors[rows],
                wait=found["wait"].seconds,
                wait_variance=found["wait"].variance,
                run=found["run"].seconds,
                actual_wait=np.maximum(past.wait[rows], 0.0),
                actual_run=past.run[rows],
            ),
            (self._settings.overhead_per_processor,),
            self._settings.baseline,
            self._settings.boot_seconds,
        )
        if chosen.score_without > chosen.score:
            return Cutoff(scale=math.inf, decay=0.0)
        return Cutoff(scale=chosen.scale, decay=chosen.decay)


def settings_of(options: WorldOptions, **more: object) -> PlacementSettings:
    """Placement settings of the simulated cloud: every job runs ``slowdown`` times as long there."""
    return PlacementSettings.model_validate(
        {
            "overhead_per_processor": 0.0,
            "baseline": options.slowdown,
            "boot_seconds": options.boot_seconds,
            **more,
        }
    )


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
