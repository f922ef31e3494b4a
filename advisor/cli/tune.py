"""``advisor tune``: tune the parameters of the published rule's estimators on the history."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import typer
from rich.console import Console

from advisor.cli import own_jobs
from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking, working
from advisor.cli.tables import print_table
from advisor.model.table import JobTable
from advisor.predict.knn.features import CUNHA_TABLE_I, Encoder
from advisor.predict.knn.known import TARGETS, Target
from advisor.predict.knn.tracker import StateColumns, states_of
from advisor.replay.traces import find_trace

if TYPE_CHECKING:
    from advisor.history.models import ModelStore
    from advisor.model.settings import Settings
    from advisor.predict.knn.fitness import TuningProblem
    from advisor.predict.knn.parameters import KnnParameters
    from advisor.predict.knn.tuning import GeneticSettings, TuningResult


TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", help="Tune on this log (.swf, .swf.gz) instead of the history."),
]
PresentOption = Annotated[
    int | None,
    typer.Option("--at", min=1, help="Row of the present: only what was known then is used."),
]
WeeklyOption = Annotated[
    bool,
    typer.Option(
        "--weekly",
        help="As the weekly timer runs it: judge on the newest jobs, which are not used for tuning; keep "
        "the old parameters unless the new ones are better; exit with 0 on a short history.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """How to tune, and where the result is stored (None: nowhere)."""

    settings: Settings
    store: ModelStore | None
    genetic: GeneticSettings
    entries: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """A log, the state of its cluster at each submission, and the encoder of its jobs."""

    table: JobTable
    states: StateColumns
    encoder: Encoder


def tune(
    *,
    trace: TraceOption = None,
    at: PresentOption = None,
    entries: Annotated[int, typer.Option(min=10, help="Jobs on which parameters are judged.")] = 500,
    population: Annotated[int, typer.Option(min=4, help="Individuals per generation.")] = 50,
    generations: Annotated[int, typer.Option(min=0, help="Generations of the genetic algorithm.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")] = 1,
    models: Annotated[
        Path | None, typer.Option(help="Folder for the result; by default models of paths.state.")
    ] = None,
    weekly: WeeklyOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Put nothing in force.")] = False,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Tune k, omega, s and the weights by a genetic algorithm (Cunha et al., section IV-A)."""
    from advisor.history.models import ModelStore
    from advisor.predict.knn.tuning import GeneticSettings
    from advisor.service.learn.training_record import noting

    began = time.monotonic()
    trace = None if trace is None else Path(find_trace(str(trace)))
    settings = settings_of(config)
    task = _Task(
        settings=settings,
        store=None if dry_run else ModelStore(folder=models or settings.paths.models),
        genetic=GeneticSettings(population=population, generations=generations),
        entries=entries,
        seed=seed,
    )
    if weekly and not dry_run:
        with noting(settings.paths.state, "tune --weekly"):
            summary = _tuned_weekly(task, trace)
    else:
        summary = _tuned_weekly(task, trace) if weekly else _tuned(task, trace, at)
    summary["seconds"] = time.monotonic() - began
    emit(summary, output, lambda console: _show(console, summary))


def _tuned(task: _Task, trace: Path | None, at: int | None) -> dict[str, Any]:
    """Tune and store the parameters; the summary."""
    log = _log_of(_table(trace, task.settings), task.settings)
    results = _results(_problems(log, at, task.entries), task)
    best = {target: result.parameters for target, result in results.items()}
    return _summary(task, log, results) | {"version": _saved(task, log, at, results, best)}


def _tuned_weekly(task: _Task, trace: Path | None) -> dict[str, Any]:
    """Tune without the newest jobs; put in force what is better on them; the summary."""
    from advisor.history.parameters import CUTOFF_KIND, PARAMETERS_KIND
    from advisor.history.tuning_backtest import judge, row_before_newest

    os.nice(10)  # the submit server on the same host comes first
    if task.store is not None:
        for kind in (PARAMETERS_KIND, CUTOFF_KIND):
            task.store.take_out_damaged(kind)
    table = _table(trace, task.settings)
    least = max(task.settings.estimator.min_finished_jobs, 3 * task.entries)
    if len(table) < least:
        return {"version": None, "jobs": len(table), "reason": "too-few-jobs", "least_jobs": least}
    at = row_before_newest(table, task.entries)
    log = _log_of(table, task.settings)
    problems = _problems(log, at, task.entries)
    results = _results(problems, task)
    best = {target: result.parameters for target, result in results.items()}
    current = _in_force(task.store, problems, task.settings)
    judged = judge(table, log.states, log.encoder, best, current, entries=task.entries)
    best = {target: (best if judged[target].is_better else current)[target] for target in TARGETS}
    cutoff = _weekly_cutoff(task, log, best)
    is_better = any(one.is_better for one in judged.values())
    return _summary(task, log, results) | {
        "backtest": {target: asdict(one) for target, one in judged.items()},
        "cutoff": cutoff,
        "version": _saved(task, log, at, results, best) if is_better else None,
    }


def _saved(
    task: _Task,
    log: _Log,
    at: int | None,
    results: Mapping[Target, TuningResult],
    parameters: Mapping[Target, KnnParameters],
) -> str | None:
    """Put parameters in force; return their version, or None if nothing is to be stored."""
    from advisor.history.parameters import save_parameters

    if task.store is None:
        return None
    gains = {
        target: {"before": result.rmse_before, "after": result.rmse_after}
        for target, result in results.items()
    }
    source = {
        "history": log.table.name,
        "jobs": len(log.table),
        "at": at,
        "seed": task.seed,
        "rmse": gains,
    }
    return save_parameters(task.store, parameters, CUNHA_TABLE_I, source)


def _summary(task: _Task, log: _Log, results: Mapping[Target, TuningResult]) -> dict[str, Any]:
    return {
        "history": log.table.name,
        "jobs": len(log.table),
        "entries": task.entries,
        **asdict(task.genetic),
        "targets": {target: _described(result) for target, result in results.items()},
        "backtest": None,
        "cutoff": None,
        "version": None,
    }


def _weekly_cutoff(
    task: _Task, log: _Log, parameters: Mapping[Target, KnnParameters]
) -> dict[str, Any] | None:
    """Choose the published rule's cutoff anew; put it in force unless it is worse than the current one."""
    from advisor.history.models import ModelStore
    from advisor.history.parameters import load_cutoff, save_cutoff
    from advisor.replay.cutoff_backtest import backtest_cutoff

    placement = task.settings.placement
    if not placement.use_cutoff or placement.cutoff_minutes:
        return None  # switched off, or set by hand
    in_force = task.store or ModelStore(folder=task.settings.paths.models)
    current = placement.cutoff_in_force(load_cutoff(in_force))
    judged = backtest_cutoff(
        log.table, log.states, log.encoder, parameters, placement, current, entries=task.entries
    )
    if judged is None:
        return None
    told: dict[str, Any] = msgspec.to_builtins(judged) | {"is_promoted": judged.is_promoted}
    version = None
    if judged.is_promoted and task.store is not None:
        version = save_cutoff(task.store, judged.candidate, told | {"history": log.table.name})
    return told | {"version": version}


def _table(trace: Path | None, settings: Settings) -> JobTable:
    if trace is not None:
        from advisor.replay.sources import load_table

        what = f"reading {trace.name}"
        with ticking(what) as tick:
            return load_table(trace, keep="all", progress=lambda done, total: tick(what, done, total))
    from advisor.history.columns import on_premise
    from advisor.history.store import HistoryStore

    with HistoryStore(settings.history_url) as store, working("reading the history"):
        since = store.end_of_newest(own_jobs.NEWEST_JOBS)  # memory, as there
        table = store.table(since, utc_offset_seconds=settings.cluster.utc_offset_seconds)
    return on_premise(table, settings.cluster.burst_partition)  # as `advisor control` learns them


def _log_of(table: JobTable, settings: Settings) -> _Log:
    offset = table.utc_offset_seconds or settings.cluster.utc_offset_seconds
    encoder = Encoder(start_of_log=table.start_of_log, utc_offset_seconds=offset)
    return _Log(table=table, states=states_of(table), encoder=encoder)


def _in_force(
    store: ModelStore | None, problems: dict[Target, TuningProblem], settings: Settings
) -> dict[Target, KnnParameters]:
    from advisor.history.models import ModelStore
    from advisor.history.parameters import load_parameters, untuned_of

    chosen = store if store is not None else ModelStore(folder=settings.paths.models)
    return load_parameters(chosen, CUNHA_TABLE_I, untuned_of(settings.estimator, problems["wait"].schema))


def _problems(log: _Log, at: int | None, entries: int) -> dict[Target, TuningProblem]:
    from advisor.predict.knn.fitness import TuningProblem

    return {
        target: TuningProblem.from_log(log.table, log.states, log.encoder, target, at=at, entries=entries)
        for target in TARGETS
    }


def _results(problems: Mapping[Target, TuningProblem], task: _Task) -> dict[Target, TuningResult]:
    from advisor.history.parameters import PARAMETERS_KIND

    if task.store is not None:
        task.store.prepare(PARAMETERS_KIND)
    return {target: _search(problem, target, task) for target, problem in problems.items()}


def _search(problem: TuningProblem, target: Target, task: _Task) -> TuningResult:
    """Tune one estimator, with a bar."""
    from advisor.history.parameters import untuned_of
    from advisor.predict.knn import tuning

    what = f"tuning {target}"
    with ticking(what) as tick:
        return tuning.tune(
            problem,
            generator=np.random.default_rng([task.seed, TARGETS.index(target)]),
            start=untuned_of(task.settings.estimator, problem.schema),
            settings=task.genetic,
            progress=lambda state: tick(what, state.generation + 1, task.genetic.generations + 1),
        )


def _described(result: TuningResult) -> dict[str, Any]:
    best = result.parameters
    return {
        "rmse_before": result.rmse_before,
        "rmse_after": result.rmse_after,
        "k": best.k,
        "omega": best.omega,
        "s": best.s,
        "weights": dict(zip(CUNHA_TABLE_I.features, best.weights, strict=True)),
        "history": result.state.history,
    }


def _show(console: Console, summary: dict[str, Any]) -> None:
    if "least_jobs" in summary:
        console.print(f"Not tuned: {summary['jobs']} of {summary['least_jobs']} jobs.")
        return
    targets = list(summary["targets"])
    found = list(summary["targets"].values())
    rows = [
        ("RMSE before, s", *(f"{one['rmse_before']:,.0f}" for one in found)),
        ("RMSE after, s", *(f"{one['rmse_after']:,.0f}" for one in found)),
        ("k, neighbours", *(str(one["k"]) for one in found)),
        ("omega", *(f"{one['omega']:.3f}" for one in found)),
        ("s, jobs", *(f"{one['s']:,}" for one in found)),
    ]
    rows += [
        (f"weight of {feature}", *(f"{one['weights'][feature]:.3f}" for one in found))
        for feature in found[0]["weights"]
    ]
    console.print(f"{summary['history']}: {summary['jobs']:,} jobs", markup=False)
    print_table(console, ("", *targets), rows, numbers=targets)
    for target, one in (summary["backtest"] or {}).items():
        better = "better" if one["candidate_rmse"] < one["current_rmse"] else "not better, not used"
        console.print(
            f"{target} on the newest {summary['entries']} jobs: RMSE {one['candidate_rmse']:,.0f} s, in "
            f"force {one['current_rmse']:,.0f} s: {better}.",
            markup=False,
        )
    if cutoff := summary["cutoff"]:
        saved, before = cutoff["candidate_saved_seconds"], cutoff["current_saved_seconds"]
        minutes = math.sqrt(cutoff["candidate"]["scale"]) / 60.0
        promoted = (
            "now in force"
            if cutoff["version"]
            else "no worse"
            if cutoff["is_promoted"]
            else "worse, not used"
        )
        console.print(
            f"Cutoff of the published rule, chosen on {cutoff['chosen_on_jobs']} earlier jobs: "
            f"±{minutes:,.0f} min of uncertainty where the cloud costs nothing. It would have saved "
            f"{saved / 3600.0:,.1f} h on the newest {cutoff['judged_on_jobs']} jobs, the current one "
            f"{before / 3600.0:,.1f} h: {promoted}.",
            markup=False,
        )
    if version := summary["version"]:
        console.print(f"Parameters {version} are in force.", markup=False)
    elif not (cutoff and cutoff["version"]):
        console.print("Nothing was written.")
