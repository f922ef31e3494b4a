"""``advisor replay budget``: a month's budget, of the site and of each user, on a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import say_too_large, ticking
from advisor.cli.rehearse import (
    BootOption,
    JobsOption,
    NodesOption,
    ProcessesOption,
    ShareOption,
    SlowdownOption,
)
from advisor.cli.tables import percent, print_table
from advisor.cli.traces import TraceOption
from advisor.parallel import cores
from advisor.replay.traces import find_trace

_TEACHING_ROWS: Final = 1_000
_TEACHING_SHARE: Final = 0.1


def budget(
    *,
    trace: TraceOption,
    budget_share: ShareOption = 0.05,
    users: Annotated[
        bool,
        typer.Option(
            "--users/--site-only",
            help="Each user has a budget, too: a share of what they use in a month in which they submit.",
        ),
    ] = True,
    carry_over: Annotated[
        bool, typer.Option("--carry-over", help="What a period has left may be spent in the next one.")
    ] = False,
    skip: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Rows at the log's start that are only learned from; by default 1,000, at most a tenth.",
        ),
    ] = None,
    jobs: JobsOption = None,
    nodes: NodesOption = 0,
    boot: BootOption = 120.0,
    slowdown: SlowdownOption = 1.05,
    processes: ProcessesOption = 0,
    output: FormatOption = Format.TEXT,
) -> None:
    """Spend a month's budget by the one price, and beside it the same sum under a daily cap.

    A start needs the money of the site's budget and of the user's, for its worst case. The first cap serves
    jobs in the queue's order, the second one by the same price.
    """
    log = find_trace(trace)
    from advisor.papers.budgets.budgets import BudgetTerms, replay_budgets
    from advisor.replay.closed_loop.log import loop_jobs
    from advisor.replay.closed_loop.world import WorldOptions
    from advisor.replay.sources import load_table

    terms = BudgetTerms(
        has_users=users,
        carries_over=carry_over,
        world=WorldOptions(boot_seconds=boot, slowdown=slowdown, budget_share=budget_share),
        processes=processes or cores(),
    )
    with ticking() as tick:
        table = load_table(log, progress=lambda done, total: tick("reading", done, total))
        teaching = min(_TEACHING_ROWS, int(_TEACHING_SHARE * len(table))) if skip is None else skip
        window = loop_jobs(table, skip=teaching, jobs=jobs, nodes=nodes)
        say_too_large(window.too_large, window.machine)
        result = replay_budgets(window, terms, tick)
    emit(result, output, lambda console: _show(console, result))


def _show(console: Console, result: Mapping[str, Any]) -> None:
    whose = f"the site and {result['users']:,} users" if result["users"] else "the site"
    console.print(
        Text(
            f"{result['trace']}: {result['jobs']:,} jobs in {result['days']:,.0f} days. Budgets of {whose}: "
            f"{100 * result['budget_share']:g} % of the core-hours."
        )
    )
    headings = (
        "budget",
        "saved hours",
        "mean wait s",
        "core-hours",
        "spent",
        "of demand",
        "exceeded",
        "moved",
    )
    rows = [
        (
            row["name"],
            f"{row['saved_hours']:,.0f}",
            f"{row['mean_wait_seconds']:,.0f}",
            f"{row['core_hours']:,.0f}",
            percent(row["spent_share"]),
            percent(row["demand_share"]),
            f"{row['exceeded']:,} of {row['budgets']:,}",
            f"{row['moved_jobs']:,}",
        )
        for row in result["rows"]
    ]
    print_table(console, headings, rows, numbers=headings[1:])
    ratio = result["saved_vs_daily_cap"]
    gain = (
        "" if ratio is None else f" The month's budget saves {ratio:.2f} times the better daily cap's hours."
    )
    console.print(
        Text(
            f"All on-premise: {result['on_premise_mean_wait_seconds']:,.0f} s mean wait.{gain} "
            f"{result['seconds']:.0f} s."
        )
    )
