"""Figures for pages: drawn by the script in plotly's Python package, and said in words and tables."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any, Final

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from advisor.decide.explanation.display import significant
from advisor.service.admin.plots import COLOURS, styled

_MAX_ROWS: Final = 200
_TICKS: Final = 8  # the largest number of ticks on an axis of days
_DAY_MILLISECONDS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure for those who see it and for those who do not.

    Attributes:
        text: JSON for a ``script`` element.
        words: Description of what it shows, in a sentence or two.
        headings, rows: Its data as a table.
        left_out: Number of rows that the table does not have.
    """

    text: str
    words: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int


def drawn(figure: go.Figure) -> Drawn:
    """A figure with its text alternative."""
    text = figure_text(figure)
    plain = json.loads(text)
    layout, traces = plain["layout"], [trace for trace in plain["data"] if trace.get("hoverinfo") != "skip"]
    rows = [row for trace in traces for row in _rows_of(trace)]
    upright = all(trace.get("orientation") != "h" for trace in traces)
    across, up = ("xaxis", "yaxis") if upright else ("yaxis", "xaxis")
    headings = ("series", _title(layout.get(across)) or "of", _title(layout.get(up)) or "value")
    alone = len(traces) == 1
    return Drawn(
        text=text,
        words=f"{_title(layout)}. {' '.join(_words_of(trace) for trace in traces)}".strip(),
        headings=headings[1:] if alone else headings,
        rows=tuple(row[1:] if alone else row for row in rows[:_MAX_ROWS]),
        left_out=max(0, len(rows) - _MAX_ROWS),
    )


def add_line(figure: go.Figure, name: str, x: Sequence[Any], y: Sequence[Any], **line: Any) -> None:
    """Add a line with its points; ``line`` is plotly's, such as its colour."""
    figure.add_scatter(x=x, y=y, name=name, mode="lines+markers", line={"width": 3, **line})


def add_aim(figure: go.Figure, name: str, x: Sequence[Any], y: Sequence[Any]) -> None:
    """Add what the lines are compared with, dashed."""
    figure.add_scatter(x=x, y=y, name=name, mode="lines", line={"color": COLOURS[4], "dash": "dash"})


def drawn_by_day(figure: go.Figure, title: str, unit: str, x_title: str | None = None) -> Drawn:
    """A figure over ISO dates, from 0 up; of a few days each has its tick, and none between two."""
    days = [date.fromisoformat(day) for trace in figure.data for day in trace.x]
    is_short = bool(days) and (max(days) - min(days)).days < _TICKS
    step = _DAY_MILLISECONDS if is_short else None
    figure.update_xaxes(title=x_title, type="date", tickformat="%d %b", nticks=_TICKS, dtick=step)
    figure.update_yaxes(rangemode="tozero")
    return drawn(styled(figure, title, unit))


def figure_text(figure: go.Figure) -> str:
    """A figure as JSON for a ``script`` element: no text in it can end the element."""
    figure.update_layout(paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)")
    text: str = figure.to_json(engine="json")
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _pairs(trace: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Place and value of each point."""
    across, up = trace.get("x") or (), trace.get("y") or ()
    return zip(up, across, strict=False) if trace.get("orientation") == "h" else zip(across, up, strict=False)


def _rows_of(trace: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    name = html.unescape(str(trace.get("name") or ""))
    for place, value in _pairs(trace):
        yield name, _text(place), _text(value)


def _words_of(trace: dict[str, Any]) -> str:
    found = [(place, value) for place, value in _pairs(trace) if isinstance(value, int | float)]
    if not found:
        return ""
    name = html.unescape(str(trace.get("name") or "Values"))
    values = [value for _, value in found]
    if len(found) == 1:
        return f"{name}: {_text(values[0])} at {_text(found[0][0])}."
    between = f"from {_text(min(values))} to {_text(max(values))}"
    return f"{name}: {len(found)} values {between}, the last {_text(values[-1])} at {_text(found[-1][0])}."


def _text(value: Any) -> str:
    if isinstance(value, int | float):
        return significant(value, 4)
    return "-" if value is None else html.unescape(str(value))


def _title(layout: Any) -> str:
    title = (layout or {}).get("title") or {}
    return html.unescape(str(title.get("text") or ""))


@cache
def library() -> bytes:
    """The drawing library."""
    return str(get_plotlyjs()).encode()


def library_version() -> str:
    """Its version: what browsers keep it by."""
    return str(get_plotlyjs_version())
