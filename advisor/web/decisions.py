"""The page of decisions, newest first."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from advisor.decide.explanation.reasons import Reason
from advisor.history.ledger import Wanted
from advisor.model.advice import Placement
from advisor.service.admin.ledger_view import decision_row
from advisor.web.answers import Answers
from advisor.web.asking import before_of, before_text, job_id_of, limit_of, placement_of, since_of, word_of
from advisor.web.forms import person_of
from advisor.web.persons import Person
from advisor.web.site import Site

_COUNT_SECONDS: Final = 60.0


def add_to(app: FastAPI, site: Site, answers: Answers) -> None:
    """Add the page."""

    @app.api_route("/decisions", methods=["GET", "HEAD"])
    def decisions(
        request: Request,
        since: str = "1d",
        user: str = "",
        placement: str = "",
        reason: str = "",
        job: str = "",
        limit: str = "",
        before: str = "",
    ) -> Response:
        person = person_of(request)
        if not person.sees_all:
            user = person.name
        asked = {"since": since, "user": user, "placement": placement, "reason": reason, "job": job}
        wanted = _wanted(asked, person, site.now())
        rows, after = _rows(site, wanted, limit_of(limit), before_of(before))
        counted = site.cache.get(("counts", *asked.values()), _COUNT_SECONDS, lambda: _counted(site, wanted))
        asked["limit"] = limit
        data = {
            "since": wanted.since,
            "total": sum(counted.values()),
            "placements": counted,
            "decisions": rows,
            "before": after,
        }
        older = urlencode({**{name: text for name, text in asked.items() if text}, "before": after or ""})
        return answers.page(
            request,
            "decisions.html",
            data,
            asked=asked,
            older=older if after else None,
            is_first=not before,
            choices={"placement": list(Placement), "reason": sorted(Reason)},
        )


def _wanted(asked: dict[str, str], person: Person, now: float) -> Wanted:
    """The filter that the address asks for, among the jobs that the person may see."""
    job = job_id_of(asked["job"])
    return Wanted(
        since=since_of(asked["since"], now),
        user=word_of(asked["user"], "user") if person.sees_all else person.name,
        placement=placement_of(asked["placement"]),
        reason=word_of(asked["reason"], "reason"),
        job_id=None if job is None else job.job,
    )


def _rows(
    site: Site, wanted: Wanted, limit: int, before: tuple[float, str] | None
) -> tuple[list[dict[str, Any]], str | None]:
    """A page, newest first, and where the next one begins; None where there is none."""
    with site.history() as store:
        found = store.newest_decisions(wanted, limit + 1, before=before)
    rows = [decision_row(decision) for decision in found[:limit]]
    return rows, before_text(rows[-1]["time"], rows[-1]["advice_id"]) if len(found) > limit else None


def _counted(site: Site, wanted: Wanted) -> dict[str, int]:
    with site.history() as store:
        counts = store.decision_counts(wanted)
    found: dict[str, int] = {}
    for (placement, _, _), number in counts.items():
        found[placement.value] = found.get(placement.value, 0) + number
    return found
