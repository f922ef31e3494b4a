"""The first page: the state of the advisor and its cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import plotly.graph_objects as go
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from advisor.history.ledger import Wanted
from advisor.model.advice import Placement
from advisor.model.bill import day_of
from advisor.service.admin.cloud_written import nodes_written
from advisor.service.admin.ledger_view import decision_row
from advisor.service.admin.plots import COLOURS
from advisor.service.admin.status_report import ask_serve, status_report
from advisor.service.admin.status_words import status_rows
from advisor.web.answers import Answers, part
from advisor.web.forms import person_of
from advisor.web.money import budget_plots, money_today
from advisor.web.nodes import by_market
from advisor.web.plots import Drawn, add_line, drawn_by_day
from advisor.web.site import Site

_SERVE_KEPT_SECONDS: Final = 5.0
_LAST_DAY_KEPT_SECONDS: Final = 60.0
_WAITS_KEPT_SECONDS: Final = 300.0
_DAY: Final = 86_400.0
_MOVED_ROWS: Final = 5
_WAIT_DAYS: Final = 28


def add_to(app: FastAPI, site: Site, answers: Answers) -> None:
    """Add the page."""

    @app.api_route("/", methods=["GET", "HEAD"])
    def overview(request: Request) -> Response:
        if not person_of(request).sees_all:
            return RedirectResponse(f"{site.first.web.path}/decisions", 303)
        settings, now = site.settings(), site.now()
        serve = site.cache.get("serve", _SERVE_KEPT_SECONDS, lambda: ask_serve(settings))
        status = status_report(settings, now, serve)
        last_day = site.cache.get(
            "last day", _LAST_DAY_KEPT_SECONDS, lambda: part(lambda: _last_day(site, now))
        )
        waits = site.cache.get("waits", _WAITS_KEPT_SECONDS, lambda: part(lambda: _waits(site, now)))
        spend = part(lambda: money_today(site, now))
        data = {**status, "spend": spend, "last_day": last_day, "waits": waits}
        if site.settings_error:
            said = f"the settings file cannot be used, and its last good settings hold: {site.settings_error}"
            data["troubles"] = [said, *status["troubles"]]
        nodes = part(lambda: nodes_written(settings, now))
        return answers.page(
            request,
            "overview.html",
            data,
            rows=status_rows(status),
            markets=by_market(nodes),
            plots=[*_wait_plots(waits), *budget_plots(spend, now)],
        )


def _waits(site: Site, now: float) -> dict[str, Any]:
    """Mean waits of the last four weeks by day of the advice (the site's clock); days without jobs left out.

    ``without_us_seconds`` has the forecast wait on-premise for moved jobs: an estimate, which does not count
    that the jobs behind them start sooner, too.
    """
    offset = site.settings().cluster.utc_offset_seconds
    today = (now + offset) // _DAY * _DAY - offset
    begins = [today - number * _DAY for number in range(_WAIT_DAYS - 1, -1, -1)]
    with site.history() as store:
        found = store.waits((begin, begin + _DAY) for begin in begins)
    days = [
        {
            "day": day_of(begin + offset),
            "jobs": of_day.jobs,
            "moved": of_day.moved,
            "with_us_seconds": of_day.with_us / of_day.jobs,
            "without_us_seconds": of_day.without_us / of_day.jobs,
        }
        for begin, of_day in zip(begins, found, strict=True)
        if of_day.jobs
    ]
    return {"days": days}


def _wait_plots(waits: Mapping[str, Any]) -> list[Drawn]:
    """Waits with and without us; none where no job has ended."""
    days = waits.get("days")
    if not days:
        return []
    figure = go.Figure()
    for name, key, line in (
        ("without us (forecast)", "without_us_seconds", {"color": COLOURS[3], "dash": "dot"}),
        ("with us", "with_us_seconds", {"color": COLOURS[0]}),
    ):
        hours = [day[key] / 3600.0 for day in days]
        add_line(figure, name, [day["day"] for day in days], hours, **line)
    return [drawn_by_day(figure, "Mean wait of jobs with advice, by day of the advice", "hours")]


def _last_day(site: Site, now: float) -> dict[str, Any]:
    """Decisions of the last day by placement, the reasons why jobs stayed, and the newest moves."""
    with site.history() as store:
        counts = store.decision_counts(Wanted(since=now - _DAY))
        moved = store.newest_decisions(Wanted(since=now - _DAY, placement=Placement.BURST), _MOVED_ROWS)
    placements: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for (placement, _, reason), number in counts.items():
        placements[placement.value] = placements.get(placement.value, 0) + number
        if placement is Placement.ON_PREMISE:
            reasons[reason] = reasons.get(reason, 0) + number
    most = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return {
        "placements": placements,
        "stayed_because": dict(most),
        "moved": [decision_row(decision) for decision in moved],
    }
