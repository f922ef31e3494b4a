"""``advisor plan``: how many nodes to reserve."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking
from advisor.cli.tables import print_table
from advisor.cli.traces import TraceOption
from advisor.replay.traces import find_trace

_ROWS = 15
_SPOT_MEAN_HOURS = 24.0


class PlannedPolicy(enum.StrEnum):
    """Who waits in the planned site."""

    ORACLE = "oracle"
    SPECULATION = "speculation"


def register(app: typer.Typer) -> None:
    """Add ``advisor plan``."""
    app.command("plan")(plan)


def plan(
    *,
    trace: TraceOption,
    node_cores: Annotated[int, typer.Option(min=1, help="Cores of a reserved node.")] = 1,
    short: Annotated[float, typer.Option(min=0.0, help="t: jobs up to this never wait, seconds.")] = 900.0,
    longest_wait: Annotated[float, typer.Option(min=0.0, help="b: nobody waits longer, seconds.")] = 86_400.0,
    policy: Annotated[
        PlannedPolicy, typer.Option(help="How short jobs are known: at once, or by trials on spot.")
    ] = PlannedPolicy.ORACLE,
    reserved_price: Annotated[float, typer.Option(min=0.0, help="As a share of on-demand's.")] = 0.4,
    spot_price: Annotated[float, typer.Option(min=0.0, help="As a share of on-demand's.")] = 0.3,
    spot_mean_hours: Annotated[
        float | None,
        typer.Option(min=0.01, help="Mean life of a spot node; default: this site's own, else 24."),
    ] = None,
    usd_per_core_hour: Annotated[float, typer.Option(min=0.0, help="On-demand's price.")] = 0.048,
    plot: Annotated[Path | None, typer.Option(help="Write a page with the curve.", dir_okay=False)] = None,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Find the cheapest number of reserved nodes for a history, and how sure it is.

    Reserved nodes are paid all the time, rented ones while they are used; a job that would wait longer than b
    is rented for.
    """
    trace = find_trace(trace)  # before what takes seconds to be imported
    from advisor.papers.waiting import planning
    from advisor.papers.waiting.waiting_rows import workload_from
    from advisor.papers.waiting.world.costs import CostModel
    from advisor.replay.sources import load_table

    hours, origin = _spot_mean(spot_mean_hours, config)
    costs = CostModel(reserved=reserved_price, spot=spot_price, spot_mean_seconds=3600.0 * hours)
    options = planning.PlanOptions(
        short_seconds=short,
        longest_wait_seconds=longest_wait,
        policy=policy.value,
        costs=costs,
        node_cores=node_cores,
        on_demand_usd_per_core_hour=usd_per_core_hour,
    )
    with ticking() as tick:
        table = load_table(trace, progress=lambda done, total: tick("reading", done, total))
        result = planning.plan(table.name, workload_from(table, costs, options.seed), options, tick)
    result |= {"spot_mean_hours": hours, "spot_mean_from": origin}
    if plot is not None:
        from advisor.papers.waiting.waiting_plots import write_plan

        write_plan(plot, result)
    emit(result, output, lambda console: _show(console, result))


def _spot_mean(asked: float | None, config: Path | None) -> tuple[float, str]:
    """Hours a spot node lasts, and who says so: ``option``, ``site`` (its own record) or ``default``."""
    from advisor.papers.waiting.spot_life import lives_of, mean_life_seconds

    if asked is not None:
        return asked, "option"
    seconds = mean_life_seconds(lives_of(settings_of(config)))
    return (_SPOT_MEAN_HOURS, "default") if seconds is None else (seconds / 3600.0, "site")


def _show(console: Console, result: dict[str, Any]) -> None:
    best = result["optimum"]
    headings = ("nodes", "reserved", "rented", "total USD a year", "over the optimum", "mean wait")
    curve = result["curve"]
    shown = {round(at * (len(curve) - 1) / (_ROWS - 1)) for at in range(_ROWS)}
    shown.add(next(at for at, point in enumerate(curve) if point["nodes"] == best["nodes"]))
    points = [curve[at] for at in sorted(shown)]
    rows = [
        (
            f"{point['nodes']:,}",
            f"{point['reserved_cost_usd_a_year']:,.0f}",
            f"{point['rented_cost_usd_a_year']:,.0f}",
            f"{point['cost_usd_a_year']:,.0f}",
            f"{100 * (point['cost_vs_optimum'] - 1):+.1f} %",
            f"{point['mean_wait'] / 3600:.2f} h",
        )
        for point in points
    ]
    console.print(f"{result['trace']}: nodes of {result['node_cores']} cores", markup=False)
    bold = [at for at, point in enumerate(points) if point["nodes"] == best["nodes"]]
    print_table(console, headings, rows, numbers=headings, bold_rows=bold)
    console.print(
        f"Cheapest: {best['nodes']:,} nodes ({best['cores']:,} cores), {best['cost_usd_a_year']:,.0f} USD a "
        f"year. {100 * best['coverage']:.0f} % of the histories made of this one's weeks have their optimum "
        f"between {best['low']:,} and {best['high']:,}. {result['seconds']:.0f} s."
    )
