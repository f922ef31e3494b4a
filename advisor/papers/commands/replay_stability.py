"""``advisor replay stability``: Agarwal et al. (NSDI 2023), nodes that shrink or vanish."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking
from advisor.cli.tables import print_table
from advisor.cli.whatif import ProcessesOption
from advisor.papers.commands.choices import PlotOption, chosen
from advisor.parallel import cores


def stability(  # noqa: PLR0917 - typer passes options by name
    nodes: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="CSV node,time,cores, or the JSON of a spot trace (gzip too), or synthetic:CLUSTER:SEED "
            "(C1 to C8). Several files with commas: one cluster.",
        ),
    ],
    tasks: Annotated[
        str, typer.Option(help="uniform, gaussian, pareto, or a file: CSV job,submit,duration,cores; a log.")
    ] = "uniform",
    schedulers: Annotated[
        str | None, typer.Option(help="Rows wanted, comma-separated; all by default.")
    ] = None,
    load: Annotated[
        float, typer.Option(min=0.01, max=2.0, help="Share of the cores that drawn tasks keep busy.")
    ] = 0.6,
    error: Annotated[
        float, typer.Option(min=0.0, max=0.95, help="Estimated run times are off by up to this fraction.")
    ] = 0.0,
    longest: Annotated[float, typer.Option(min=120.0, max=1e7, help="Longest drawn task, seconds.")] = 4500.0,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the drawn tasks; the cluster's.")] = None,
    draws: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Draws of tasks a row is the mean of; default: 3 on a real trace."),
    ] = None,
    plot: PlotOption = None,
    processes: ProcessesOption = 0,
    output: FormatOption = Format.TEXT,
) -> None:
    """Run long tasks on nodes that change, with and without matching them to those that stay.

    A shrinking node ends the tasks that lose the least work in rows marked *, else the oldest, as published.
    """
    from advisor.papers.stability import stability as replay

    wanted = chosen(schedulers, tuple(replay.SCHEDULERS), "--schedulers")
    with ticking() as tick:
        result = replay.report(
            nodes,
            tasks=tasks,
            schedulers=wanted,
            load=load,
            estimate_error=error,
            longest=longest,
            seed=seed,
            draws=draws,
            processes=processes or cores(),
            progress=tick,
        )
    if plot is not None:
        from advisor.papers.stability.stability_plots import write_stability

        write_stability(plot, result)
    emit(result, output, lambda console: _show(console, result))


def _show(console: Console, result: dict[str, Any]) -> None:
    cluster = result["cluster"]
    headings = ("scheduler", "mean JCT", "p90 JCT", "nJCT", "p90", "wasted", "preempted")
    rows = [
        (
            row["scheduler"] + ("*" if row["gives_way"] == "least-lost" else ""),
            f"{row['mean_jct'] / 3600:.2f} h",
            f"{row['p90_jct'] / 3600:.2f} h",
            f"{row['geomean_njct']:.3f}",
            f"{100 * (row['p90_vs_capacity'] - 1):+.1f} %",
            f"{100 * row['wasted_work_share']:.1f} %",
            f"{row['preemptions']:,}",
        )
        for row in result["rows"]
    ]
    console.print(
        f"{result['nodes']}: {result['task_count']:,} tasks of {result['jobs']:,} jobs on "
        f"{cluster['nodes']} nodes, {cluster['changes']:,} changes in {cluster['days']:.1f} days",
        markup=False,
    )
    print_table(console, headings, rows, numbers=headings[1:])
    of_draws = f" Means of {result['draws']} draws of tasks." if result["draws"] > 1 else ""
    console.print(f"nJCT: geometric mean of job completion times over the capacity scheduler's.{of_draws}")
    console.print(
        "*: a shrinking node ends what loses the least work; in other rows the oldest, as published."
    )
    survival = result["survival"]
    if survival["auc"] is not None:
        console.print(
            f"Survival of 60 min: AUC {survival['auc']:.3f}, Brier {survival['brier']:.3f} "
            f"(base rate {survival['brier_base_rate']:.3f}, published way {survival['published_brier']:.3f})."
        )
