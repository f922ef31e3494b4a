"""The ledger page: predicted against actual values, savings and costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from advisor.history.ledger_rows import LedgerRow
from advisor.model.settings import Settings
from advisor.service.admin.ledger_report import LedgerReport
from advisor.service.admin.ledger_report_page import about, figures
from advisor.service.admin.ledger_view import LedgerSums
from advisor.service.admin.money import money_rows, money_view
from advisor.web.answers import Answers
from advisor.web.asking import MAX_ROWS, limit_of, since_of
from advisor.web.plots import Drawn, drawn
from advisor.web.site import Site

_SECONDS: Final = 120.0
"""How long a page's sums are kept before the ledger, often of a whole week, is read again."""


@dataclass(frozen=True, slots=True)
class _Summed:
    view: dict[str, Any]
    report: dict[str, Any]
    plots: list[Drawn]


def add_to(app: FastAPI, site: Site, answers: Answers) -> None:
    """Add the page."""

    @app.api_route("/ledger", methods=["GET", "HEAD"])
    def ledger(request: Request, since: str = "7d", limit: str = "") -> Response:
        now = site.now()
        begin, rows = since_of(since, now), limit_of(limit)
        summed = site.cache.get(("ledger", since), _SECONDS, lambda: _sum(site, begin, now, site.settings()))
        data = {**summed.view, "rows": summed.view["rows"][-rows:], "report": summed.report}
        return answers.page(
            request,
            "ledger.html",
            data,
            asked={"since": since, "limit": limit},
            about=about(summed.report),
            plots=summed.plots,
            money_rows=money_rows(summed.view["money"]),
        )


def _sum(site: Site, since: float, now: float, settings: Settings) -> _Summed:
    """The data of `advisor ledger` and of `advisor report`, from one pass over the ledger."""
    report = LedgerReport(since, now, settings.cluster.utc_offset_seconds)
    sums = LedgerSums()
    with site.history() as store:
        report.decided(store.brief_decisions(since))
        money = money_view(store, since)
        report.paid(money)
        rows = deque(_counted(store.ledger(since), sums, report), maxlen=MAX_ROWS)
    summary = report.summary()
    view = {"since": since, "summary": sums.summary(), "money": money, "rows": list(rows)}
    return _Summed(view, summary, [drawn(figure) for figure in figures(report, summary)])


def _counted(rows: Iterator[LedgerRow], sums: LedgerSums, report: LedgerReport) -> Iterator[LedgerRow]:
    for row in rows:
        sums.add(row)
        report.ended([row])
        yield row
