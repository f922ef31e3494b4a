"""``advisor replay portfolio``: Deng et al., section 6, on a log."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking
from advisor.cli.tables import print_table
from advisor.cli.traces import TraceOption
from advisor.cli.whatif import ProcessesOption
from advisor.papers.commands.choices import PlotOption
from advisor.parallel import usual_processes
from advisor.replay.traces import find_trace

if TYPE_CHECKING:
    from advisor.simulate.portfolio.policies import Release


class Billing(enum.StrEnum):
    """How nodes are charged and given back."""

    HOUR = "hour"
    HOUR_KEPT = "hour-kept"
    SECOND = "second"
    ALL = "all"


class Runtimes(enum.StrEnum):
    """Which run times policies know."""

    ACTUAL = "actual"
    PREDICTED = "predicted"
    REQUESTED = "requested"
    OURS = "ours"


class Policies(enum.StrEnum):
    """Which policies make the portfolio."""

    PAPER = "paper"
    BEYOND = "beyond"


def portfolio(  # noqa: PLR0917  (typer passes options by name)
    trace: TraceOption,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="First jobs only; all that ran on at most 64 processors by default."),
    ] = None,
    runtimes: Annotated[
        Runtimes,
        typer.Option(
            help="Run times known: true ones, mean of the user's last two, requests, or our own guess."
        ),
    ] = Runtimes.ACTUAL,
    billing: Annotated[
        Billing,
        typer.Option(
            help="`hour`: whole hours, idle nodes given back when nobody waits; `hour-kept`: kept to the end "
            "of the paid hour; `second`: by the second, 60 s at least; `all`: each of them, side by side."
        ),
    ] = Billing.HOUR,
    policies: Annotated[
        Policies | None,
        typer.Option(
            help="`paper`: its sixty; `beyond`: ours too. By default ours too, with billing `hour` those "
            "without warm nodes, as idle nodes are given back there."
        ),
    ] = None,
    budget_ms: Annotated[
        float, typer.Option("--budget-ms", min=0.001, help="Time for simulating policies, each choice.")
    ] = 200.0,
    simulate: Annotated[
        int | None,
        typer.Option(min=1, help="Simulate so many policies each choice instead: the same on every machine."),
    ] = None,
    alpha: Annotated[float, typer.Option(min=0, max=10, help="Weight of utilisation.")] = 1.0,
    beta: Annotated[float, typer.Option(min=0, max=10, help="Weight of slowdown.")] = 1.0,
    plot: PlotOption = None,
    processes: ProcessesOption = 0,
    output: FormatOption = Format.TEXT,
) -> None:
    """Rent nodes for a log under each policy, and under a portfolio that chooses among them."""
    trace = find_trace(trace)  # before what takes seconds to be imported
    from advisor.decide.portfolio.portfolio import Budget
    from advisor.decide.portfolio.portfolio_options import Options, usual_evidence, usual_margins
    from advisor.papers.portfolio import portfolio_replay as replay
    from advisor.papers.portfolio.usual_portfolio import usual_first_leader, usual_policies
    from advisor.replay.sources import load_table
    from advisor.simulate.portfolio.cluster import Cloud
    from advisor.simulate.portfolio.cluster import Runtimes as Known
    from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED, Release

    known = Known(runtimes.value)

    def options(release: Release) -> Options:
        ours = {None: usual_policies(release), Policies.PAPER: PUBLISHED, Policies.BEYOND: PUBLISHED + BEYOND}
        return Options(
            policies=ours[policies],
            cloud=Cloud(release=release),
            runtimes=known,
            margins=usual_margins(known),
            evidence=usual_evidence(known),
            first_leader=usual_first_leader(known, release),
            budget=Budget(policies=simulate, seconds=budget_ms / 1000.0, clock=time.perf_counter),
            alpha=alpha,
            beta=beta,
        )

    releases = list(Release) if billing is Billing.ALL else [Release.of_billing(billing.value)]
    with ticking() as tick:
        table = load_table(trace, progress=lambda done, total: tick("reading", done, total))
        # a budget in seconds buys less where another replay has the other core
        side_by_side = processes or (usual_processes(len(table)) if simulate is not None else 1)
        results = replay.reports(
            table,
            [options(release) for release in releases],
            jobs=jobs,
            processes=side_by_side,
            progress=tick,
        )
    if plot is not None:
        from advisor.papers.portfolio.portfolio_plots import write_portfolio

        write_portfolio(plot, results)
    if billing is Billing.ALL:
        emit(replay.by_billing(results), output, lambda console: _show_side_by_side(console, results))
    else:
        emit(results[0], output, lambda console: _show(console, results[0]))


def _figures(row: Mapping[str, Any]) -> dict[str, str]:
    """A policy's figures, or the portfolio's, by their headings."""
    return {
        "utility": f"{row['utility']:.2f}",
        "slowdown": f"{row['mean_bounded_slowdown']:.2f}",
        "node hours": f"{row['charged_vm_hours']:,.0f}",
        "utilisation": f"{100 * row['utilisation']:.1f} %",
    }


def _show(console: Console, result: dict[str, Any]) -> None:
    best = sorted(result["constituents"] + result["beyond_the_paper"], key=lambda row: -row["utility"])[:5]
    headings = tuple(_figures(result["portfolio"]))
    rows = [
        (row["policy"], *_figures(row).values())
        for row in ({"policy": "portfolio", **result["portfolio"]}, *best)
    ]
    console.print(f"{result['trace']}: {result['jobs']:,} jobs on rented nodes", markup=False)
    print_table(console, ("policy", *headings), rows, numbers=headings)
    console.print(
        f"Portfolio {100 * result['gain_over_best_constituent']:+.1f} % over "
        f"{result['best_constituent']['policy']}, the paper's best; "
        f"{100 * result['gain_over_best_of_all']:+.1f} % over {result['best_of_all']['policy']}, "
        "the best of all. "
        + _cut_in_words(result["choices"])
        + f"Billing `{result['billing']}`: {result['release_rule']}. Run times: {result['runtimes']}."
    )


def _show_side_by_side(console: Console, results: Sequence[dict[str, Any]]) -> None:
    """A column for each billing; utilities of different billings are not to be compared."""
    first = results[0]
    rows = [
        (
            *_figures(result["portfolio"]).items(),
            ("the paper's best", result["best_constituent"]["policy"]),
            ("gained over it", f"{100 * result['gain_over_best_constituent']:+.1f} %"),
            ("best of all", result["best_of_all"]["policy"]),
            ("gained over it", f"{100 * result['gain_over_best_of_all']:+.1f} %"),
        )
        for result in results
    ]
    console.print(f"{first['trace']}: {first['jobs']:,} jobs on rented nodes", markup=False)
    billings = [result["billing"] for result in results]
    lines = [(cells[0][0], *(value for _, value in cells)) for cells in zip(*rows, strict=True)]
    print_table(console, ("", *billings), lines, numbers=billings)
    for result in results:
        console.print(
            f"Billing `{result['billing']}`: {result['release_rule']}. {_cut_in_words(result['choices'])}"
        )
    console.print(f"Run times: {first['runtimes']}. Node hours are what is charged.")


def _cut_in_words(choices: Mapping[str, int]) -> str:
    """Where Algorithm 1 had to leave policies out."""
    if not choices["cut_short"]:
        return ""
    return (
        f"In {choices['cut_short']:,} of {choices['simulated']:,} choices the budget did not allow "
        "every policy (Algorithm 1). "
    )
