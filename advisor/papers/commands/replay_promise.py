"""``advisor replay promise``: promises of when jobs are done, made and kept on a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import say_too_large, ticking
from advisor.cli.rehearse import BootOption, JobsOption, NodesOption, SlowdownOption, a_share
from advisor.cli.tables import percent, print_table
from advisor.cli.traces import TraceOption
from advisor.replay.traces import find_trace

_TEACHING_ROWS: Final = 2_000
_TEACHING_SHARE: Final = 0.1


def promise(
    *,
    trace: TraceOption,
    confidence: Annotated[
        float,
        typer.Option(callback=a_share, help="Share of the promises (0.5 to 0.999) to be kept."),
    ] = 0.95,
    skip: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Rows at the log's start that are only learned from; by default 2,000, at most a tenth.",
        ),
    ] = None,
    jobs: JobsOption = None,
    nodes: NodesOption = 0,
    boot: BootOption = 120.0,
    slowdown: SlowdownOption = 1.05,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the draws of what an hour is worth to each user.")
    ] = 1,
    place: Annotated[
        bool,
        typer.Option(
            help="Whether jobs keep their place on-premise while they run in the cloud (hedge.enabled)."
        ),
    ] = True,
    spot_hours: Annotated[
        float, typer.Option(min=0.0, help="Mean life of spot instances, hours; 0: no job runs on spot.")
    ] = 0.0,
    spot_price: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Price of spot over that on-demand.")
    ] = 0.3,
    output: FormatOption = Format.TEXT,
) -> None:
    """Promise each job of a log when it is done, for a price, and keep that by late starts in the cloud.

    Each job's user reads the price list (soonest, half-way, free) and takes the row that is worth most. The
    clairvoyant, who knows all waits and run times, keeps the same promises for the least money.
    """
    log = find_trace(trace)
    from advisor.papers.promises.promises import PromiseOptions
    from advisor.papers.promises.report import replay_promises
    from advisor.replay.closed_loop.log import loop_jobs
    from advisor.replay.sources import load_table

    options = PromiseOptions(
        confidence=confidence,
        boot_seconds=boot,
        slowdown=slowdown,
        seed=seed,
        keeps_place=place,
        spot_hours=spot_hours,
        spot_price=spot_price,
    )
    with ticking() as tick:
        table = load_table(log, progress=lambda done, total: tick("reading", done, total))
        teaching = min(_TEACHING_ROWS, int(_TEACHING_SHARE * len(table))) if skip is None else skip
        window = loop_jobs(table, skip=teaching, jobs=jobs, nodes=nodes)
        say_too_large(window.too_large, window.machine)
        result = replay_promises(window, options, lambda done, total: tick("promising", done, total))
    emit(result, output, lambda console: _show(console, result))


def _show(console: Console, result: Mapping[str, Any]) -> None:
    console.print(
        Text(
            f"{result['trace']}: {result['jobs']:,} promises to be kept in {100 * result['confidence']:g} of "
            f"100 cases; kept {percent(result['kept_share'])}."
        )
    )
    headings = ("promise", "jobs", "kept", "core-hours", "clairvoyant's", "hours sooner")
    rows = [
        (
            name,
            f"{row['jobs']:,}",
            percent(row["kept_share"]),
            f"{row['core_hours']:,.0f}",
            f"{row['clairvoyant_core_hours']:,.0f}",
            f"{row['hours_sooner']:,.0f}",
        )
        for name, row in result["promises"].items()
    ]
    print_table(console, headings, rows, numbers=headings[1:])
    thirds = ", ".join(
        f"{word} {percent(share)}"
        for word, share in zip(("small", "medium", "large"), result["kept_share_by_size"], strict=True)
    )
    ratio = result["cost_vs_clairvoyant"]
    cost = "Nothing was paid." if ratio is None else f"Cost: x {ratio:.2f} the clairvoyant's."
    console.print(Text(f"Kept by requested core-hours: {thirds}. {cost} {result['seconds']:.0f} s."))
