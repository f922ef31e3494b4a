"""The page of ``advisor replay waiting``."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from advisor.service.admin.plots import COLOURS, styled, write_page

_NEAR = 3.0  # policies beyond so many times the oracle would hide the others


def write_waiting(path: Path, result: dict[str, Any]) -> None:
    """Write the page of ``advisor replay waiting``.

    Raises:
        BadInput: The file cannot be written.
    """
    about = (
        f"{result['jobs_judged']:,} jobs on {result['fixed_cores']:,} fixed cores; jobs up to "
        f"{result['short_seconds']:.0f} s never wait, nobody waits longer than "
        f"{result['longest_wait_seconds'] / 3600:.0f} h; trials on {result['capacity']}. The oracle knows "
        "every run time and wait."
    )
    figures = [_trade(result), _bars(result), _calibration(result)]
    write_page(path, f"Waiting policies on {result['trace']}", about, figures)


def _trade(result: dict[str, Any]) -> go.Figure:
    """Mean wait over rented cost, both against the oracle."""
    figure = go.Figure()
    near = [
        row
        for row in result["rows"]
        if max(row["ondemand_cost_vs_oracle"], row["mean_wait_vs_oracle"]) < _NEAR
    ]
    for index, row in enumerate(near):
        figure.add_scatter(
            name=html.escape(row["variant"]),
            x=[row["ondemand_cost_vs_oracle"]],
            y=[row["mean_wait_vs_oracle"]],
            mode="markers",
            marker={"size": 12, "color": COLOURS[index % len(COLOURS)]},
        )
    styled(figure, "Cost and waiting against the oracle (lower left is better)", "mean wait / oracle's")
    return figure.update_layout(xaxis_title="rented cost / oracle's")


def _bars(result: dict[str, Any]) -> go.Figure:
    rows = result["rows"]
    figure = go.Figure()
    names = [html.escape(row["variant"]) for row in rows]
    figure.add_bar(
        name="total cost / oracle's",
        x=names,
        y=[row["total_cost_vs_oracle"] for row in rows],
        marker_color=COLOURS[0],
    )
    return styled(figure, "Fixed and rented cores together", "total cost / oracle's")


def _calibration(result: dict[str, Any]) -> go.Figure:
    """Predicted chance against what happened, for each threshold."""
    figure = go.Figure()
    for index, (threshold, bins) in enumerate(result["wait_model"]["calibration"].items()):
        figure.add_scatter(
            name=f"longer than {float(threshold) / 3600:.0f} h",
            x=[each["chance"] for each in bins],
            y=[each["happened"] for each in bins],
            text=[f"{each['jobs']:,} jobs" for each in bins],
            mode="lines+markers",
            line={"color": COLOURS[index % len(COLOURS)]},
        )
    figure.add_scatter(
        name="perfect", x=[0, 1], y=[0, 1], mode="lines", line={"color": COLOURS[4], "dash": "dash"}
    )
    styled(figure, "Wait model: predicted chance and what happened", "share that waited longer")
    return figure.update_layout(xaxis_title="predicted chance")
