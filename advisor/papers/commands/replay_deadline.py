"""``advisor replay deadline``: jobs with a deadline between spot and on-demand, on spot traces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking
from advisor.cli.tables import percent, print_table


def deadline(
    *,
    spot: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Spot instances alive at each tick (JSON: metadata.gap_seconds, data); may be repeated.",
        ),
    ],
    hours: Annotated[float, typer.Option(min=0.1, max=1000.0, help="Run time of each job.")] = 48.0,
    fraction: Annotated[
        float, typer.Option(min=0.05, max=0.999, help="Run time over the time to the deadline.")
    ] = 0.8,
    changeover: Annotated[
        float, typer.Option(min=0.0, max=10.0, help="Hours without work at each start.")
    ] = 0.2,
    nodes: Annotated[int, typer.Option(min=1, help="Instances that a job needs.")] = 1,
    spot_price: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Price of spot over that of on-demand.")
    ] = 0.3,
    starts: Annotated[int, typer.Option(min=1, max=10_000, help="Jobs of each trace.")] = 24,
    history: Annotated[
        float, typer.Option(min=0.0, help="Hours of each trace that are only learned from.")
    ] = 72.0,
    output: FormatOption = Format.TEXT,
) -> None:
    """Run jobs with a deadline on spot where that is in time, by each policy, on the same traces and starts.

    Greedy and Uniform Progress are those of "Can't Be Late" (NSDI 2024). The advisor's rule plans by the
    survival of spot in the trace before each job. The omniscient plan knows the whole trace: no policy is
    cheaper.
    """
    from advisor.papers.deadlines.deadlines import DeadlineOptions, replay_deadlines

    options = DeadlineOptions(
        hours=hours,
        fraction=fraction,
        changeover_hours=changeover,
        nodes=nodes,
        spot_price=spot_price,
        starts=starts,
        history_hours=history,
    )
    with ticking("reading") as tick:
        result = replay_deadlines(spot, options, tick)
    emit(result, output, lambda console: _show(console, result))


def _show(console: Console, result: Mapping[str, Any]) -> None:
    console.print(
        Text(
            f"Jobs of {result['hours']:g} h, due {result['hours'] / result['fraction']:g} h after "
            f"their begin, changeover {result['changeover_hours']:g} h; an hour on spot costs "
            f"{result['spot_price']:g} of one on-demand."
        )
    )
    for row in (*result["traces"], {"trace": "all traces", **result["all"]}):
        spot = (
            f", spot {percent(row['available_share'], '.0f')} of the time" if "available_share" in row else ""
        )
        console.print(Text(f"\n{row['trace']}: {row['jobs']} jobs{spot}"))
        headings = ("policy", "on-demand h", "spot h", "cost", "missed", "way", "way by cost")
        cells = [
            (
                name.replace("_", " "),
                f"{policy['on_demand_hours']:.2f}",
                f"{policy['spot_hours']:.2f}",
                f"{policy['cost']:.2f}",
                str(policy["missed"]),
                percent(policy["way_by_on_demand_hours"], ".0f"),
                percent(policy["way_by_cost"], ".0f"),
            )
            for name, policy in row["policies"].items()
        ]
        print_table(console, headings, cells, numbers=headings[1:])
    console.print(
        Text(
            "\nMeans of a job; cost in hours on-demand. Way: from Uniform Progress (0 %) to the omniscient "
            f"plan (100 %), by on-demand hours. {result['seconds']:.0f} s."
        )
    )
