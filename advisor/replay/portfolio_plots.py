"""The page of ``advisor replay portfolio``."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from advisor.replay.plots import COLOURS, styled, write_page

_MOST_BARS = 20


def write_portfolio(path: Path, result: dict[str, Any]) -> None:
    """Write the page: policy use over time, invocations, and every policy beside the portfolio.

    Raises
    ------
    BadInput
        The file cannot be written.
    """
    figures = [_use_over_time(result["use"]), _invocations(result["invocations"]), _constituents(result)]
    about = (
        f"{result['jobs']:,} jobs on rented nodes, billing '{result['billing']}': {result['release_rule']}. "
        f"Run times known: {result['runtimes']}. The portfolio's utility is "
        f"{100 * result['gain_over_best_constituent']:+.1f} % beside the best published policy's."
    )
    write_page(path, f"Portfolio of policies on {result['trace']}", about, figures)


def _use_over_time(use: dict[str, Any]) -> go.Figure:
    """Shares of choices in equal spans of the log, stacked."""
    figure = go.Figure()
    for index, (kind, share) in enumerate(use["share"].items()):
        figure.add_scatter(
            name=html.escape(kind),
            x=use["day"],
            y=share,
            stackgroup="use",
            mode="lines",
            line={"width": 0, "shape": "hv", "color": COLOURS[index % len(COLOURS)]},
        )
    figure.update_xaxes(title="day of the log")
    return styled(figure, "Policies in use", "share of choices")


def _invocations(invocations: dict[str, int]) -> go.Figure:
    names = list(invocations)[:_MOST_BARS]
    figure = go.Figure()
    figure.add_bar(
        x=[html.escape(name) for name in names],
        y=[invocations[name] for name in names],
        marker_color=COLOURS[0],
    )
    return styled(figure, f"Choices, the {len(names)} most used policies", "choices")


def _constituents(result: dict[str, Any]) -> go.Figure:
    """Slowdown against cost: one dot a policy."""
    figure = go.Figure()
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in result["constituents"]:
        groups.setdefault(row["policy"].split("-")[0], []).append(row)
    groups["portfolio"] = [{"policy": "portfolio", **result["portfolio"]}]
    for index, (kind, rows) in enumerate(groups.items()):
        figure.add_scatter(
            name=html.escape(kind),
            x=[row["charged_vm_hours"] for row in rows],
            y=[row["mean_bounded_slowdown"] for row in rows],
            text=[html.escape(row["policy"]) for row in rows],
            mode="markers",
            marker={"size": 14 if kind == "portfolio" else 8, "color": COLOURS[index % len(COLOURS)]},
        )
    figure.update_xaxes(title="node hours charged")
    figure.update_yaxes(type="log")
    return styled(figure, "Slowdown and cost of every policy", "mean bounded slowdown")
