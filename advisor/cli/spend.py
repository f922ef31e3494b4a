"""``advisor spend``: today's money and caps, the last days, and predicted against billed."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.cli.cloud_report import cloud_report
from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.since import parse_since

if TYPE_CHECKING:
    from advisor.history.store import HistoryStore


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

    report, written = cloud_report(config)
    begin = parse_since(since, time.time())
    with HistoryStore(settings_of(config).paths.history_url) as store:
        jobs = predicted_against_billed(store, begin)
    result = {
        "time": written,
        "age_seconds": time.time() - written,
        **report.get("spend", {}),
        "since": begin,
        "jobs": jobs,
    }
    emit(result, output, lambda console: _draw(console, result))


def predicted_against_billed(store: HistoryStore, since: float) -> dict[str, float | int]:
    """Jobs we moved since then that have ended: what they were to cost, and what they did.

    Both sums are over the jobs of which both are known.
    """
    predicted: dict[str, float] = {}
    for decision in store.decisions(since):
        advice = decision.record.advice
        cost = advice.number("predicted_cost")
        if cost is not None and math.isfinite(cost):
            predicted[advice.advice_id] = cost
    jobs, told, billed = 0, 0.0, 0.0
    for row in store.ledger(since):
        if row.cost_usd is not None and row.advice_id in predicted and not row.is_users_choice:
            jobs += 1
            told += predicted[row.advice_id]
            billed += row.cost_usd
    return {"jobs": jobs, "predicted_usd": told, "billed_usd": billed}


def _draw(console: Console, result: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, caption=f"seen {result['age_seconds']:.0f} s ago")
    for name in ("today", "spent USD", "cap USD"):
        table.add_column(name, overflow="fold")
    for row in result.get("by_account", []):
        table.add_row(Text(row["account"]), f"{row['spent_today_usd']:.2f}", _cap(row["daily_cap_usd"]))
    table.add_row("idle time", f"{result.get('idle_usd', 0.0):.2f}", "")
    total = f"{result.get('spent_today_usd', 0.0):.2f}"
    table.add_row(Text("all", "bold"), Text(total, "bold"), _cap(result.get("daily_cap_usd")))
    console.print(table)
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
