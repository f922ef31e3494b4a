"""``advisor replay classify``: Zrigui et al., section 4.3, on a log."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking
from advisor.cli.tables import percent, print_table
from advisor.cli.traces import TraceOption
from advisor.papers.commands.choices import PlotOption
from advisor.replay.traces import find_trace

if TYPE_CHECKING:
    from advisor.papers.classify.classify import Flavour


class Mode(enum.StrEnum):
    """Which classifier is replayed."""

    PAPER = "paper"
    ADVISOR = "advisor"


def classify(
    trace: TraceOption,
    mode: Annotated[
        list[Mode] | None, typer.Option(help="Only this classifier; may be repeated. Both by default.")
    ] = None,
    cut: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="A job is small from this probability on.")
    ] = 0.5,
    plot: PlotOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Class a log's jobs small or large, each week by the model of the weeks before, and judge it."""
    trace = find_trace(trace)  # before what takes seconds to be imported
    from advisor.papers.classify.classify import report
    from advisor.replay.sources import load_table

    modes: tuple[Flavour, ...] = tuple(one.value for one in dict.fromkeys(mode or list(Mode)))
    with ticking("reading") as tick:
        table = load_table(trace, progress=lambda done, total: tick("reading", done, total))

        def tell(name: Flavour, done: int, total: int) -> None:
            tick(f"{name}: weeks", done, total)

        result = report(table, modes, probability_cut=cut, progress=tell)
    if plot is not None:
        from advisor.papers.classify.classify_plots import write_classify

        write_classify(plot, result)
    emit(result, output, lambda console: _show(console, result))


def _show(console: Console, result: dict[str, Any]) -> None:
    headings = ("classifier", "accuracy", "precision", "recall", "false small", "divider", "training")
    rows: list[tuple[str, ...]] = []
    for name, row in result["modes"].items():
        shares = (row[key] for key in ("accuracy", "precision", "recall", "false_small_share"))
        cells = (
            name,
            *map(percent, shares),
            "-" if row["divider_seconds"] is None else f"{row['divider_seconds']:,.0f} s",
            "-" if row["train_seconds_per_week"] is None else f"{row['train_seconds_per_week']:.2f} s/week",
        )
        rows.append(cells)
    console.print(f"{result['trace']}: {result['jobs_judged']:,} jobs judged", markup=False)
    print_table(console, headings, rows, numbers=headings[1:])
    if not result["jobs_judged"]:
        console.print("No job is judged: the log has no second week, or no job had ended before it.")
    console.print(
        f"Weeks of seven days; small: a run time below the median of the jobs finished before the week. "
        f"{result['seconds']:.1f} s."
    )
