"""``advisor spend``: today's money and caps, the last days, and predicted against billed."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.tables import print_table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("spend")(spend)


def spend(
    since: Annotated[str, typer.Option("--since", help="Predicted against billed: how far back.")] = "7d",
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show what was spent and promised today, by account, beside the caps; and the last days.

    Reads what the control process wrote last, and the ledger; EC2 is not asked.
    """
    from advisor.history.store import HistoryStore
    from advisor.service.admin.cloud_written import predicted_against_billed, spend_written
    from advisor.service.admin.since import parse_since

    settings, now = settings_of(config), time.time()
    written = spend_written(settings, now)
    begin = parse_since(since, now)
    with HistoryStore(settings.paths.history_url) as store:
        jobs = predicted_against_billed(store, begin)
    result = {**written, "since": begin, "jobs": jobs}
    emit(result, output, lambda console: _draw(console, result))


def _draw(console: Console, result: dict[str, Any]) -> None:
    headings = ("today", "spent USD", "cap USD")
    rows = [
        (row["account"], f"{row['spent_today_usd']:.2f}", _cap(row["daily_cap_usd"]))
        for row in result.get("by_account", [])
    ]
    rows.append(("idle time", f"{result.get('idle_usd', 0.0):.2f}", ""))
    total = f"{result.get('spent_today_usd', 0.0):.2f}"
    rows.append(("all", total, _cap(result.get("daily_cap_usd"))))
    print_table(console, headings, rows, numbers=headings[1:], bold_rows=(len(rows) - 1,))
    console.print(Text(f"seen {result['age_seconds']:.0f} s ago", "dim"))
    console.print(Text(f"{result.get('promised_usd', 0.0):.2f} USD more are promised to running nodes"))
    for day in result.get("days", [])[-7:]:
        console.print(Text(f"{day['day']}  {day['usd']:.2f} USD"))
    jobs = result["jobs"]
    console.print(
        Text(
            f"{jobs['jobs']:,} moved jobs have ended: {jobs['predicted_usd']:.2f} USD predicted, "
            f"{jobs['billed_usd']:.2f} USD billed"
        )
    )


def _cap(usd: float | None) -> str:
    return "none" if usd is None else f"{usd:.2f}"
