"""The page Tune: the few knobs, what they would have brought, Apply with a reason, and Undo."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from advisor.config.editing import edited
from advisor.config.redacting import redacted
from advisor.decide.explanation.display import duration, usd
from advisor.model.advice import Mode
from advisor.model.errors import BadInput
from advisor.model.settings import Settings
from advisor.service.admin.curves import KeptCurves, Outlook, kept, outlook, path_of
from advisor.service.admin.plots import COLOURS, styled
from advisor.service.state.applied import SettingsHistory, changes_of
from advisor.web.answers import Answers, RefusedError
from advisor.web.forms import person_of, read_form
from advisor.web.plots import add_line, drawn
from advisor.web.site import Site
from advisor.web.tune_form import MODE, PERIODS, TuneForm, form_of, limit_choices

_SHOWN: Final = 50
_REFUSED: Final = {"config.reason": 400, "config.unchanged": 400, "config.undo": 409}


def add_to(app: FastAPI, site: Site, answers: Answers) -> None:
    """Add the pages."""
    pages = _Pages(site, answers)
    shown = ["GET", "HEAD"]
    app.add_api_route("/tune", pages.tune, methods=shown)
    app.add_api_route("/tune/review", pages.review, methods=shown)
    app.add_api_route("/tune/undo/{number}", pages.review_undo, methods=shown)
    app.add_api_route("/tune/apply", pages.apply, methods=["POST"])
    app.add_api_route("/tune/undo/{number}", pages.undo, methods=["POST"])


class _Pages:
    """The knobs with their curve, the review of a change, and what writes it."""

    def __init__(self, site: Site, answers: Answers) -> None:
        self._site = site
        self._answers = answers

    def tune(self, request: Request) -> Response:
        loaded = self._site.load()
        form = form_of(request.query_params, loaded)
        curves = _curves(self._site, loaded.settings.paths.state)
        data = _outlook(curves, loaded.settings, form)
        history = _history(self._site).entries()[-_SHOWN:][::-1]
        plots = [drawn(_figure(curves, data))] if curves and data["now"] else []
        return self._answers.page(
            request,
            "tune.html",
            {"changes": form.changes, **data, "history": history},
            form=form,
            knobs=_knobs(loaded.settings, form),
            curves=curves,
            said=_said(data),
            plots=plots,
            policy=loaded.settings.cluster.policy,
        )

    def review(self, request: Request) -> Response:
        form = form_of(request.query_params, self._site.load())
        if not form.changes:
            raise RefusedError(400, "nothing would change: choose another value on the page Tune")
        return self._review(request, form.changes, action="apply", reason="", fields=form.fields)

    def review_undo(self, request: Request, number: int) -> Response:
        try:
            changes = _history(self._site).to_undo(number)
        except BadInput as error:
            raise _refused(error) from None
        return self._review(
            request, changes, action=f"undo/{number}", reason=f"undo of change {number}", fields={}
        )

    async def apply(self, request: Request) -> Response:
        asked = await read_form(request, self._site)
        return await self._write(request, asked, lambda: form_of(asked, self._site.load()).changes, None)

    async def undo(self, request: Request, number: int) -> Response:
        asked = await read_form(request, self._site)
        return await self._write(request, asked, lambda: _history(self._site).to_undo(number), number)

    async def _write(
        self,
        request: Request,
        asked: Mapping[str, str],
        changes: Callable[[], dict[str, Any]],
        undone: int | None,
    ) -> Response:
        author = person_of(request).name
        return await run_in_threadpool(_apply, self._site, asked, author, changes, undone)

    def _review(
        self,
        request: Request,
        changes: dict[str, Any],
        *,
        action: str,
        reason: str,
        fields: Mapping[str, str],
    ) -> Response:
        file = self._site.load().file
        before, after = edited(file, changes)
        diff = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
        try:
            changed = changes_of(file, changes)
        except BadInput as error:
            raise _refused(error) from None
        data = {"changes": changed, "diff": [redacted(line) for line in diff], "file_hash": _hash(before)}
        return self._answers.page(
            request, "tune_review.html", data, action=action, reason=reason, fields=fields, file=str(file)
        )


def _apply(site: Site, asked: Mapping[str, str], author: str, changes: Any, undoes: int | None) -> Response:
    """Write the changes, if the file is still the one that the diff was made from."""
    try:
        history = _history(site)
        with history.alone():
            wanted = changes()
            before, _ = edited(site.load().file, wanted)
            if _hash(before) != asked.get("base"):
                raise RefusedError(
                    409, "the settings have changed meanwhile: open the page again and look anew"
                )
            history.apply(
                wanted, author=author, reason=asked.get("reason", ""), now=site.now(), undoes=undoes
            )
    except BadInput as error:
        raise _refused(error) from None
    site.cache.forget("settings")
    return RedirectResponse(f"{site.first.web.path}/tune#history", 303)


def _refused(error: BadInput) -> RefusedError:
    if error.code == "config.unwritable":
        return RefusedError(
            503,
            f"{error}. To let the pages write it, give its folder to the user advisor (chown -R) and install "
            "the drop-in advisor-web-apply.conf (docs/pages.md). Until then use `advisor config set`",
        )
    return RefusedError(_REFUSED.get(error.code, 400), str(error))


def _history(site: Site) -> SettingsHistory:
    return SettingsHistory(site.load().file, site.settings().paths.state)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _curves(site: Site, state: Path) -> KeptCurves | None:
    """The kept curves, read again when their file has changed."""
    try:
        changed = path_of(state).stat().st_mtime_ns
    except OSError:
        return None
    return site.cache.get(("curves", str(state), changed), 3600.0, lambda: kept(state))


def _outlook(curves: KeptCurves | None, now: Settings, form: TuneForm) -> dict[str, Any]:
    """The results of the settings in force and of those asked for; None without a curve."""
    nothing: dict[str, Any] = {"computed": None, "now": None, "then": None, "points": []}
    if curves is None:
        return nothing
    before = curves.of_limit(now.price.uncertainty_limit_minutes)
    after = curves.of_limit(form.settings.price.uncertainty_limit_minutes)
    if before is None or after is None:
        return nothing | {"computed": curves.time}
    return {
        "computed": curves.time,
        "now": outlook(curves, before, now),
        "then": outlook(curves, after, form.settings) if form.changes else None,
        "points": [_point(point) for point in after.points],
    }


def _point(point: Any) -> dict[str, float]:
    names = ("usd", "cost_usd", "saved_hours", "saved_hours_low", "saved_hours_high", "mean_wait_seconds")
    return {name: getattr(point, name) for name in (*names, "moved_jobs", "later_share")}


def _said(data: Mapping[str, Any]) -> list[str]:
    """The outlook in sentences."""
    said = []
    for name, key in (("With the settings in force", "now"), ("With these values", "then")):
        found: Outlook | None = data[key]
        if found is None:
            continue
        if found.cost_usd <= 0.0:
            unset = "neither a budget nor a price of an hour is set"
            why = f"{unset}, or the price is less than an hour costs at the smallest budget of the curve"
            said.append(f"{name} no job moves, because {why}.")
            continue
        beyond = " More money than the largest budget of the curve: its figures." if found.is_beyond else ""
        said.append(
            f"{name} a month would have cost {usd(found.cost_usd)} and saved {found.saved_hours:,.0f} hours: "
            f"{found.moved_jobs:,.0f} jobs moved, and the mean wait of all jobs was "
            f"{duration(found.mean_wait_seconds)}.{beyond}"
        )
    return said


def _figure(curves: KeptCurves, data: Mapping[str, Any]) -> go.Figure:
    """Hours saved against dollars, with where the settings are on the curve."""
    points = data["points"]
    spent = [0.0, *(point["cost_usd"] for point in points)]
    figure = go.Figure()
    for key, fill in (("saved_hours_high", None), ("saved_hours_low", "tonexty")):
        figure.add_scatter(
            x=spent,
            y=[0.0, *(point[key] for point in points)],
            mode="lines",
            line={"width": 0},
            fill=fill,
            fillcolor="rgba(76,110,245,0.18)",
            showlegend=False,
            hoverinfo="skip",
        )
    saved = [0.0, *(point["saved_hours"] for point in points)]
    add_line(figure, "hours saved", spent, saved, color=COLOURS[0])
    marks = (("in force", "now", "circle", COLOURS[4]), ("with these values", "then", "diamond", COLOURS[3]))
    for name, key, symbol, colour in marks:
        found: Outlook | None = data[key]
        if found is not None:
            figure.add_scatter(
                x=[found.cost_usd],
                y=[found.saved_hours],
                name=name,
                mode="markers",
                marker={"size": 15, "symbol": symbol, "color": colour},
            )
    figure.update_xaxes(title="US dollars spent in a month", rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return styled(figure, f"Hours saved in a month, by the last {curves.weeks} weeks", "hours")


def _knobs(now: Settings, form: TuneForm) -> dict[str, Any]:
    """The values of the form's fields."""
    partitions = [
        {"field": f"{MODE}{name}", "name": name, "value": form.fields[f"{MODE}{name}"]}
        for name in now.cluster.on_premise_partitions
    ]
    return {
        "periods": tuple(dict.fromkeys((*PERIODS, now.budget.period))),
        "limits": limit_choices(now),
        "modes": [str(mode) for mode in Mode],
        "partitions": partitions,
    }
