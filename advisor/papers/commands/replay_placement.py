"""``advisor replay placement``: Cunha et al., section V, on a log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from advisor.cli.output import Format, FormatOption, emit, stderr
from advisor.cli.progress import ticking
from advisor.cli.tables import print_table
from advisor.cli.traces import TraceOption
from advisor.cli.whatif import ProcessesOption
from advisor.decide.explanation.display import duration
from advisor.model.errors import BadInput
from advisor.papers.commands.choices import PlotOption
from advisor.parallel import usual_processes
from advisor.predict.knn.known import Target
from advisor.replay.traces import find_trace

if TYPE_CHECKING:
    from advisor.papers.placement.placement import PlacementOptions
    from advisor.papers.placement.placement_results import EstimatorQuality, Outcome, PlacementReplay

_SKIP = 10_000
"""Rows before the window of the paper's tables."""
_MONTH_JOBS = 500
WAYS = ("optimal", "without_cutoff", "with_cutoff", "advisor")


def placement(
    *,
    trace: TraceOption,
    skip: Annotated[
        int | None,
        typer.Option(min=0, help="Rows of the log before the window; 10,000, or half of a shorter log."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Rows of the window; those that never ran drop out.")
    ] = 10_000,
    factors: Annotated[
        str | None, typer.Option(help="Overheads o, a,b,c; default: the ten of the paper's tables.")
    ] = None,
    baseline: Annotated[float, typer.Option(help="i of s(c) = o*c + i.")] = 1.0,
    tune: Annotated[
        bool,
        typer.Option(help="Tune the estimators on the 500 newest entries that are known before the window."),
    ] = True,
    generations: Annotated[int, typer.Option(min=0, help="Generations of the search.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the search.")] = 1,
    hedge: Annotated[
        bool, typer.Option("--hedge", help="Replay hedged starts as well, and what each budget buys.")
    ] = False,
    budgets: Annotated[
        str | None,
        typer.Option(help="Hedges' budgets, multiples of the optimum's core-hours; default 0.5,1,1.5,2."),
    ] = None,
    plot: PlotOption = None,
    processes: ProcessesOption = 0,
    output: FormatOption = Format.TEXT,
) -> None:
    """Advise a log's jobs one by one and count the time that would have been saved.

    Only what was known at each submission is used. With the published 100 generations of tuning a trace takes
    about two minutes on a quiet core; --no-tune takes seconds and estimates worse.
    """
    trace = find_trace(trace)  # before what takes seconds to be imported
    from advisor.papers.placement.hedged import BUDGETS
    from advisor.papers.placement.placement import FACTORS, PlacementOptions, replay_placement
    from advisor.replay.sources import load_table

    begun = time.perf_counter()
    factor_list = FACTORS if factors is None else parse_factors(factors)
    baseline = _positive(baseline, "--baseline")
    budget_list = _budgets(budgets, BUDGETS) if hedge or budgets is not None else ()
    with phase("reading the log", 1):
        table = load_table(trace, keep="all")
    options = PlacementOptions(
        skip=min(_SKIP, len(table) // 2) if skip is None else skip,
        jobs=jobs,
        factors=factor_list,
        baseline=baseline,
        tune=tune,
        generations=generations,
        seed=seed,
        budgets=budget_list,
        processes=processes or usual_processes(len(table)),
    )
    found = replay_placement(table, options, phase)
    if tune and any(tuned.rmse_after is None for tuned in found.parameters.values()):
        stderr.print(
            f"The published estimators are not tuned: too few jobs are known before row {options.skip}. "
            "A larger --skip has them tuned.",
            markup=False,
            highlight=False,
        )
    seconds = time.perf_counter() - begun
    result = result_of(trace, options, found, seconds)
    if plot is not None:
        from advisor.papers.placement.placement_plots import write_placement

        write_placement(plot, result)
    emit(
        result,
        output,
        lambda console: draw(console, trace, found, seconds),
    )


def _budgets(text: str | None, default: tuple[float, ...]) -> tuple[float, ...]:
    return default if text is None else parse_factors(text, "--budgets")


def parse_factors(text: str, option: str = "--factors") -> tuple[float, ...]:
    """``0.01,0.05`` as numbers; each at least 0 and finite."""
    try:
        numbers = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = ()
    if not numbers or not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise BadInput(f"{text!r} is not a list of numbers", where=option, mend="Write it like 0.01,0.05,1")
    return numbers


def _positive(number: float, option: str) -> float:
    if not (math.isfinite(number) and number > 0):
        mend = "Give a number above 0, such as 1: a cloud core is as fast as one on-premise"
        raise BadInput(f"{number} is not above 0", where=option, mend=mend)
    return number


@contextmanager
def phase(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a phase on standard error: its progress, and how long it took at its end."""
    begun = time.perf_counter()
    done = 0
    with ticking(name) as tick:

        def advance(more: int) -> None:
            nonlocal done
            done += more
            tick(name, done, total)

        yield advance
    stderr.print(f"{name}: {time.perf_counter() - begun:.1f} s", markup=False, highlight=False)


def result_of(
    trace: str, options: PlacementOptions, found: PlacementReplay, seconds: float
) -> dict[str, Any]:
    """What ``advisor replay placement --format json`` prints."""
    return {
        "trace": Path(trace).name,
        "jobs": found.jobs,
        "estimator": _quality(found.quality),
        "published_estimator": _quality(found.published_quality),
        "parameters": {name: asdict(parameters) for name, parameters in found.parameters.items()},
        "cutoff": asdict(found.cutoff),
        "options": asdict(options),
        "rows": [
            {"factor": row.factor}
            | {way: asdict(getattr(row, way)) for way in WAYS}
            | ({"hedged": [asdict(one) for one in row.hedged]} if row.hedged else {})
            for row in found.rows
        ],
        "seconds": seconds,
    } | ({"hedge_curve": [asdict(point) for point in found.hedge_curve]} if found.hedge_curve else {})


def _quality(qualities: Mapping[Target, EstimatorQuality]) -> dict[str, Any]:
    wait, run = qualities["wait"], qualities["run"]
    return {
        "wait_mae": wait.mean_absolute_error,
        "run_mae": run.mean_absolute_error,
        "wait_interval_coverage": wait.interval_coverage,
        "run_interval_coverage": run.interval_coverage,
        "interval": wait.interval,
        "wait_without_estimate": wait.without_estimate,
        "run_without_estimate": run.without_estimate,
        "wait_interval_mean_width": wait.interval_mean_width,
        "run_interval_mean_width": run.interval_mean_width,
        "wait_interval_score": wait.interval_score,
        "run_interval_score": run.interval_score,
        "wait_interval_months": [asdict(month) for month in wait.months],
        "run_interval_months": [asdict(month) for month in run.months],
    }


def _draw_hedges(console: Console, found: PlacementReplay) -> None:
    """Draw what hedged starts save, by overhead and budget."""
    headings = ["o", *(f"budget {one.budget:g}" for one in found.rows[0].hedged)]
    rows = []
    for row in found.rows:
        cells = (
            "-"
            if one.fraction_of_optimal is None or one.core_hours_vs_optimal is None
            else f"{one.fraction_of_optimal:.2f} ({one.core_hours_vs_optimal:.2f})"
            for one in row.hedged
        )
        rows.append((f"{row.factor:g}", *cells))
    console.print(
        "Hedged starts: share of the optimum's saved time (core-hours spent, as a multiple of the optimum's)",
    )
    print_table(console, headings, rows, numbers=headings)


def _worst_month(quality: EstimatorQuality) -> str:
    """The month with the lowest coverage, of those with jobs enough; empty where there is only one."""
    months = [month for month in quality.months if month.jobs >= _MONTH_JOBS]
    if len(months) < 2:
        return ""
    worst = min(months, key=lambda month: month.coverage)
    return f" ({worst.coverage:.1%} in {worst.month})"


def _cell(outcome: Outcome, way: str) -> str:
    text = f"{outcome.cloud_jobs:,}  {outcome.saved_seconds / 1e6:.1f}"
    if way == "optimal":
        return text
    fraction = outcome.fraction_of_optimal
    return f"{text}  {'-' if fraction is None else f'{fraction:.2f}'}"


def draw(console: Console, trace: str, found: PlacementReplay, seconds: float) -> None:
    """Draw the paper's table, in millions of seconds and fractions of the optimum."""
    console.print(f"{Path(trace).name}: {found.jobs:,} jobs", markup=False)
    headings = ("o", *(way.replace("_", " ") for way in WAYS))
    rows = [(f"{row.factor:g}", *(_cell(getattr(row, way), way) for way in WAYS)) for row in found.rows]
    print_table(console, headings, rows, numbers=headings)
    console.print("Jobs sent to the cloud; saved, millions of seconds; share of the optimum")
    if found.hedge_curve:
        _draw_hedges(console, found)
    for estimator, qualities in (("advisor", found.quality), ("published", found.published_quality)):
        for target, quality in qualities.items():
            console.print(f"{estimator} {target}: {_quality_in_words(quality)}")
    console.print(
        f"cutoff: a standard deviation of {duration(math.sqrt(found.cutoff.scale))} * "
        f"exp(-{found.cutoff.decay / 2:g}*o*c), chosen on the jobs before the window; {seconds:.1f} s"
    )


def _quality_in_words(quality: EstimatorQuality) -> str:
    if math.isnan(quality.mean_absolute_error):
        return "no estimates: too short a log"
    return (
        f"mean absolute error {quality.mean_absolute_error:,.0f} s, "
        f"{quality.interval_coverage:.1%} of jobs within the {quality.interval:.0%} interval"
        f"{_worst_month(quality)}, "
        f"{quality.without_estimate:.1%} without an estimate"
    )
