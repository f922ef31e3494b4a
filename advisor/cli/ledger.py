"""``advisor decisions``, ``advisor ledger``: what was decided, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.service.admin.since import clock_text, parse_since

if TYPE_CHECKING:
    from advisor.history.ledger import LedgerRow
    from advisor.history.store import HistoryStore

SinceOption = Annotated[
    str, typer.Option("--since", help="How far back: 30d, 12h, 90m, or a date such as 2026-11-21.")
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="The newest so many are listed.")]


def register(app: typer.Typer) -> None:
    """Add the two commands."""
    app.command("decisions")(decisions)
    app.command("ledger")(ledger)


def _store(config: Any) -> HistoryStore:
    from advisor.history.store import HistoryStore

    return HistoryStore(settings_of(config).paths.history_url)


def decisions(
    since: SinceOption = "1d",
    limit: LimitOption = 50,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """List what was decided lately, newest last."""
    from advisor.service.admin.ledger_view import decisions_view

    with _store(config) as store:
        result = decisions_view(store, parse_since(since, time.time()), limit)
    emit(result, output, lambda console: _draw_decisions(console, result["decisions"], result["placements"]))


def _draw_decisions(console: Console, rows: Sequence[dict[str, Any]], counted: dict[str, int]) -> None:
    from advisor.decide.display import clean

    table = Table(box=None, pad_edge=False)
    for name in ("when", "job", "user", "placement", "why"):
        table.add_column(name, overflow="fold")
    for row in rows:
        jobs = ",".join(map(str, row["job_ids"][:3])) or "-"
        mode = " (shadow)" if row["mode"] == "shadow" else ""
        kept = f" ({row['hedge']})" if row["hedge"] else ""
        place = f"{row['placement']}{kept}{mode}"
        cells = (clock_text(row["time"]), jobs, clean(row["user"] or "-", 20), place)
        table.add_row(*map(Text, cells), Text(row["sentence"]))
    console.print(table)
    total = sum(counted.values())
    parts = ", ".join(f"{count:,} {place}" for place, count in sorted(counted.items()))
    console.print(
        Text(f"{total:,} decisions ({parts}), the newest {len(rows)} shown" if total else "none yet")
    )


def ledger(
    since: SinceOption = "7d",
    limit: LimitOption = 50,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Compare predicted with actual, and say what the moves saved and cost."""
    from advisor.service.admin.ledger_view import ledger_view

    with _store(config) as store:
        result = ledger_view(store, parse_since(since, time.time()), limit)
    emit(result, output, lambda console: _draw_ledger(console, result["rows"], result["summary"]))


def _usd(amount: float | None) -> str:
    return "not noted" if amount is None else f"{amount:.2f} USD"


def _draw_ledger(console: Console, rows: Sequence[LedgerRow], summary: dict[str, float | int | None]) -> None:
    from advisor.decide.display import clean, duration

    table = Table(box=None, pad_edge=False, caption="predicted / actual; saved is an estimate")
    for name in ("when", "job", "user", "placement", "wait", "run", "saved", "USD"):
        table.add_column(name, overflow="fold")
    for row in rows:
        saved, cost = row.saved_seconds_estimate, row.cost_usd
        cells = (
            clock_text(row.time),
            str(row.job_id),
            clean(row.user or "-", 20),
            row.placement.value,
            f"{duration(row.predicted_wait_seconds)} / {duration(row.actual_wait_seconds)}",
            f"{duration(row.predicted_run_seconds)} / {duration(row.actual_run_seconds)}",
            "-" if saved is None else duration(saved),
            "-" if cost is None else f"{cost:.2f}",
        )
        table.add_row(*map(Text, cells))
    console.print(table)
    errors = [
        f"{name} off by {duration(error)} on average"
        for name, error in (("waits", summary["wait_mae_seconds"]), ("run times", summary["run_mae_seconds"]))
        if error is not None
    ]
    console.print(
        Text(
            f"{summary['jobs']:,} jobs, {summary['moved']:,} moved; wait avoided about "
            f"{duration(float(summary['saved_seconds_estimate'] or 0.0))}; cost {_usd(summary['cost_usd'])}"
            + (f"; {', '.join(errors)}" if errors else "")
        )
    )
    if summary["placed_by_users"]:
        console.print(
            Text(
                f"{summary['placed_by_users']:,} more were put into the burst partition by their users; "
                f"cost {_usd(summary['users_cost_usd'])}"
            )
        )
