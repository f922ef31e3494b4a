"""The cloud page (nodes, pools, money) and the portfolio page, from files only."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from advisor.model.bill import midnight
from advisor.service.admin.cloud_written import (
    nodes_written,
    pools_written,
    portfolio_written,
    predicted_against_billed,
)
from advisor.service.admin.money import days_before, reckoned_in_words, spend_view
from advisor.service.admin.status_words import portfolio_rows
from advisor.web.answers import Answers, part
from advisor.web.site import Site

_BILL_SECONDS: Final = 300.0
_SPEND_SECONDS: Final = 5.0
_WEEK: Final = 7 * 86_400.0


def routes(site: Site, answers: Answers) -> APIRouter:
    """The pages."""
    router = APIRouter()

    @router.api_route("/cloud", methods=["GET", "HEAD"])
    def cloud(request: Request) -> Response:
        settings, now = site.settings(), site.now()
        data = {
            "nodes": part(lambda: nodes_written(settings, now)),
            "pools": part(lambda: pools_written(settings, now)),
            "spend": part(lambda: {**money_today(site, now), **_billed(site, now)}),
        }
        spend = data["spend"]
        reckoned = "" if "error" in spend else reckoned_in_words(spend)
        return answers.page(request, "cloud.html", data, reckoned=reckoned)

    @router.api_route("/portfolio", methods=["GET", "HEAD"])
    def portfolio(request: Request) -> Response:
        data = part(lambda: portfolio_written(site.settings(), site.now()))
        rows = [] if "error" in data else portfolio_rows(data)
        return answers.page(request, "portfolio.html", data, rows=rows, trouble=data.get("error"))

    return router


def money_today(site: Site, now: float) -> dict[str, Any]:
    """Today's money and the last days, as `advisor spend` shows them."""

    def read() -> dict[str, Any]:
        with site.history() as store:
            key = ("days before", midnight(now))
            before = site.cache.get(key, _BILL_SECONDS, lambda: days_before(store, now))
            return spend_view(site.settings(), store, now, before)

    return site.cache.get("spend", _SPEND_SECONDS, read)


def _billed(site: Site, now: float) -> dict[str, Any]:
    """What the moved jobs of the last week were to cost, and did."""
    since = now - _WEEK

    def read() -> dict[str, Any]:
        with site.history() as store:
            return {"since": since, "jobs": predicted_against_billed(store, since)}

    return site.cache.get("billed", _BILL_SECONDS, read)
