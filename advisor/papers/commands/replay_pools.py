"""``advisor replay pools``: jobs on spot traces of several zones and types, by who chooses the pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking
from advisor.cli.tables import percent, print_table
from advisor.model.errors import BadInput

SpotOption = Annotated[
    list[Path],
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        help="Spot instances at each tick (JSON: metadata.gap_seconds, data); repeated. Files whose "
        "names differ in the zone only are zones of one type.",
    ),
]
PricesOption = Annotated[
    Path,
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        help="History of spot prices (CSV: timestamp, az, instance_type, price_usd_per_hour).",
    ),
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TYPE=USD",
        help="An instance type of the price history and its on-demand price; repeated. Default: types of "
        "16 vCPU in us-east-1, 2021.",
    ),
]
ErrorOption = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=3.0,
        help="Error of the run-time forecasts: standard deviation of log(forecast / actual).",
    ),
]


def pools(
    *,
    spot: SpotOption,
    prices: PricesOption,
    kinds: TypesOption = None,
    shortest: Annotated[float, typer.Option(min=0.05, max=1e4, help="Hours of the shortest job.")] = 1.0,
    longest: Annotated[float, typer.Option(min=0.05, max=1e4, help="Hours of the longest job.")] = 24.0,
    jobs: Annotated[float, typer.Option(min=0.01, max=100.0, help="Jobs per hour.")] = 2.0,
    error: ErrorOption = 0.5,
    draws: Annotated[int, typer.Option(min=1, max=1000, help="Draws of types, zones and jobs.")] = 6,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random draws.")] = 1,
    output: FormatOption = Format.TEXT,
) -> None:
    """Run jobs on spot by the rule that chooses pools live, and on the cheapest single instance type.

    An instance that is taken back costs a job all it has done there; after two losses it goes on-demand.
    Survival is learned from the instances that the policy itself has launched until then.
    """
    from advisor.papers.pools.pools import USUAL_TYPES, PoolOptions, replay_pools

    options = PoolOptions(
        on_demand=_on_demand(kinds or USUAL_TYPES),
        shortest_hours=shortest,
        longest_hours=max(shortest, longest),
        jobs_per_hour=jobs,
        error=error,
        draws=draws,
        seed=seed,
    )
    with ticking("reading") as tick:
        result = replay_pools(spot, prices, options, tick)
    emit(result, output, lambda console: _show(console, result))


def _on_demand(words: Sequence[str]) -> dict[str, float]:
    found = {}
    for word in words:
        name, _, price = word.partition("=")
        try:
            found[name] = float(price)
        except ValueError:
            found[name] = 0.0
        if not 0.0 < found[name] < float("inf"):
            raise BadInput(
                f"{word!r} has no price", where="--type", mend="Write c5.4xlarge=0.68", code="pools.types"
            )
    return found


def _show(console: Console, result: Mapping[str, Any]) -> None:
    kinds = "; ".join(f"{name}: {len(files)} zones" for name, files in result["groups"].items())
    console.print(Text(f"{kinds}. Jobs of {result['shortest_hours']:g} to {result['longest_hours']:g} h."))
    headings = ("policy", "jobs", "lost work", "USD an hour of work", "on-demand", "lost", "money")
    cells = [
        (
            row["policy"].replace("_", " "),
            f"{row['jobs']:,}",
            f"{100 * row['lost_work_share']:.1f} %",
            f"{row['usd_per_work_hour']:.3f}",
            f"{100 * row['on_demand_share']:.0f} %",
            percent(row["lost_vs_cheapest_type"], "+.1f"),
            percent(row["usd_vs_cheapest_type"], "+.1f"),
        )
        for row in result["rows"]
    ]
    print_table(console, headings, cells, numbers=headings[1:])
    console.print(Text(f"The last two columns: against the cheapest type. {result['seconds']:.0f} s."))
