"""``advisor decisions`` and ``advisor ledger``: the decisions and their outcomes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.tables import print_table
from advisor.decide.explanation.display import clean, duration, short_duration, usd
from advisor.model.job_id import job_name, parse_job_id
from advisor.service.admin.since import moment_text, parse_since, zone_text

if TYPE_CHECKING:
    from advisor.history.ledger_rows import LedgerRow
    from advisor.history.store import HistoryStore

SinceOption = Annotated[
    str, typer.Option("--since", help="How far back: 30d, 12h, 90m, or a date such as 2026-11-21.")
]
JobOption = Annotated[
    str | None,
    typer.Option("--job", metavar="JOBID", help="Only this job, as Slurm writes it: 95, 95_2, 97+1, 94.0."),
]
LimitOption = Annotated[
    int, typer.Option("--limit", min=1, max=1_000_000, help="Rows to list, the newest ones.")
]


def register(app: typer.Typer) -> None:
    """Add the two commands."""
    app.command("decisions")(decisions)
    app.command("ledger")(ledger)


def _store(config: Any) -> HistoryStore:
    from advisor.history.store import HistoryStore

    return HistoryStore(settings_of(config).history_url)


def _job_id(text: str | None) -> int | None:
    return None if text is None else parse_job_id(text, where="--job").job


def decisions(
    since: SinceOption = "1d",
    job: JobOption = None,
    limit: LimitOption = 50,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """List the latest decisions, the newest last."""
    from advisor.service.admin.ledger_view import decisions_view

    with _store(config) as store:
        result = decisions_view(store, parse_since(since, time.time()), limit, _job_id(job))
    emit(result, output, lambda console: _draw_decisions(console, result))


def _draw_decisions(console: Console, result: dict[str, Any]) -> None:
    rows: Sequence[dict[str, Any]] = result["decisions"]
    counted: dict[str, int] = result["placements"]
    cells = [
        (
            _jobs(row["job_ids"]),
            _moment(console, row["time"]),
            clean(row["user"] or "-", 20),
            _place(row),
            row["why"],
        )
        for row in rows
    ]
    if rows:
        print_table(console, ("job", "when", "user", "placement", "why"), cells, text="why")
        console.print(Text(f"Times are {zone_text()}.", "dim"))
    total = sum(counted.values())
    parts = ", ".join(f"{count:,} {place}" for place, count in sorted(counted.items()))
    of = f"{total:,} decision{'' if total == 1 else 's'}"
    none = "no decisions in this time; --since says how far back to look"
    console.print(Text(f"the newest {len(rows)} of {of} ({parts})" if total else none))


def _jobs(job_ids: Sequence[int]) -> str:
    """The first job of an advice, and how many more it has: tasks of an array."""
    if not job_ids:
        return "-"
    return f"{job_name(job_ids[0])} (+{len(job_ids) - 1:,})" if len(job_ids) > 1 else job_name(job_ids[0])


def _place(row: dict[str, Any]) -> str:
    """The placement, followed by capacity, hedge and mode."""
    tags = [row["capacity"], row["hedge"], "shadow" if row["mode"] == "shadow" else None]
    shown = ", ".join(str(tag) for tag in tags if tag)
    return f"{row['placement']} ({shown})" if shown else str(row["placement"])


def _moment(console: Console, seconds: float) -> str:
    """A time; on a terminal without its year, to save columns."""
    text = moment_text(seconds)
    return text if console.soft_wrap else text[5:]


def ledger(
    since: SinceOption = "7d",
    job: JobOption = None,
    limit: LimitOption = 50,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Compare predicted with actual waits and run times, and show what the moves saved and cost."""
    from advisor.service.admin.ledger_view import ledger_view

    with _store(config) as store:
        result = ledger_view(store, parse_since(since, time.time()), limit, _job_id(job))
    emit(result, output, lambda console: _draw_ledger(console, result))


def _ledger_cells(console: Console, row: LedgerRow) -> tuple[str, ...]:
    saved, cost = row.saved_seconds_estimate, row.cost_usd
    return (
        job_name(row.job_id),
        _moment(console, row.time),
        row.placement.value,
        f"{short_duration(row.predicted_wait_seconds)} / {short_duration(row.actual_wait_seconds)}",
        f"{short_duration(row.predicted_run_seconds)} / {short_duration(row.actual_run_seconds)}",
        "-" if saved is None else short_duration(saved),
        "-" if cost is None else f"{cost:.2f}",
        clean(row.user or "-", 20),
    )


def _usd(amount: float | None) -> str:
    return "unknown" if amount is None else usd(amount)


def _draw_ledger(console: Console, result: dict[str, Any]) -> None:
    from advisor.service.admin.money import money_in_words

    rows: Sequence[LedgerRow] = result["rows"]
    summary: dict[str, float | int | None] = result["summary"]
    headings = ("job", "when", "placement", "wait", "run", "saved", "USD", "user")
    cells = [_ledger_cells(console, row) for row in rows]
    if rows:
        print_table(console, headings, cells, numbers=("saved", "USD"))
        about = f"Wait and run: predicted / actual; saved is an estimate. Times are {zone_text()}."
        console.print(Text(about, "dim"))
    errors = [
        f"mean error of {name} {duration(error)}"
        for name, error in (
            ("waits", summary["wait_mae_seconds"]),
            ("run times", summary["run_mae_seconds"]),
            ("starts in the cloud", summary["cloud_start_mae_seconds"]),
        )
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
    if said := money_in_words(result["money"]):
        console.print(Text(f"{said} (Since {moment_text(result['since'])}, for all jobs that ran then.)"))
