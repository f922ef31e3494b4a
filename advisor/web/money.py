"""The page of money: spent and promised beside the budgets, by account and by day."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import plotly.graph_objects as go
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from advisor.model.bill import day_of, midnight
from advisor.model.periods import period_name, period_span
from advisor.service.admin.cloud_written import predicted_against_billed
from advisor.service.admin.money import KNOWN_DAYS, days_before, reckoned_in_words, spend_view
from advisor.service.admin.plots import COLOURS
from advisor.web.answers import Answers, part
from advisor.web.plots import Drawn, add_aim, add_line, drawn_by_day
from advisor.web.site import Site

_BILL_SECONDS: Final = 300.0
_SPEND_SECONDS: Final = 5.0
_WEEK: Final = 7 * 86_400.0
_DAY: Final = 86_400.0
_DAYS: Final = 14


def add_to(app: FastAPI, site: Site, answers: Answers) -> None:
    """Add the page."""

    @app.api_route("/money", methods=["GET", "HEAD"])
    def money(request: Request) -> Response:
        now = site.now()
        data = part(lambda: {**money_today(site, now), **_billed(site, now)})
        reckoned = "" if "error" in data else reckoned_in_words(data)
        return answers.page(
            request,
            "money.html",
            data,
            reckoned=reckoned,
            plots=budget_plots(data, now),
            trouble=data.get("error"),
        )


def money_today(site: Site, now: float) -> dict[str, Any]:
    """Today's money and the last days, as `advisor spend` shows them."""

    def read() -> dict[str, Any]:
        with site.history() as store:
            key = ("days before", midnight(now))
            before = site.cache.get(key, _BILL_SECONDS, lambda: days_before(store, now))
            return spend_view(site.settings(), store, now, before)

    return site.cache.get("spend", _SPEND_SECONDS, read)


def _billed(site: Site, now: float) -> dict[str, Any]:
    """The predicted and the actual cost of the moved jobs of the last week."""
    since = now - _WEEK

    def read() -> dict[str, Any]:
        with site.history() as store:
            return {"since": since, "jobs": predicted_against_billed(store, since)}

    return site.cache.get("billed", _BILL_SECONDS, read)


def budget_plots(spend: Mapping[str, Any], now: float) -> list[Drawn]:
    """Money spent in the budget's period beside even spending; none where there is neither.

    The line begins at the first known day of a longer period, with what the budget has counted before it.
    """
    if "error" in spend or not (spend.get("budget_usd") or spend.get("days")):
        return []
    by_day = {row["day"]: row["usd"] for row in spend["days"]}
    if spend["budget_period"] == "day":
        return [_by_day(by_day, spend.get("budget_usd"), now)]
    begin, end = period_span(now, spend["budget_period"])
    days = [begin + number * _DAY for number in range(round((end - begin) / _DAY))]
    names = [day_of(time) for time in days]
    known_from = midnight(now) - (KNOWN_DAYS - 1) * _DAY
    known = math.fsum(by_day.get(name, 0.0) for name in names)
    sums, together = [], max(0.0, spend["spent_usd"] - known) if begin < known_from else 0.0
    for name, time in zip(names, days, strict=True):
        together += by_day.get(name, 0.0)
        sums.append(together if known_from <= time <= now else None)
    figure = go.Figure()
    add_line(figure, "spent", names, sums, color=COLOURS[0])
    if budget := spend.get("budget_usd"):
        even = [budget * (number + 1) / len(days) for number in range(len(days))]
        add_aim(figure, "even spending", names, even)
    title = f"Spent since the {period_name(spend['budget_period'])} began (UTC)"
    return [drawn_by_day(figure, title, "US dollars")]


def _by_day(by_day: Mapping[str, float], budget: float | None, now: float) -> Drawn:
    """The last days beside the budget of a day."""
    names = [day_of(now - number * _DAY) for number in range(_DAYS - 1, -1, -1)]
    figure = go.Figure()
    figure.add_bar(
        x=names, y=[by_day.get(name, 0.0) for name in names], name="spent", marker_color=COLOURS[0]
    )
    if budget:
        add_aim(figure, "budget of a day", names, [budget] * _DAYS)
    return drawn_by_day(figure, "Spent by day (UTC)", "US dollars")
