"""Pages with a replay's figures drawn: one file each, the plotting library inside, nothing fetched."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from advisor.files.whole_file import replace_file
from advisor.model.errors import BadInput

COLOURS = ("#4c6ef5", "#f59f00", "#12b886", "#e64980", "#868e96", "#7950f2", "#15aabf")
_HEIGHT = 460

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font-family:system-ui,sans-serif;margin:2rem auto;max-width:1000px;color:#212529}}
p{{color:#495057;line-height:1.5}}
@media screen and (prefers-color-scheme:dark){{body{{background:#16191d;color:#e9ecef}}p{{color:#ced4da}}
.plotly-graph-div{{filter:invert(.91) hue-rotate(180deg)}}}}</style><script>{library}</script></head>
<body><h1>{title}</h1><p>{about}</p>{plots}</body></html>
"""


def write_page(path: Path, title: str, about: str, figures: Sequence[go.Figure]) -> None:
    """Write figures below each other as one page, atomically.

    Titles and texts may hold names from logs: they are escaped.

    Raises
    ------
    BadInput
        The file cannot be written.
    """
    plots = "".join(figure.to_html(full_html=False, include_plotlyjs=False) for figure in figures)
    page = _PAGE.format(
        title=html.escape(title), about=html.escape(about), library=get_plotlyjs(), plots=plots
    )
    try:
        replace_file(path, page.encode())
    except OSError as error:
        raise _unwritable(path, error.strerror or "") from None


def refuse_unwritable(path: Path) -> None:
    """Say at once that the page could not be written, not after what it is to show has been replayed.

    Raises
    ------
    BadInput
        Its folder is not there or cannot be written to, or a folder has its name.
    """
    if not path.parent.is_dir():
        raise _unwritable(path, "No such folder")
    if path.is_dir():
        raise _unwritable(path, "Is a directory")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _unwritable(path, "Permission denied")


def _unwritable(path: Path, reason: str) -> BadInput:
    return BadInput(
        f"cannot write the page ({reason})",
        where=str(path),
        mend="Give a folder that can be written to",
        code="plot.unwritable",
    )


def styled(figure: go.Figure, title: str, unit: str) -> go.Figure:
    """One look for all pages; ``unit`` names the value axis."""
    figure.update_layout(
        title=html.escape(title),
        template="plotly_white",
        height=_HEIGHT,
        yaxis_title=html.escape(unit),
        legend={"orientation": "h", "y": -0.15},
        margin={"t": 60, "l": 70, "r": 20},
    )
    return figure


def grouped_bars(
    rows: Sequence[dict[str, Any]], *, across: str, beside: str, value: str, deviation: str | None = None
) -> go.Figure:
    """Bars of one value: groups by ``across``, one colour for each ``beside``."""
    figure = go.Figure()
    for index, name in enumerate(dict.fromkeys(row[beside] for row in rows)):
        mine = [row for row in rows if row[beside] == name]
        spread = None if deviation is None else {"type": "data", "array": [row[deviation] for row in mine]}
        figure.add_bar(
            name=html.escape(str(name)),
            x=[html.escape(str(row[across])) for row in mine],
            y=[row[value] for row in mine],
            error_y=spread,
            marker_color=COLOURS[index % len(COLOURS)],
        )
    return figure


def write_schedule(path: Path, result: dict[str, Any]) -> None:
    """Write the page of ``advisor replay schedule``.

    Raises
    ------
    BadInput
        The file cannot be written.
    """
    rows = result["rows"]

    def bars(value: str, title: str, unit: str, deviation: str | None = None) -> go.Figure:
        figure = grouped_bars(rows, across="policy", beside="variant", value=value, deviation=deviation)
        return styled(figure, title, unit)

    figures = [
        bars(
            "mean_bounded_slowdown",
            "Mean bounded slowdown (lower is better)",
            "mean bounded slowdown, tau 60 s",
            "mean_bounded_slowdown_deviation",
        ),
        bars("small_mean_bounded_slowdown", "Small jobs", "mean bounded slowdown"),
        bars("large_mean_bounded_slowdown", "Large jobs", "mean bounded slowdown"),
        bars("restarted_share", "Jobs restarted once", "share of jobs"),
    ]
    about = (
        f"{result['jobs']:,} jobs on {result['cores']:,} processors, EASY backfilling. Where classes are "
        "predicted: mean of runs with 1 % of the predictions flipped; whiskers show the standard deviation."
    )
    write_page(path, f"Schedules of {result['trace']}", about, figures)


def lines(series: Mapping[str, tuple[Sequence[float], Sequence[float | None]]]) -> go.Figure:
    """One line with markers for each named series of (x, y); a missing y leaves a gap."""
    figure = go.Figure()
    for index, (name, (across, values)) in enumerate(series.items()):
        figure.add_scatter(
            name=html.escape(name),
            x=list(across),
            y=list(values),
            mode="lines+markers",
            line={"color": COLOURS[index % len(COLOURS)]},
        )
    return figure


def write_classify(path: Path, result: dict[str, Any]) -> None:
    """Write the page of ``advisor replay classify``.

    Raises
    ------
    BadInput
        The file cannot be written.
    """
    weeks = result["weeks"]
    numbers = [week["week"] for week in weeks]

    def weekly(measure: str) -> go.Figure:
        return lines(
            {mode: (numbers, [week["modes"][mode][measure] for week in weeks]) for mode in result["modes"]}
        )

    figures = [
        styled(weekly("accuracy"), "Accuracy of each week, by the model of the weeks before", "accuracy"),
        styled(weekly("false_small_share"), "Large jobs classed small", "share of jobs"),
        styled(
            lines({"divider": (numbers, [week["divider_seconds"] for week in weeks])}),
            "Divider in force: median run time of the jobs finished before the week",
            "seconds",
        ),
    ]
    for figure in figures:
        figure.update_xaxes(title="week")
    about = f"{result['jobs_judged']:,} jobs judged; a job is small when it runs shorter than the divider."
    write_page(path, f"Small or large: {result['trace']}", about, figures)


def write_placement(path: Path, result: dict[str, Any]) -> None:
    """Write the page of ``advisor replay placement``.

    Raises
    ------
    BadInput
        The file cannot be written.
    """
    rows = result["rows"]
    factors = [row["factor"] for row in rows]
    ways = [way for way in ("optimal", "without_cutoff", "with_cutoff", "advisor") if way in rows[0]]
    share = {
        way: (factors, [row[way]["fraction_of_optimal"] for row in rows]) for way in ways if way != "optimal"
    }
    jobs = {way: (factors, [row[way]["cloud_jobs"] for row in rows]) for way in ways}
    figures = [
        styled(lines(share), "Share of the clairvoyant's saved time", "fraction of optimal"),
        styled(lines(jobs), "Jobs sent to the cloud", "jobs"),
    ]
    for figure in figures:
        figure.update_xaxes(title="overhead factor o of s(c) = o c + i", type="log")
    figures += _hedge_figures(rows, factors, result.get("hedge_curve", ()))
    about = f"{result['jobs']:,} jobs advised one by one from what was known at their submission."
    write_page(path, f"Placement on {result['trace']}", about, figures)


def _hedge_figures(
    rows: Sequence[Mapping[str, Any]], factors: Sequence[float], curve: Sequence[Mapping[str, float]]
) -> list[go.Figure]:
    """Hedged starts by overhead, and what core-hours buy with and without forecasts; none if not replayed."""
    if not curve:
        return []
    by_budget = {
        f"budget {one['budget']:g}": (factors, [row["hedged"][number]["fraction_of_optimal"] for row in rows])
        for number, one in enumerate(rows[0]["hedged"])
    }
    shares = styled(lines(by_budget), "Hedged starts: share of the clairvoyant's saved time", "fraction")
    shares.update_xaxes(title="overhead factor o of s(c) = o c + i", type="log")
    ways = {
        name: ([point[f"core_hours_{key}"] for point in curve], [point[key] for point in curve])
        for name, key in (("with forecasts", "with_forecasts"), ("one stop-loss", "without_forecasts"))
    }
    bought = styled(lines(ways), "What cloud core-hours buy, mean over the overheads", "fraction of optimal")
    bought.update_xaxes(title="core-hours spent, as a multiple of the clairvoyant's", type="log")
    return [shares, bought]
