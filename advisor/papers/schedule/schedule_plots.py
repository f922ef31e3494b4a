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

    figures = [
        _bars(
            rows,
            "mean_bounded_slowdown",
            "Mean bounded slowdown (lower is better)",
            "mean bounded slowdown, tau 60 s",
            "mean_bounded_slowdown_deviation",
        ),
        _bars(rows, "small_mean_bounded_slowdown", "Small jobs", "mean bounded slowdown"),
        _bars(rows, "large_mean_bounded_slowdown", "Large jobs", "mean bounded slowdown"),
        _bars(rows, "restarted_share", "Jobs restarted once", "share of jobs"),
    ]
    about = (
        f"{result['jobs']:,} jobs on {result['cores']:,} processors, EASY backfilling. Where classes are "
        "predicted: mean of runs with 1 % of the predictions flipped; whiskers show the standard deviation."
    )
    write_page(path, f"Schedules of {result['trace']}", about, figures)


def _bars(
    rows: Sequence[dict[str, Any]], value: str, title: str, unit: str, deviation: str | None = None
) -> go.Figure:
    """One value: a group of bars for each order, a colour for each variant."""
    figure = go.Figure()
    for index, variant in enumerate(dict.fromkeys(row["variant"] for row in rows)):
        mine = [row for row in rows if row["variant"] == variant]
        spread = None if deviation is None else {"type": "data", "array": [row[deviation] for row in mine]}
        figure.add_bar(
            name=html.escape(variant),
            x=[html.escape(row["policy"]) for row in mine],
            y=[row[value] for row in mine],
            error_y=spread,
            marker_color=COLOURS[index % len(COLOURS)],
        )
    return styled(figure, title, unit)
