"""The pages about the cloud's nodes: nodes and pools, and the portfolio, from files only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from advisor.service.admin.cloud_written import nodes_written, pools_written, portfolio_written
from advisor.service.admin.status_words import portfolio_rows
from advisor.web.answers import Answers, part
from advisor.web.site import Site


def add_to(app: FastAPI, site: Site, answers: Answers) -> None:
    """Add the pages."""

    @app.api_route("/nodes", methods=["GET", "HEAD"])
    def nodes(request: Request) -> Response:
        settings, now = site.settings(), site.now()
        data = {
            "nodes": part(lambda: nodes_written(settings, now)),
            "pools": part(lambda: pools_written(settings, now)),
        }
        return answers.page(request, "nodes.html", data, markets=by_market(data["nodes"]))

    @app.api_route("/portfolio", methods=["GET", "HEAD"])
    def portfolio(request: Request) -> Response:
        data = part(lambda: portfolio_written(site.settings(), site.now()))
        rows = [] if "error" in data else portfolio_rows(data)
        return answers.page(request, "portfolio.html", data, rows=rows, trouble=data.get("error"))


def by_market(written: Mapping[str, Any]) -> list[tuple[str, int, float]]:
    """Market to the number of its instances and their US dollars per hour; empty without a report."""
    counted, usd = Counter[str](), dict[str, float]()
    for row in written.get("nodes", ()):
        if row.get("instance_id"):
            market = str(row.get("capacity") or "unknown")
            counted[market] += 1
            usd[market] = usd.get(market, 0.0) + (row.get("usd_per_hour") or 0.0)
    return [(market, number, usd[market]) for market, number in sorted(counted.items())]
