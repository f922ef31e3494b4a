"""``advisor replay waiting``: Ambati et al. on a log."""

from __future__ import annotations

import enum
import math
import re
from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking
from advisor.cli.rehearse import a_share
from advisor.cli.tables import percent, print_table
from advisor.cli.traces import TraceOption
from advisor.cli.whatif import ProcessesOption
from advisor.model.errors import BadInput
from advisor.papers.commands.choices import PlotOption
from advisor.parallel import usual_processes
from advisor.replay.traces import find_trace

OPTIMAL = "optimal"


class Capacity(enum.StrEnum):
    """What speculations run on."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


class DispatchOption(enum.StrEnum):
    """Which waiting job is next on fixed cores."""

    FCFS = "fcfs"
    SJF = "sjf"
    EASY = "easy"


def fixed_cores_of(text: str) -> int | None:
    """A number of cores, or None for the optimum."""
    if text.strip().lower() == OPTIMAL:
        return None
    if not re.fullmatch(r"\d{1,7}", text.strip()) or int(text) < 1:
        raise BadInput(
            f"{text!r} is no number of cores",
            where="--fixed-cores",
            mend="Give a whole number from 1 to 9999999, or `optimal`",
            code="option.fixed_cores",
        )
    return int(text)


def waiting(
    *,
    trace: TraceOption,
    fixed_cores: Annotated[
        str, typer.Option(help="On-premise and reserved cores, or `optimal`: the cheapest number.")
    ] = OPTIMAL,
    short: Annotated[float, typer.Option(min=0.0, help="t: jobs up to this are short, seconds.")] = 900.0,
    longest_wait: Annotated[float, typer.Option(min=0.0, help="b: nobody waits longer, seconds.")] = 86_400.0,
    capacity: Annotated[Capacity, typer.Option(help="What speculations run on.")] = Capacity.SPOT,
    dispatch: Annotated[
        DispatchOption, typer.Option(help="Who is next; sjf knows true run times.")
    ] = DispatchOption.FCFS,
    reserved_price: Annotated[
        float, typer.Option(callback=a_share, help="As a share of on-demand's, 0 to 1.")
    ] = 0.4,
    spot_price: Annotated[
        float, typer.Option(callback=a_share, help="As a share of on-demand's, 0 to 1.")
    ] = 0.3,
    spot_mean_hours: Annotated[
        float, typer.Option(min=0.01, help="Mean life of a spot node; lives are exponential.")
    ] = 24.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the revocations.")] = 1,
    plot: PlotOption = None,
    processes: ProcessesOption = 0,
    output: FormatOption = Format.TEXT,
) -> None:
    """Run a log under each waiting policy: what it rents and how long its jobs wait.

    Figures are of the last 30 % of the jobs. Models learn on the way, from jobs that have finished.
    """
    trace = find_trace(trace)  # before what takes seconds to be imported
    from advisor.papers.waiting.waiting import WaitingOptions, report
    from advisor.papers.waiting.world.costs import CostModel
    from advisor.papers.waiting.world.world import Dispatch
    from advisor.replay.sources import load_table

    options = WaitingOptions(
        fixed_cores=fixed_cores_of(fixed_cores),
        short_seconds=short,
        longest_wait_seconds=longest_wait,
        capacity=capacity.value,
        dispatch=Dispatch(dispatch.value),
        costs=CostModel(reserved=reserved_price, spot=spot_price, spot_mean_seconds=3600.0 * spot_mean_hours),
        seed=seed,
    )
    with ticking() as tick:
        table = load_table(trace, progress=lambda done, total: tick("reading", done, total))
        result = report(table, options, processes=processes or usual_processes(len(table)), progress=tick)
    if plot is not None:
        from advisor.papers.waiting.waiting_plots import write_waiting

        write_waiting(plot, result)
    emit(result, output, lambda console: _show(console, result))


def _show(console: Console, result: dict[str, Any]) -> None:
    headings = ("policy", "rented / fixed", "rented", "total", "mean wait", "wait", "longest", "restarts")
    rows = [
        (
            row["variant"],
            percent(row["ondemand_cost_share_of_fixed"]),
            _times(row["ondemand_cost_vs_oracle"]),
            _times(row["total_cost_vs_oracle"]),
            f"{row['mean_wait'] / 3600:.2f} h",
            _times(row["mean_wait_vs_oracle"]),
            f"{row['max_wait'] / 3600:.1f} h",
            percent(row["restarted_share"]),
        )
        for row in result["rows"]
    ]
    console.print(
        f"{result['trace']}: {result['jobs_judged']:,} jobs judged, {result['fixed_cores']:,} fixed cores",
        markup=False,
    )
    print_table(console, headings, rows, numbers=headings[1:])
    scores = ", ".join(
        f"{int(threshold) / 3600:.0f} h {_score(value)} "
        f"({_score(result['wait_model']['mcc_queued'][threshold])})"
        for threshold, value in result["wait_model"]["mcc"].items()
    )
    console.print(
        f"Times (x) the oracle's. Wait model, Matthews correlation of 'waits longer than' (of queued jobs): "
        f"{scores}. {result['seconds']:.0f} s."
    )


def _times(ratio: float) -> str:
    """A ratio to the oracle's; there is none where the oracle's is 0."""
    return f"x {ratio:.3f}" if math.isfinite(ratio) else "-"


def _score(value: float) -> str:
    """A correlation; there is none where all jobs are of one kind."""
    return f"{value:.2f}" if math.isfinite(value) else "not defined"
