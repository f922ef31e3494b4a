"""The page Accuracy: how well forecasts hold, week by week and by partition, and what has drifted."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import plotly.graph_objects as go
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from advisor.decide.explanation.display import clean
from advisor.model.bill import day_of
from advisor.service.admin.accuracy import accuracy_view, drift_view
from advisor.service.admin.plots import COLOURS
from advisor.web.answers import Answers, part
from advisor.web.plots import Drawn, add_aim, add_line, drawn_by_day
from advisor.web.site import Site

_SECONDS: Final = 900.0
_PER_CENT: Final = (0, 104)  # a point at 100 is seen whole
_LINES: Final = tuple(COLOURS[number] for number in (0, 1, 2, 3, 5, 6))
_KINDS: Final = (("waits", "waits", COLOURS[0]), ("run times", "runs", COLOURS[3]))


def add_to(app: FastAPI, site: Site, answers: Answers) -> None:
    """Add the page."""

    @app.api_route("/accuracy", methods=["GET", "HEAD"])
    def accuracy(request: Request) -> Response:
        def read() -> dict[str, Any]:
            with site.history() as store:
                return accuracy_view(store, site.now())

        data = site.cache.get("accuracy", _SECONDS, read)
        drift = part(lambda: drift_view(site.settings(), site.now()))
        return answers.page(
            request,
            "accuracy.html",
            {**data, "drift": drift},
            kinds=_KINDS,
            plots=_plots(data),
            drift_plots=_drift_plots(drift),
        )


def _plots(data: Mapping[str, Any]) -> list[Drawn]:
    """Coverage of both forecasts beside what it should be; none where no week has enough jobs."""
    weeks = data["weeks"]
    figure, nominal = go.Figure(), None
    for name, key, colour in _KINDS:
        rows = [row for row in weeks if row[key]["coverage"] is not None]
        if rows:
            nominal = rows[-1][key]["nominal"]
            shares = [100.0 * row[key]["coverage"] for row in rows]
            add_line(figure, name, [day_of(row["end"]) for row in rows], shares, color=colour)
    if nominal is None:
        return []
    ends = [day_of(row["end"]) for row in weeks]
    add_aim(figure, "as promised", ends, [100.0 * nominal] * len(ends))
    figure.update_yaxes(range=_PER_CENT)
    return [drawn_by_day(figure, "Jobs within their interval", "% of jobs", "week that ended")]


def _drift_plots(drift: Mapping[str, Any]) -> list[Drawn]:
    """Intervals that held by day, for each partition, beside the band; none where nothing was judged."""
    days = drift.get("days")
    if not days:
        return []
    figure = go.Figure()
    # those with the most jobs: more lines than colours cannot be told apart
    jobs = Counter[str]()
    for one in days:
        jobs[one["partition"]] += one["cases"]
    for (name, _), colour in zip(jobs.most_common(), _LINES, strict=False):
        rows = [one for one in days if one["partition"] == name]
        shares = [100.0 * one["coverage"] for one in rows]
        label = html.escape(clean(name, 40))
        add_line(figure, label, [day_of(one["day"]) for one in rows], shares, color=colour)
    ends = sorted({day_of(one["day"]) for one in days})
    add_aim(figure, "least of a week", ends, [100.0 * drift["least"]] * len(ends))
    figure.update_yaxes(range=_PER_CENT)
    title = "Waits and run times within their interval, by partition"
    return [drawn_by_day(figure, title, "% of intervals", "day")]
