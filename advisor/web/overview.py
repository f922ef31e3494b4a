"""The first page: how the advisor and its cluster are."""

from __future__ import annotations

import http.client
from contextlib import closing
from typing import Any, Final

from fastapi import APIRouter
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from starlette.responses import Response

from advisor.history.ledger import Wanted
from advisor.model.advice import Placement
from advisor.model.settings import Settings
from advisor.service.admin.cloud_written import spend_written
from advisor.service.admin.status_report import ask_serve, status_report
from advisor.service.admin.status_words import status_rows
from advisor.web.answers import Answers, part
from advisor.web.site import Site

_SERVE_SECONDS: Final = 5.0
_REASON_SECONDS: Final = 60.0
_DAY: Final = 86_400.0
_METRICS_BYTES: Final = 4 * 1024 * 1024


def routes(site: Site, answers: Answers) -> APIRouter:
    """The page."""
    router = APIRouter()

    @router.api_route("/", methods=["GET", "HEAD"])
    def overview(request: Request) -> Response:
        settings, now = site.settings(), site.now()
        serve = site.cache.get("serve", _SERVE_SECONDS, lambda: _serve(settings))
        status = status_report(settings, now, serve)
        stays = site.cache.get("stays", _REASON_SECONDS, lambda: part(lambda: _stays(site, now)))
        data = {**status, "spend": part(lambda: spend_written(settings, now)), "last_day": stays}
        return answers.page(request, "overview.html", data, rows=status_rows(status))

    return router


def _stays(site: Site, now: float) -> dict[str, Any]:
    """What was decided in the last day, and what kept jobs from the cloud."""
    with site.history() as store:
        counts = store.decision_counts(Wanted(since=now - _DAY))
    placements: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for (placement, _, reason), number in counts.items():
        placements[placement.value] = placements.get(placement.value, 0) + number
        if placement is Placement.ON_PREMISE:
            reasons[reason] = reasons.get(reason, 0) + number
    most = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return {"placements": placements, "stayed_because": dict(most)}


def _serve(settings: Settings) -> dict[str, Any]:
    """What is known of the submit server: from itself, else from what `advisor control` shows of it.

    The unit may open no Unix socket, so that no page can ever hand anything over to the other processes;
    ``running`` is None where nobody could be asked.
    """
    found = ask_serve(settings)
    if found["running"] or not settings.loops.metrics_port:
        return found
    try:
        values = _metrics(settings.loops.metrics_address, settings.loops.metrics_port)
    except (OSError, http.client.HTTPException, ValueError):
        return {**found, "running": None}
    if not values.get("advisor_serve_up"):
        return found
    advised = sum(value for name, value in values.items() if name.startswith("advisor_serve_advice_total"))
    return {
        "running": True,
        "answer_seconds": None,
        "advice_given": int(advised),
        "model_version": _version(values, "predictor"),
        "placement_version": "in use" if values.get("advisor_serve_placement_in_use") else None,
    }


def _metrics(address: str, port: int) -> dict[str, float]:
    """Samples of the submit server by name and labels."""
    with closing(http.client.HTTPConnection(address, port, timeout=2.0)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read(_METRICS_BYTES).decode()
    return {
        f"{sample.name}{''.join(sorted(sample.labels.values()))}": sample.value
        for family in text_string_to_metric_families(text)
        if family.name.startswith("advisor_serve")
        for sample in family.samples
    }


def _version(values: dict[str, float], kind: str) -> str | None:
    version = values.get(f"advisor_serve_model_version{kind}")
    return None if version is None else f"{version:08.0f}"
