"""``advisor spend``: today's spending and budgets, the last days, predicted and actual cost of jobs."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.tables import print_table
from advisor.decide.explanation.display import clean, money, usd
from advisor.model.periods import period_now
from advisor.service.admin.since import parse_since


def spend(
    since: Annotated[
        str, typer.Option("--since", help="Compare predicted with actual cost of jobs since then.")
    ] = "7d",
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show today's spent and promised money by account, the budgets, and the last days.

    Days are those of UTC. Reads the history and what `advisor control` wrote last, without asking EC2.
    """
    from advisor.history.store import HistoryStore
    from advisor.service.admin.cloud_written import known_so_far, predicted_against_billed
    from advisor.service.admin.money import spend_view

    settings, now = settings_of(config), time.time()
    begin = parse_since(since, now)
    with HistoryStore(settings.history_url) as store:
        today = known_so_far(lambda: spend_view(settings, store, now))
        jobs = predicted_against_billed(store, begin)
    result = {**today, "since": begin, "jobs": jobs}
    emit(result, output, lambda console: _draw(console, result))


def _draw(console: Console, result: dict[str, Any]) -> None:
    from advisor.service.admin.money import IDLE, NO_ACCOUNT, SUM, paid_in_words, reckoned_in_words

    if result.get("note"):
        console.print(Text(result["note"]))
        return
    headings = ("today", "spent USD", "promised USD", "budget USD")
    rows = [
        (
            clean(row["account"], 40),
            money(row["spent_today_usd"]),
            money(row["promised_usd"]),
            _budget(row["budget_usd"]),
        )
        for row in result["by_account"]
    ]
    rows += [
        (NO_ACCOUNT, money(result["no_account_usd"]), "", ""),
        (IDLE, money(result["idle_usd"]), "", ""),
    ]
    sums = (money(result["spent_today_usd"]), money(result["promised_usd"]))
    rows.append((SUM, *sums, _budget(result["budget_usd"])))
    print_table(console, headings, rows, numbers=headings[1:], bold_rows=(len(rows) - 1,))
    about = f"Days are those of UTC, budgets those of their periods; seen {result['age_seconds']:.0f} s ago."
    console.print(Text(about, "dim"))
    if result["budget_usd"] is not None:
        when = period_now(result["budget_period"])
        console.print(Text(f"{usd(result['spent_usd'])} of {usd(result['budget_usd'])} are spent {when}."))
    console.print(Text("Promised: the expected further cost of launched nodes; it is not part of spent."))
    for row in result["paid"]:
        console.print(Text(f"Paid already, and not part of spent: {paid_in_words(row)}."))
    if text := reckoned_in_words(result):
        console.print(Text(text))
    for day in result["days"][-7:]:
        idle = "" if day["idle_usd"] is None else f", {usd(day['idle_usd'])} of it for idle time"
        console.print(Text(f"{day['day']}  {usd(day['usd'])} spent{idle}"))
    jobs = result["jobs"]
    console.print(
        Text(
            f"{jobs['jobs']:,} moved jobs have ended: predicted cost {usd(jobs['predicted_usd'])}, "
            f"actual cost {usd(jobs['billed_usd'])}"
        )
    )


def _budget(usd: float | None) -> str:
    return "none" if usd is None else f"{usd:,.2f}"
