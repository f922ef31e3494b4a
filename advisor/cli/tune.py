"""``advisor tune``: tune the parameters of the published rule's estimators on the history."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit, stderr
from advisor.cli.progress import ticking, working
from advisor.cli.tables import print_table
from advisor.replay.traces import find_trace

if TYPE_CHECKING:
    from rich.console import Console

    from advisor.history.models import ModelStore
    from advisor.history.tuning_backtest import Judged
    from advisor.model.settings import Settings
    from advisor.model.table import JobTable
    from advisor.predict.knn.features import Encoder
    from advisor.predict.knn.fitness import Target, TuningProblem
    from advisor.predict.knn.parameters import KnnParameters
    from advisor.predict.knn.tracker import StateColumns
    from advisor.predict.knn.tuning import GeneticSettings, TuningResult, TuningState


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tune")(tune)


def tune(
    *,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="Tune on this log (.swf, .swf.gz) instead of the history."),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option("--at", min=1, help="Row of the present: only what was known then is used."),
    ] = None,
    entries: Annotated[int, typer.Option(min=10, help="Jobs on which parameters are judged.")] = 500,
    population: Annotated[int, typer.Option(min=4, help="Individuals per generation.")] = 50,
    generations: Annotated[int, typer.Option(min=0, help="Generations of the genetic algorithm.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")] = 1,
    models: Annotated[
        Path | None, typer.Option(help="Folder for the result; paths.models by default.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore the checkpoint of a stopped run.")] = False,
    weekly: Annotated[
        bool,
        typer.Option(
            "--weekly",
            help="As the weekly timer runs it: judge on the newest jobs, which are not used for tuning; keep "
            "the old parameters unless the new ones are better; exit with 0 on a short history.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing, neither parameters nor checkpoint.")
    ] = False,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Tune k, omega, s and the weights by a genetic algorithm (Cunha et al., section IV-A).

    A run that was stopped continues where it was when it is started again on the same jobs.
    """
    from advisor.history.models import ModelStore
    from advisor.history.parameters import TARGETS, save_parameters
    from advisor.history.tuning_backtest import judge, row_before_newest
    from advisor.predict.knn.features import CUNHA_TABLE_I
    from advisor.predict.knn.tuning import GeneticSettings

    began = time.monotonic()
    trace = None if trace is None else Path(find_trace(str(trace)))
    settings = settings_of(config)
    store = None if dry_run else ModelStore(folder=models or settings.paths.models)
    if weekly:
        os.nice(10)  # the submit server on the same host comes first
    table = _table(trace, settings)
    if weekly:
        least = max(settings.estimator.min_finished_jobs, 3 * entries)
        if len(table) < least:
            told = {"version": None, "jobs": len(table), "reason": "too-few-jobs", "least_jobs": least}
            emit(told, output, lambda console: console.print(f"Not tuned: {len(table)} of {least} jobs."))
            return
        at = row_before_newest(table, entries)
    genetic = GeneticSettings(population=population, generations=generations)
    states, encoder = _states_and_encoder(table, settings)
    problems = _problems(table, states, encoder, at, entries)
    results = {
        target: _search(problems[target], target, genetic, seed, settings, store, fresh=fresh)
        for target in TARGETS
    }
    version = cutoff = None
    best = {target: result.parameters for target, result in results.items()}
    judged: dict[Target, Judged] = {}
    if weekly:
        current = _in_force(store, problems, settings)
        judged = judge(table, states, encoder, best, current, entries=entries)
        best = {target: (best if judged[target].is_better else current)[target] for target in TARGETS}
        cutoff = _weekly_cutoff(store, table, states, encoder, best, settings, entries=entries)
    if store is not None and (not weekly or any(one.is_better for one in judged.values())):
        gains = {target: _gain(result) for target, result in results.items()}
        source = {"history": table.name, "jobs": len(table), "at": at, "seed": seed, "rmse": gains}
        version = save_parameters(store, best, CUNHA_TABLE_I, source)
    summary = {
        "history": table.name,
        "jobs": len(table),
        "entries": entries,
        **asdict(genetic),
        "targets": {target: _described(result) for target, result in results.items()},
        "backtest": {target: asdict(one) for target, one in judged.items()} or None,
        "cutoff": cutoff,
        "version": version,
        "seconds": time.monotonic() - began,
    }
    emit(summary, output, lambda console: _show(console, summary))


def _weekly_cutoff(
    store: ModelStore | None,
    table: JobTable,
    states: StateColumns,
    encoder: Encoder,
    parameters: Mapping[Target, KnnParameters],
    settings: Settings,
    *,
    entries: int,
) -> dict[str, Any] | None:
    """Choose the published rule's cutoff anew; put it in force unless it is worse than the current one."""
    import msgspec

    from advisor.history.models import ModelStore
    from advisor.history.parameters import load_cutoff, save_cutoff
    from advisor.replay.cutoff_backtest import backtest_cutoff

    placement = settings.placement
    if not placement.use_cutoff or placement.cutoff_minutes:
        return None  # switched off, or set by hand
    in_force = store if store is not None else ModelStore(folder=settings.paths.models)
    current = placement.cutoff_in_force(load_cutoff(in_force))
    judged = backtest_cutoff(table, states, encoder, parameters, placement, current, entries=entries)
    if judged is None:
        return None
    told: dict[str, Any] = msgspec.to_builtins(judged) | {"is_promoted": judged.is_promoted}
    if judged.is_promoted and store is not None:
        save_cutoff(store, judged.candidate, told | {"history": table.name})
    return told


def _table(trace: Path | None, settings: Settings) -> JobTable:
    if trace is not None:
        from advisor.history.swf import read_table

        what = f"reading {trace.name}"
        with ticking(what) as tick:
            return read_table(trace, keep="all", progress=lambda done, total: tick(what, done, total))
    from advisor.history.columns import on_premise
    from advisor.history.store import HistoryStore

    with HistoryStore(settings.paths.history_url) as store, working("reading the history"):
        table = store.table(utc_offset_seconds=settings.cluster.utc_offset_seconds)
    return on_premise(table, settings.cluster.burst_partition)  # as `advisor control` learns them


def _states_and_encoder(table: JobTable, settings: Settings) -> tuple[StateColumns, Encoder]:
    from advisor.predict.knn.features import Encoder
    from advisor.predict.knn.tracker import states_of

    offset = table.utc_offset_seconds or settings.cluster.utc_offset_seconds
    return states_of(table), Encoder(start_of_log=table.start_of_log, utc_offset_seconds=offset)


def _in_force(
    store: ModelStore | None, problems: dict[Target, TuningProblem], settings: Settings
) -> dict[Target, KnnParameters]:
    from advisor.history.models import ModelStore
    from advisor.history.parameters import load_parameters, untuned_of
    from advisor.predict.knn.features import CUNHA_TABLE_I

    chosen = store if store is not None else ModelStore(folder=settings.paths.models)
    return load_parameters(chosen, CUNHA_TABLE_I, untuned_of(settings.estimator, problems["wait"].schema))


def _problems(
    table: JobTable, states: StateColumns, encoder: Encoder, at: int | None, entries: int
) -> dict[Target, TuningProblem]:
    from advisor.history.parameters import TARGETS
    from advisor.predict.knn.fitness import TuningProblem

    return {
        target: TuningProblem.from_log(table, states, encoder, target, at=at, entries=entries)
        for target in TARGETS
    }


def _search(
    problem: TuningProblem,
    target: Target,
    genetic: GeneticSettings,
    seed: int,
    settings: Settings,
    store: ModelStore | None,
    *,
    fresh: bool,
) -> TuningResult:
    """Tune one estimator, with a bar and a checkpoint after each generation."""
    import numpy as np

    from advisor.history.parameters import TARGETS, load_checkpoint, save_checkpoint, untuned_of
    from advisor.predict.knn import tuning

    start = untuned_of(settings.estimator, problem.schema)
    job = {
        "problem": problem.fingerprint,
        "seed": seed,
        "start": start.chromosome.tolist(),
        **asdict(genetic),
    }
    resume = None if store is None or fresh else load_checkpoint(store, target, job)
    if resume is not None:
        stderr.print(f"{target}: continuing after generation {resume.generation}", markup=False)
    with ticking(f"tuning {target}") as tick:

        def tell(state: TuningState) -> None:
            if store is not None:
                save_checkpoint(store, target, state, job)
            tick(f"tuning {target}", state.generation + 1, genetic.generations + 1)

        return tuning.tune(
            problem,
            generator=np.random.default_rng([seed, TARGETS.index(target)]),
            start=start,
            settings=genetic,
            resume=resume,
            progress=tell,
        )


def _gain(result: TuningResult) -> dict[str, float]:
    return {"before": result.rmse_before, "after": result.rmse_after}


def _described(result: TuningResult) -> dict[str, Any]:
    from advisor.predict.knn.features import CUNHA_TABLE_I

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
    if found := summary["cutoff"]:
        saved, before = found["candidate_saved_seconds"], found["current_saved_seconds"]
        minutes = math.sqrt(found["candidate"]["scale"]) / 60.0
        promoted = "now in force" if found["is_promoted"] else "worse, not used"
        console.print(
            f"Cutoff of the published rule, chosen on {found['chosen_on_jobs']} earlier jobs: "
            f"±{minutes:,.0f} min of uncertainty where the cloud costs nothing. It would have saved "
            f"{saved / 3600.0:,.1f} h on the newest {found['judged_on_jobs']} jobs, the current one "
            f"{before / 3600.0:,.1f} h: {promoted}.",
            markup=False,
        )
    version = summary["version"]
    console.print(
        "Nothing was written." if version is None else f"Parameters {version} are in force.", markup=False
    )
