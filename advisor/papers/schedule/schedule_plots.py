"""The page of ``advisor replay schedule``."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from advisor.service.admin.plots import COLOURS, styled, write_page


def write_schedule(path: Path, result: dict[str, Any]) -> None:
    """Write the page of ``advisor replay schedule``.

    Raises:
        BadInput: The file cannot be written.
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
