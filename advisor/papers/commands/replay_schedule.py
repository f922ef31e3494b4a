"""``advisor replay schedule``: Zrigui et al., section 6, on a log."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking
from advisor.cli.tables import print_table
from advisor.cli.traces import TraceOption
from advisor.cli.whatif import ProcessesOption
from advisor.papers.commands.choices import PlotOption, chosen
from advisor.parallel import usual_processes
from advisor.replay.traces import find_trace


def schedule(
    trace: TraceOption,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Size of the machine; the log's by default.")
    ] = None,
    policies: Annotated[str | None, typer.Option(help="Among fcfs,wfp,spf,saf; all by default.")] = None,
    variants: Annotated[
        str | None,
        typer.Option(
            help="Among those of section 6 (default: all six; `classification-idempotent` by rules of ours), "
            "and `probe`."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the predictions that are flipped.")] = 1,
    plot: PlotOption = None,
    processes: ProcessesOption = 0,
    output: FormatOption = Format.TEXT,
) -> None:
    """Schedule a log under each order, with and without job classes, on the simulated cluster."""
    trace = find_trace(trace)  # before what takes seconds to be imported
    from advisor.papers.schedule import schedule as replay
    from advisor.replay.sources import load_table

    orders = chosen(policies, tuple(replay.ORDERS), "--policies")
    known = (*replay.VARIANTS, replay.PROBE)
    wanted = replay.VARIANTS if variants is None else chosen(variants, known, "--variants")
    with ticking() as tick:
        table = load_table(trace, progress=lambda done, total: tick("reading", done, total))
        result = replay.report(
            table,
            cores=cores,
            policies=orders,
            variants=wanted,
            seed=seed,
            processes=processes or usual_processes(len(table)),
            progress=tick,
        )
    if plot is not None:
        from advisor.papers.schedule.schedule_plots import write_schedule

        write_schedule(plot, result)
    emit(result, output, lambda console: _show(console, result))


def _show(console: Console, result: dict[str, Any]) -> None:
    title = f"{result['trace']}: {result['jobs']:,} jobs on {result['cores']:,} processors"
    headings = (
        "order",
        "variant",
        "slowdown",
        "better",
        "small",
        "large",
        "mean wait",
        "max wait",
        "restarts",
    )
    rows: list[tuple[str, ...]] = []
    for row in result["rows"]:
        better = row["improvement_over_easy_fcfs"]
        cells = (
            row["policy"],
            row["variant"],
            f"{row['mean_bounded_slowdown']:.2f}",
            "-" if better is None else f"{100 * better:+.1f} %",
            f"{row['small_mean_bounded_slowdown']:.2f}",
            f"{row['large_mean_bounded_slowdown']:.2f}",
            f"{row['mean_wait'] / 3600:.2f} h",
            f"{row['max_wait'] / 86400:.1f} d",
            f"{100 * row['restarted_share']:.1f} %",
        )
        rows.append(cells)
    console.print(title, markup=False)
    print_table(console, headings, rows, numbers=headings[2:])
    if without := result["jobs_without_request"]:
        console.print(
            f"{without:,} jobs requested no time: planned with their true run time, which no scheduler knows."
        )
    console.print(
        "Mean bounded slowdown, tau 60 s; better: than first come, first served. "
        f"{result['jobs_per_second']:,.0f} jobs/s."
    )
