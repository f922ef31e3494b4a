"""Cunha et al. 2017, section V: a log's jobs advised one by one, and the time that would have been saved.

The window is counted in rows of the log; rows that never ran are left out of it afterwards, which gives the
paper's numbers of jobs. ``saved_seconds`` is the formula's sum (section V-B, its sign turned); the paper's
tables print exactly twice that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.decide import advise
from advisor.decide.backtest import ChosenCutoff, PastJobs, choose_cutoff
from advisor.model.advice import Placement
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimate, Estimates
from advisor.model.job import Job
from advisor.model.settings import EstimatorSettings, PlacementSettings, Settings
from advisor.model.site import SiteState
from advisor.model.table import UNKNOWN_CODE, JobTable
from advisor.predict.features import Encoder
from advisor.predict.fitness import TEST_ENTRIES, Target, TuningProblem
from advisor.predict.knn import EstimateColumns, KnnParameters
from advisor.predict.tracker import StateColumns, states_of
from advisor.predict.tuning import GeneticSettings, tune
from advisor.replay.estimates import estimate_rows

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

FACTORS: Final = (0.01, 0.05, 0.10, 0.20, 0.30, 0.40, 0.50, 0.75, 1.00, 10.00)
"""Overheads per processor of the paper's Tables III to V."""
TARGETS: Final[tuple[Target, Target]] = ("wait", "run")


class Progress(Protocol):
    """Where a replay says how far it is."""

    def __call__(self, phase: str, total: int, /) -> AbstractContextManager[Callable[[int], None]]:
        """Begin a phase of `total` steps; the callable given back is told the steps done since."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """What is replayed.

    Attributes
    ----------
    skip, jobs : int
        First row of the window, and rows in it.
    factors : tuple of float
        Overheads o.
    baseline : float
        i of s(c) = o*c + i.
    tune : bool
        Whether the GA looks for the estimators' parameters on the 500 entries before the window.
    generations, population : int
        Of the GA; the paper used 100 and 50.
    seed : int
        Of the GA.
    backtest_jobs : int
        Rows before the window on which the cutoff is chosen.
    """

    skip: int = 10_000
    jobs: int = 10_000
    factors: tuple[float, ...] = FACTORS
    baseline: float = 1.0
    tune: bool = True
    generations: int = 100
    population: int = 50
    seed: int = 1
    backtest_jobs: int = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one way to decide did for one factor.

    Attributes
    ----------
    cloud_jobs : int
        Jobs sent to the cloud.
    saved_seconds : float
        Sum over them of w + r - s(c)*r.
    fraction_of_optimal : float or None
        Of the clairvoyant's saved seconds; None where he could save nothing.
    """

    cloud_jobs: int
    saved_seconds: float
    fraction_of_optimal: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorRow:
    """One line of the paper's tables."""

    factor: float
    optimal: Outcome
    without_cutoff: Outcome
    with_cutoff: Outcome
    advisor: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorQuality:
    """How good the estimates of one window were.

    Attributes
    ----------
    mean_absolute_error : float
        Seconds, over the jobs that have an estimate (section V-A).
    interval_coverage : float
        Share of jobs whose truth lies within the stated interval.
    interval : float
        What that share should be.
    without_estimate : float
        Share of jobs with none.
    """

    mean_absolute_error: float
    interval_coverage: float
    interval: float
    without_estimate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedParameters:
    """What an estimator ran with."""

    k: int
    omega: float
    s: int
    weights: dict[str, float]
    rmse_before: float | None = None
    rmse_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementReplay:
    """The whole result."""

    jobs: int
    wait: EstimatorQuality
    run: EstimatorQuality
    parameters: dict[str, TunedParameters]
    cutoff: ChosenCutoff
    rows: tuple[FactorRow, ...]


def replay_placement(table: JobTable, options: PlacementOptions, progress: Progress) -> PlacementReplay:
    """Replay a log.

    Parameters
    ----------
    table : JobTable
        The whole log, *every* row (``read_table(path, keep="all")``): the window is counted in rows.
    options : PlacementOptions
        What is replayed.
    progress : Progress
        Told how far it is.

    Raises
    ------
    BadInput
        The log ends before the window, or holds too little before it to tune on.
    """
    window = _window(table, options.skip, options.skip + options.jobs)
    if len(window) == 0:
        raise BadInput(
            f"rows {options.skip} to {options.skip + options.jobs} of {len(table)} hold no job that ran",
            where=f"trace {table.name!r}",
            mend="Use a smaller --skip",
            code="replay.window",
        )
    states = states_of(table)
    encoder = Encoder(start_of_log=table.start_of_log, utc_offset_seconds=table.utc_offset_seconds)
    past = _window(table, max(0, options.skip - options.backtest_jobs), options.skip)
    both = np.concatenate([past, window])
    features = encoder.encode_table(table, states)
    estimates: dict[Target, EstimateColumns] = {}
    tuned: dict[str, TunedParameters] = {}
    for target in TARGETS:
        parameters, tuned[target] = _parameters(table, states, encoder, target, options, progress)
        with progress(f"estimating {target} times", len(both)) as tick:
            estimates[target] = estimate_rows(
                table, features, both, parameters, target, encoder=encoder, tick=tick
            )
    cutoff = choose_cutoff(
        _past_jobs(table, past, estimates, slice(0, len(past))), options.factors, options.baseline
    )
    judged = slice(len(past), len(both))
    cases = list(_cases(table, states, window, estimates, judged))
    actual = _past_jobs(table, window, estimates, judged)
    with progress("deciding", len(options.factors)) as tick:
        rows = tuple(_factor_row(factor, cases, actual, cutoff, options, tick) for factor in options.factors)
    return PlacementReplay(
        jobs=len(window),
        wait=_quality(estimates["wait"], judged, np.where(table.wait >= 0, table.wait, np.nan)[window]),
        run=_quality(estimates["run"], judged, table.run[window]),
        parameters=tuned,
        cutoff=cutoff,
        rows=rows,
    )


def _window(table: JobTable, begin: int, end: int) -> Rows:
    """Rows begin..end that ran, in submission order."""
    rows = np.arange(begin, min(end, len(table)))
    rows = rows[table.run[rows] > 0]
    return rows[np.argsort(table.submit[rows], kind="stable")]


def _parameters(
    table: JobTable,
    states: StateColumns,
    encoder: Encoder,
    target: Target,
    options: PlacementOptions,
    progress: Progress,
) -> tuple[KnnParameters, TunedParameters]:
    """Parameters for the window, from the 500 entries before it (section V-A)."""
    untuned = EstimatorSettings()
    start = KnnParameters.untuned(
        encoder.schema,
        k=untuned.neighbours,
        omega=untuned.kernel_width,
        s=untuned.knowledge_base_jobs,
    )
    if not options.tune:
        return start, _shown(start, encoder)
    try:
        problem = TuningProblem.from_log(
            table, states, encoder, target, at=options.skip, entries=TEST_ENTRIES
        )
    except BadInput as error:
        raise BadInput(
            f"too few jobs before row {options.skip} to tune the estimators on ({error.what})",
            where=f"trace {table.name!r}",
            mend="Use a larger --skip, or --no-tune",
            code="replay.tuning",
        ) from None
    with progress(f"tuning the {target} estimator", options.generations + 1) as tick:
        result = tune(
            problem,
            generator=np.random.default_rng([options.seed, TARGETS.index(target)]),
            start=start,
            settings=GeneticSettings(population=options.population, generations=options.generations),
            progress=lambda _state: tick(1),
        )
    shown = _shown(result.parameters, encoder)
    return result.parameters, replace(shown, rmse_before=result.rmse_before, rmse_after=result.rmse_after)


def _shown(parameters: KnnParameters, encoder: Encoder) -> TunedParameters:
    weights = dict(zip(encoder.schema.features, parameters.weights, strict=True))
    return TunedParameters(k=parameters.k, omega=parameters.omega, s=parameters.s, weights=weights)


def _past_jobs(
    table: JobTable, rows: Rows, estimates: dict[Target, EstimateColumns], part: slice
) -> PastJobs:
    return PastJobs(
        processors=table.processors[rows],
        wait=estimates["wait"].seconds[part],
        wait_variance=estimates["wait"].variance[part],
        run=estimates["run"].seconds[part],
        actual_wait=np.maximum(table.wait[rows], 0.0),
        actual_run=table.run[rows],
    )


def _cases(
    table: JobTable,
    states: StateColumns,
    rows: Rows,
    estimates: dict[Target, EstimateColumns],
    part: slice,
) -> Iterator[tuple[Job, SiteState, Estimates]]:
    """Each job of the window as the decision function meets it; the same for every factor."""
    indices = range(part.start, part.stop)
    for index, row in zip(indices, rows.tolist(), strict=True):
        submit = float(table.submit[row])
        asked = float(table.requested_time[row])
        user = int(table.user[row])
        job = Job(
            job_id=int(table.job_id[row]),
            submit_time=submit,
            processors=int(table.processors[row]),
            user=None if user == UNKNOWN_CODE else str(user),
            requested_time=None if np.isnan(asked) else asked,
        )
        predicted = Estimates(
            wait=_estimate(estimates["wait"], index), run=_estimate(estimates["run"], index)
        )
        yield job, SiteState(time=submit, cluster=states.state(row)), predicted


def _estimate(columns: EstimateColumns, index: int) -> Estimate:
    return Estimate(
        seconds=float(columns.seconds[index]),
        variance=float(columns.variance[index]),
        lower=float(columns.lower[index]),
        upper=float(columns.upper[index]),
        coverage=columns.coverage,
        neighbours=int(columns.neighbours[index]),
    )


def _factor_row(
    factor: float,
    cases: Sequence[tuple[Job, SiteState, Estimates]],
    actual: PastJobs,
    cutoff: ChosenCutoff,
    options: PlacementOptions,
    tick: Callable[[int], None],
) -> FactorRow:
    saved = actual.saved_seconds(factor, options.baseline)
    optimum = float(saved[saved > 0].sum())
    published = PlacementSettings(
        rule="published",
        overhead_per_processor=factor,
        baseline=options.baseline,
        boot_seconds=0.0,
        cutoff_scale=cutoff.scale,
        cutoff_decay=cutoff.decay,
    )
    variants = {
        "without_cutoff": published.model_copy(update={"use_cutoff": False}),
        "with_cutoff": published,
        "advisor": published.model_copy(update={"rule": "advisor"}),
    }
    outcomes = {name: _outcome(_sent(cases, settings), saved, optimum) for name, settings in variants.items()}
    tick(1)
    return FactorRow(factor=factor, optimal=_outcome(saved > 0, saved, optimum), **outcomes)


def _sent(
    cases: Sequence[tuple[Job, SiteState, Estimates]], placement: PlacementSettings
) -> NDArray[np.bool_]:
    """Where the decision function sends the jobs: True for the cloud."""
    settings = Settings(placement=placement)
    return np.array(
        [
            advise(job, state, estimates, settings, advice_id="replay").placement is Placement.BURST
            for job, state, estimates in cases
        ]
    )


def _outcome(sent: NDArray[np.bool_], saved: Floats, optimum: float) -> Outcome:
    total = float(saved[sent].sum())
    return Outcome(
        cloud_jobs=int(np.count_nonzero(sent)),
        saved_seconds=total,
        fraction_of_optimal=total / optimum if optimum > 0 else None,
    )


def _quality(columns: EstimateColumns, part: slice, truth: Floats) -> EstimatorQuality:
    seconds, lower, upper = columns.seconds[part], columns.lower[part], columns.upper[part]
    known = np.isfinite(truth)
    usable = np.isfinite(seconds) & known
    bounded = np.isfinite(lower) & np.isfinite(upper) & known
    inside = (truth >= lower) & (truth <= upper) & bounded
    return EstimatorQuality(
        mean_absolute_error=_mean(np.abs(seconds - truth)[usable]),
        interval_coverage=_mean(inside[bounded]),
        interval=columns.coverage,
        without_estimate=_mean(~np.isfinite(seconds[known])),
    )


def _mean(values: NDArray[np.float64] | NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else float("nan")
