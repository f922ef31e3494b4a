"""The first page: the state of the advisor and its cluster."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from advisor.history.ledger import Wanted
from advisor.model.advice import Placement
from advisor.service.admin.ledger_view import decision_row
from advisor.service.admin.status_report import ask_serve, status_report
from advisor.service.admin.status_words import status_rows
from advisor.web.answers import Answers, part
from advisor.web.cloud import money_today
from advisor.web.site import Site

_SERVE_SECONDS: Final = 5.0
_REASON_SECONDS: Final = 60.0
_DAY: Final = 86_400.0
_MOVED_ROWS: Final = 5


def routes(site: Site, answers: Answers) -> APIRouter:
    """The page."""
    router = APIRouter()

    @router.api_route("/", methods=["GET", "HEAD"])
    def overview(request: Request) -> Response:
        settings, now = site.settings(), site.now()
        serve = site.cache.get("serve", _SERVE_SECONDS, lambda: ask_serve(settings))
        status = status_report(settings, now, serve)
        stays = site.cache.get("stays", _REASON_SECONDS, lambda: part(lambda: _stays(site, now)))
        data = {**status, "spend": part(lambda: money_today(site, now)), "last_day": stays}
        return answers.page(request, "overview.html", data, rows=status_rows(status))

    return router


def _stays(site: Site, now: float) -> dict[str, Any]:
    """What was decided in the last day: what kept jobs from the cloud, and which were moved last."""
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
