"""``advisor report``: a page about the decisions of some weeks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.ledger import SinceOption
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import working
from advisor.service.admin.since import parse_since


def report(
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE.html", help="File for the page.", dir_okay=False)
    ],
    since: SinceOption = "30d",
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Write a page about decisions, time saved, money spent and errors of prediction.

    The page is one file that needs no network. It has plots by day, predicted against actual values, reasons
    and accounts. It names no user.
    """
    from advisor.history.store import HistoryStore
    from advisor.service.admin.ledger_report import LedgerReport
    from advisor.service.admin.ledger_report_page import about, write_report
    from advisor.service.admin.money import money_view

    settings = settings_of(config)
    now = time.time()
    begin = parse_since(since, now)
    found = LedgerReport(begin, now, settings.cluster.utc_offset_seconds)
    with working("reading the ledger") as doing:
        with HistoryStore(settings.history_url) as store:
            found.decided(store.brief_decisions(begin))
            found.ended(store.ledger(begin))
            found.paid(money_view(store, begin))
        doing("drawing the page")
        write_report(out, found, f"Burst Advisor, {_date(begin)} to {_date(now)}")
    summary: dict[str, Any] = {"out": str(out), **found.summary()}

    def show(console: Console) -> None:
        console.print(Text(about(summary)))
        console.print(Text(f"Written to {out}"))

    emit(summary, output, show)


def _date(seconds: float) -> str:
    return time.strftime("%d %B %Y", time.localtime(seconds))
