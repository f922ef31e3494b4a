"""``advisor decisions``, ``advisor ledger``: what was decided, and what came of it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.since import clock_text, parse_since

if TYPE_CHECKING:
    from advisor.history.ledger import Decision, LedgerRow
    from advisor.history.store import HistoryStore
    from advisor.model.advice import Advice

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
    begin = parse_since(since, time.time())
    newest: deque[Decision] = deque(maxlen=limit)
    counted: dict[str, int] = {}
    hedges: dict[str, int] = {}
    with _store(config) as store:
        for decision in store.decisions(begin):
            newest.append(decision)
            place = decision.record.advice.placement.value
            counted[place] = counted.get(place, 0) + 1
            if kind := _hedge_of(decision.record.advice):
                hedges[kind] = hedges.get(kind, 0) + 1
    rows = [_decision_row(decision) for decision in newest]
    result = {
        "since": begin,
        "total": sum(counted.values()),
        "placements": counted,
        "hedges": hedges,
        "decisions": rows,
    }
    emit(result, output, lambda console: _draw_decisions(console, rows, counted))


def _hedge_of(advice: Advice) -> str | None:
    """Why a job keeps, or in act mode would keep, its place on-premise; its decisive reason is another."""
    from advisor.decide.reasons import Reason
    from advisor.model.advice import HedgeKind

    if advice.hedge is not None:
        return advice.hedge.kind.value
    kinds = {Reason.HEDGED.value: HedgeKind.HEDGE, Reason.SPECULATED.value: HedgeKind.SPECULATION}
    found = [kinds[answer.reason] for answer in advice.answers if answer.reason in kinds]
    return found[-1].value if found and advice.placement == "burst" else None


def _decision_row(decision: Decision) -> dict[str, Any]:
    from advisor.decide.wording import sentence

    advice, job, estimates = decision.record.advice, decision.record.job, decision.record.estimates
    return {
        "advice_id": advice.advice_id,
        "time": advice.time,
        "job_ids": decision.job_ids,
        "user": job.user,
        "partition": advice.partition or job.queue,
        "processors": job.processors,
        "placement": advice.placement,
        "capacity": advice.capacity,
        "mode": advice.mode,
        "hedge": _hedge_of(advice),
        "size": advice.size,
        "reason": advice.decisive.reason,
        "sentence": sentence(advice.decisive),
        "predicted_wait_seconds": estimates.wait.seconds,
        "predicted_wait_deviation_seconds": estimates.wait.deviation,
        "predicted_run_seconds": estimates.run.seconds,
        "predicted_run_deviation_seconds": estimates.run.deviation,
    }


def _draw_decisions(console: Console, rows: Sequence[dict[str, Any]], counted: dict[str, int]) -> None:
    from advisor.decide.wording import clean

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
    begin = parse_since(since, time.time())
    newest: deque[LedgerRow] = deque(maxlen=limit)
    sums = _Sums()
    with _store(config) as store:
        for row in store.ledger(begin):
            newest.append(row)
            sums.add(row)
    result = {"since": begin, "summary": sums.summary(), "rows": list(newest)}
    emit(result, output, lambda console: _draw_ledger(console, list(newest), sums.summary()))


class _Sums:
    """Totals over a ledger that may not fit into memory."""

    def __init__(self) -> None:
        self._jobs = 0
        self._moved = 0
        self._saved = 0.0
        self._cost: float | None = None
        self._by_users = 0
        self._users_cost: float | None = None
        self._wait: list[float] = [0, 0.0]
        self._run: list[float] = [0, 0.0]

    def add(self, row: LedgerRow) -> None:
        """Count one job. Waits are judged where the job did wait on-premise."""
        self._jobs += 1
        if row.is_users_choice:
            self._by_users += 1
            self._users_cost = _plus(self._users_cost, row.cost_usd)
            return
        if row.saved_seconds_estimate is not None:
            self._moved += 1
            self._saved += row.saved_seconds_estimate
        else:
            _add_error(self._wait, row.predicted_wait_seconds, row.actual_wait_seconds)
            _add_error(self._run, row.predicted_run_seconds, row.actual_run_seconds)
        self._cost = _plus(self._cost, row.cost_usd)

    def summary(self) -> dict[str, float | int | None]:
        """Totals and mean absolute errors; None where there is nothing to say."""
        return {
            "jobs": self._jobs,
            "moved": self._moved,
            "saved_seconds_estimate": self._saved,
            "cost_usd": self._cost,
            "placed_by_users": self._by_users,
            "users_cost_usd": self._users_cost,
            "wait_mae_seconds": self._wait[1] / self._wait[0] if self._wait[0] else None,
            "run_mae_seconds": self._run[1] / self._run[0] if self._run[0] else None,
        }


def _plus(total: float | None, more: float | None) -> float | None:
    """Sum where something was noted; None where nothing ever was."""
    return total if more is None else (total or 0.0) + more


def _usd(amount: float | None) -> str:
    return "not noted" if amount is None else f"{amount:.2f} USD"


def _add_error(sums: list[float], predicted: float, actual: float) -> None:
    if math.isfinite(predicted) and math.isfinite(actual):
        sums[0] += 1
        sums[1] += abs(predicted - actual)


def _draw_ledger(console: Console, rows: Sequence[LedgerRow], summary: dict[str, float | int | None]) -> None:
    from advisor.decide.wording import clean, duration

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
