"""The what-if page: a form for other settings, and the results of `advisor whatif` with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import plotly.graph_objects as go
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from advisor.config.definitions import Definition, by_key
from advisor.config.explaining import describe
from advisor.config.reference import toml_text, values_of
from advisor.model.errors import RetryLater
from advisor.model.settings import Settings
from advisor.service.admin.ledger_view import LedgerSums
from advisor.service.admin.plots import COLOURS, styled
from advisor.service.admin.rehearsal_words import fidelity_words
from advisor.service.admin.whatif_words import whatif_table, window_words
from advisor.web.answers import Answers, RefusedError, part
from advisor.web.asking import since_of
from advisor.web.forms import read_form
from advisor.web.plots import Drawn, drawn
from advisor.web.site import Site
from advisor.web.whatif_runs import MAX_SECONDS, Run, RunState

WITH_OWN_FIELD: Final = (
    "cluster.policy",
    "budget.usd",
    "budget.period",
    "budget.usd_per_hour_saved",
    "price.uncertainty_limit_minutes",
    "price.loss_weight",
    "hedge.enabled",
    "placement.overhead_per_processor",
    "placement.baseline",
    "placement.boot_seconds",
    "rules.max_processors",
    "ec2.on_demand_usd_per_hour",
)
"""Settings with their own field in the form; the others are typed into one field."""
_SINCE: Final = "30d"
_MAX_CHANGES: Final = 40
_DECIDED_SECONDS: Final = 300.0


def add_to(app: FastAPI, site: Site, answers: Answers) -> None:
    """Add the pages."""

    @app.api_route("/whatif", methods=["GET", "HEAD"])
    def form(request: Request, like: str = "") -> Response:
        before = site.runs.get(like) if like else None
        runs = [run.as_data() | {"result": None} for run in site.runs.all()]
        running = site.runs.running()
        return answers.page(
            request,
            "whatif.html",
            {"runs": runs, "running": None if running is None else running.run_id},
            fields=_fields(site.settings()),
            asked=_asked(before),
        )

    @app.post("/whatif")
    async def start(request: Request) -> Response:
        asked = await read_form(request, site)
        return await run_in_threadpool(_start, site, asked)

    @app.api_route("/whatif/{run_id}", methods=["GET", "HEAD"])
    def show(request: Request, run_id: str) -> Response:
        run = _run(site, run_id)
        result = run.result
        decided = part(lambda: _decided(site, float(result["since"]))) if result else None
        headings, cells = whatif_table(result["rows"]) if result else ((), [])
        return answers.page(
            request,
            "whatif_run.html",
            run.as_data() | {"decided": decided},
            headings=headings,
            cells=cells,
            about=window_words(result) if result else "",
            fidelity=list(fidelity_words(result["fidelity"])) if result else [],
            plots=_plots(result) if result else [],
            is_running=run.state is RunState.RUNNING,
        )

    @app.post("/whatif/{run_id}/cancel")
    async def cancel(request: Request, run_id: str) -> Response:
        await read_form(request, site)
        await run_in_threadpool(site.runs.cancel, _run(site, run_id).run_id)
        return RedirectResponse(f"{site.first.web.path}/whatif/{run_id}", 303)


def _asked(before: Run | None) -> dict[str, str]:
    """The form's values by field: empty, or those of an earlier run."""
    empty = dict.fromkeys(WITH_OWN_FIELD, "")
    if before is None:
        return {"since": _SINCE, "more": "", **empty}
    pairs = [change.partition("=") for change in before.changes]
    tuned = {key: value for key, _, value in pairs if key in WITH_OWN_FIELD}
    more = [f"{key}={value}" for key, _, value in pairs if key not in WITH_OWN_FIELD]
    return {"since": before.since, "more": "\n".join(more), **empty, **tuned}


def _run(site: Site, run_id: str) -> Run:
    run = site.runs.get(run_id)
    if run is None:
        raise RefusedError(404, "there is no such what-if; only the last ones are kept, until a restart")
    return run


def _start(site: Site, asked: Mapping[str, str]) -> Response:
    since = asked.get("since", "").strip() or _SINCE
    since_of(since, site.now())
    changes = [f"{key}={asked[key].strip()}" for key in WITH_OWN_FIELD if asked.get(key, "").strip()]
    changes += [line.strip() for line in asked.get("more", "").splitlines() if line.strip()]
    if len(changes) > _MAX_CHANGES:
        raise RefusedError(400, f"at most {_MAX_CHANGES} changes at a time")
    if any("\0" in change for change in (since, *changes)):
        raise RefusedError(400, "a value has a NUL character")
    try:
        run = site.runs.start(since, changes, longest_seconds=MAX_SECONDS)
    except RetryLater as error:
        raise RefusedError(409, str(error)) from None
    return RedirectResponse(f"{site.first.web.path}/whatif/{run.run_id}", 303)


def _fields(settings: Settings) -> list[dict[str, Any]]:
    """The form's settings, with their values in force and their limits."""
    values, known = values_of(settings), by_key()
    fields: list[dict[str, Any]] = []
    for key in WITH_OWN_FIELD:
        definition = known[key]
        fields.append(
            {
                "key": key,
                "now": toml_text(values[key]).strip('"').removesuffix(".0"),
                "unit": definition.unit,
                "about": definition.meaning.replace("`", ""),
                "limits": describe(definition),
                "choices": _choices(definition),
            }
        )
    return fields


def _choices(definition: Definition) -> tuple[str, ...]:
    return ("true", "false") if definition.kind == "true or false" else definition.choices


def _decided(site: Site, since: float) -> dict[str, Any]:
    """The ledger's sums of the actual decisions in that time."""

    def read() -> dict[str, Any]:
        sums = LedgerSums()
        with site.history() as store:
            for row in store.ledger(since):
                sums.add(row)
        return {"since": since, **sums.summary()}

    return site.cache.get(("decided", since), _DECIDED_SECONDS, read)


def _plots(result: Mapping[str, Any]) -> list[Drawn]:
    """Hours saved and money, side by side."""
    names = [row["settings"] for row in result["rows"]]
    found = []
    for key, title, unit, colour in (
        ("saved_hours", "Hours saved, all jobs", "hours", COLOURS[0]),
        ("cost_usd", "Money", "US dollars", COLOURS[3]),
    ):
        values = [row[key] for row in result["rows"]]
        figure = go.Figure(go.Bar(x=names, y=values, marker_color=colour))
        found.append(drawn(styled(figure, title, unit)))
    return found
