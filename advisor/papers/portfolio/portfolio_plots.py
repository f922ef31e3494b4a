"""The page of ``advisor replay portfolio``."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from advisor.service.admin.plots import COLOURS, styled, write_page

_MAX_BARS = 20
_KIND_COLOURS = (
    *(colour for colour in COLOURS if colour != "#868e96"),  # grey is for the rest
    *("#fa5252", "#82c91e", "#ffd43b", "#5f3d2b", "#2b8a3e", "#c2255c"),
)
_REST = "others"


def write_portfolio(path: Path, results: Sequence[dict[str, Any]]) -> None:
    """Write the page: policy use over time, invocations, and every policy beside the portfolio.

    ``results``: one of each billing, below each other.

    Raises:
        BadInput: The file cannot be written.
    """
    first = results[0]
    about = [f"{first['jobs']:,} jobs on rented nodes. Run times known: {first['runtimes']}."]
    figures = []
    for result in results:
        about.append(
            f"Billing '{result['billing']}': {result['release_rule']}; the portfolio's utility is "
            f"{100 * result['gain_over_best_constituent']:+.1f} % over the best published policy's, and "
            f"{100 * result['gain_over_best_of_all']:+.1f} % over the best of all policies'."
        )
        of_billing = f", billing {result['billing']}" if len(results) > 1 else ""
        figures += [
            _use_over_time(result["use"], of_billing),
            _invocations(result["invocations"], of_billing),
            _constituents(result, of_billing),
        ]
    write_page(path, f"Portfolio of policies on {first['trace']}", " ".join(about), figures)


def _use_over_time(use: dict[str, Any], of_billing: str) -> go.Figure:
    """Shares of choices in equal spans of the log, stacked; a colour for each of the most used kinds."""
    figure = go.Figure()
    ranked = sorted(use["share"].items(), key=lambda item: -sum(item[1]))
    shown = dict(ranked[: len(_KIND_COLOURS)])
    rest = [share for _, share in ranked[len(_KIND_COLOURS) :]]
    colours = dict(zip(shown, _KIND_COLOURS, strict=False))
    if rest:
        shown[_REST] = [sum(shares) for shares in zip(*rest, strict=True)]
    for kind, share in shown.items():
        figure.add_scatter(
            name=html.escape(kind),
            x=use["day"],
            y=share,
            stackgroup="use",
            mode="lines",
            line={"width": 0, "shape": "hv", "color": colours.get(kind, "#868e96")},
            showlegend=True,  # of one alone plotly would not say which it is
        )
    figure.update_xaxes(title="day of the log")
    return styled(figure, f"Policies in use{of_billing}", "share of choices")


def _invocations(invocations: dict[str, int], of_billing: str) -> go.Figure:
    names = list(invocations)[:_MAX_BARS]
    figure = go.Figure()
    figure.add_bar(
        x=[html.escape(name) for name in names],
        y=[invocations[name] for name in names],
        marker_color=COLOURS[0],
    )
    return styled(figure, f"Choices, the {len(names)} most used policies{of_billing}", "choices")


def _constituents(result: dict[str, Any], of_billing: str) -> go.Figure:
    """Slowdown against cost: one dot a policy."""
    figure = go.Figure()
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in result["constituents"]:
        groups.setdefault(row["policy"].split("-")[0], []).append(row)
    if result["beyond_the_paper"]:
        groups["beyond the paper"] = result["beyond_the_paper"]
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
    figure.update_yaxes(type="log", tickformat="~g")
    return styled(figure, f"Slowdown and cost of every policy{of_billing}", "mean bounded slowdown")
