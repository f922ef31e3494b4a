"""Cunha et al. 2017, section V: a log's jobs advised one by one, and the time that would have been saved.

The window is counted in rows of the log; rows that never ran are left out of it afterwards, which gives the
paper's numbers of jobs. ``saved_seconds`` is the formula's sum (section V-B, its sign turned); the paper's
tables print exactly twice that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from advisor.arrays import Bools, Floats
from advisor.decide.submission.advise import advise
from advisor.decide.submission.table_row import job_of
from advisor.history.parameters import untuned_of
from advisor.model.advice import Placement
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import ClusterSettings, Settings
from advisor.model.settings_decision import PlacementSettings
from advisor.model.settings_learning import EstimatorSettings
from advisor.model.site import Cutoff, SiteState
from advisor.model.table import JobTable
from advisor.papers.placement.forecast_rows import COVERAGE, ForecastColumns, ForecastOptions, forecast_rows
from advisor.papers.placement.hedged import HedgeOutcome, HedgePoint, hedge_curve, hedge_rows
from advisor.papers.placement.own_rule import sent_by_the_advisor
from advisor.papers.placement.placement_results import (
    EstimatorQuality,
    FactorRow,
    Outcome,
    PlacementReplay,
    TunedParameters,
)
from advisor.parallel import Tick, side_by_side
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.fitness import TEST_ENTRIES, TuningProblem
from advisor.predict.knn.known import TARGETS, Target
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.tracker import StateColumns, states_of
from advisor.predict.knn.tuning import GeneticSettings, tune
from advisor.replay.cutoff_choice import ChosenCutoff, PastJobs, choose_cutoff
from advisor.replay.estimates import EstimateColumns, estimate_rows

Rows = NDArray[np.int64]

FACTORS: Final = (0.01, 0.05, 0.10, 0.20, 0.30, 0.40, 0.50, 0.75, 1.00, 10.00)
"""Overheads per processor of the paper's Tables III to V."""


class Progress(Protocol):
    """Where a replay says how far it is."""

    def __call__(self, phase: str, total: int, /) -> AbstractContextManager[Callable[[int], None]]:
        """Begin a phase of `total` steps; the callable given back is told the steps done since."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """What is replayed.

    Attributes:
        skip, jobs: First row of the window, and rows in it.
        factors: Overheads o.
        baseline: i of s(c) = o*c + i.
        tune: Whether the GA looks for the estimators' parameters on the 500 newest entries known before the
            window.
        generations, population: Of the GA; the paper used 100 and 50.
        seed: Of the GA.
        backtest_jobs: Rows before the window; the cutoff is chosen on those of them that had ended.
        record_jobs: Rows before the window on which the advisor's own rule earns its record.
        forecast: How the advisor's own forecasts are made.
        budgets: Budgets of hedged starts, multiples of the clairvoyant's core-hours; empty: none are
            replayed.
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
    record_jobs: int = 20_000
    forecast: ForecastOptions = field(default_factory=ForecastOptions)
    budgets: tuple[float, ...] = ()
    processes: int = 1


def replay_placement(table: JobTable, options: PlacementOptions, progress: Progress) -> PlacementReplay:
    """Replay a log.

    Args:
        table: The whole log, *every* row (``read_table(path, keep="all")``): the window is counted in rows.
        options: What is replayed.
        progress: Told how far it is.

    Raises:
        BadInput: The log ends before the window, or has no waits.
    """
    window = _judged(table, options)
    states = states_of(table)
    encoder = Encoder(start_of_log=table.start_of_log, utc_offset_seconds=table.utc_offset_seconds)
    past = _window(table, max(0, options.skip - options.backtest_jobs), options.skip)
    past = past[table.end[past] < table.submit[window[0]]]
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
    own = _forecasts(table, options, progress)
    recorded = len(own["wait"].rows) - len(window)
    decided = _Decided(table, own, cases, cutoff, actual, recorded, options)
    tasks = [(decided, factor) for factor in options.factors]
    with progress("deciding", len(tasks)) as tick:
        done = _Done(tick)
        rows = side_by_side(
            _row_of, tasks, [1] * len(tasks), processes=options.processes, tick=done.tell, what="factors"
        )
        done.tell("factors", len(tasks), len(tasks))
    epoch = table.submit[window] + table.start_of_log + table.utc_offset_seconds
    truths = {"wait": np.where(table.wait >= 0, table.wait, np.nan)[window], "run": table.run[window]}
    return PlacementReplay(
        jobs=len(window),
        quality={target: _own_quality(own[target], recorded, truths[target], epoch) for target in TARGETS},
        published_quality={
            target: _quality(estimates[target], judged, truths[target], epoch) for target in TARGETS
        },
        parameters=tuned,
        cutoff=cutoff,
        rows=tuple(rows),
        hedge_curve=_curve(table, own, recorded, options, progress) if options.budgets else (),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Decided:
    """What is the same for every factor."""

    table: JobTable
    own: dict[Target, ForecastColumns]
    cases: list[tuple[Job, SiteState, Estimates]]
    cutoff: ChosenCutoff
    actual: PastJobs
    recorded: int
    options: PlacementOptions


def _row_of(task: tuple[_Decided, float], tick: Tick | None) -> FactorRow:
    """One factor's row; it may be made in a process of its own."""
    decided, factor = task
    options, recorded = decided.options, decided.recorded
    placement = _published(factor, options)
    learned = Cutoff(scale=decided.cutoff.scale, decay=decided.cutoff.decay)
    sent = {
        "without_cutoff": _sent(decided.cases, placement.model_copy(update={"use_cutoff": False})),
        "with_cutoff": _sent(decided.cases, placement, learned),
        "advisor": sent_by_the_advisor(decided.table, decided.own, placement, recorded)[recorded:],
    }
    hedged = hedge_rows(decided.table, decided.own, recorded, factor, options.baseline, options.budgets)
    row = _factor_row(factor, sent, decided.actual.saved_seconds(factor, options.baseline), hedged)
    if tick is not None:
        tick("factors", 1, 1)
    return row


class _Done:
    """Turns how many are done into how many more."""

    def __init__(self, more: Callable[[int], None]) -> None:
        self._more, self._told = more, 0

    def tell(self, _what: str, done: int, total: int) -> None:
        """Tell those that are new."""
        if total > 1 and done > self._told:
            self._more(done - self._told)
            self._told = done


def _curve(
    table: JobTable,
    own: dict[Target, ForecastColumns],
    first: int,
    options: PlacementOptions,
    progress: Progress,
) -> tuple[HedgePoint, ...]:
    with progress("hedging with every budget", len(options.factors)) as tick:
        return hedge_curve(table, own, first, options.factors, options.baseline, tick)


def _forecasts(
    table: JobTable, options: PlacementOptions, progress: Progress
) -> dict[Target, ForecastColumns]:
    """Forecast the window and the jobs before it."""
    rows = _window(table, max(0, options.skip - options.record_jobs), options.skip + options.jobs)
    with progress("forecasting with distribution forests", len(rows)) as tick:
        return forecast_rows(table, rows, options.forecast, tick=tick)


def _judged(table: JobTable, options: PlacementOptions) -> Rows:
    """The rows of the window that ran; some of them have a wait."""
    window = _window(table, options.skip, options.skip + options.jobs)
    rows, where = f"rows {options.skip} to {options.skip + options.jobs}", f"trace {table.name!r}"
    if len(window) == 0:
        raise BadInput(
            f"{rows} of {len(table)} hold no job that ran",
            where=where,
            mend="Use a smaller --skip",
            code="replay.window",
        )
    if not np.any(table.wait[window] >= 0):
        raise BadInput(
            f"{rows} hold no wait: the time saved is not known",
            where=where,
            mend="Use a log with waits (column 3), or `advisor rehearse`, which simulates them",
            code="replay.no_waits",
        )
    return window


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
    """Parameters for the window, from the 500 newest entries known then (section V-A); else untuned ones."""
    start = untuned_of(EstimatorSettings(), encoder.schema)
    if not options.tune:
        return start, _shown(start, encoder)
    try:
        problem = TuningProblem.from_log(
            table, states, encoder, target, at=options.skip, entries=TEST_ENTRIES
        )
    except BadInput:  # too few jobs before the window, as in a short log
        return start, _shown(start, encoder)
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
        job = job_of(table, row)
        predicted = Estimates(wait=estimates["wait"].estimate(index), run=estimates["run"].estimate(index))
        yield job, SiteState(time=job.submit_time, cluster=states.state(row)), predicted


def _published(factor: float, options: PlacementOptions) -> PlacementSettings:
    return PlacementSettings(
        overhead_per_processor=factor,
        baseline=options.baseline,
        boot_seconds=0.0,
    )


def _factor_row(
    factor: float, sent: dict[str, Bools], saved: Floats, hedged: tuple[HedgeOutcome, ...]
) -> FactorRow:
    optimum = float(saved[saved > 0].sum())
    outcomes = {name: Outcome.of(jobs, saved, optimum) for name, jobs in sent.items()}
    return FactorRow(factor=factor, optimal=Outcome.of(saved > 0, saved, optimum), hedged=hedged, **outcomes)


def _sent(
    cases: Sequence[tuple[Job, SiteState, Estimates]],
    placement: PlacementSettings,
    cutoff: Cutoff | None = None,
) -> Bools:
    """Where the decision function sends the jobs: True for the cloud."""
    settings = Settings(placement=placement, cluster=ClusterSettings(policy="cunha2017"))
    return np.array(
        [
            advise(
                job, structs.replace(state, cutoff=cutoff), estimates, settings, advice_id="replay"
            ).placement
            is Placement.BURST
            for job, state, estimates in cases
        ]
    )


def _quality(columns: EstimateColumns, part: slice, truth: Floats, epoch: Floats) -> EstimatorQuality:
    return EstimatorQuality.of(
        seconds=columns.seconds[part],
        lower=columns.lower[part],
        upper=columns.upper[part],
        interval=columns.coverage,
        truth=truth,
        epoch=epoch,
    )


def _own_quality(columns: ForecastColumns, recorded: int, truth: Floats, epoch: Floats) -> EstimatorQuality:
    return EstimatorQuality.of(
        seconds=columns.mean[recorded:],
        lower=columns.lower[recorded:],
        upper=columns.upper[recorded:],
        interval=COVERAGE,
        truth=truth,
        epoch=epoch,
    )
