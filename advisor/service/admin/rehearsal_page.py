"""The page of ``advisor rehearse``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go

from advisor.service.admin.plots import COLOURS, styled, write_page
from advisor.service.admin.rehearsal_words import fidelity_words, money_words

_MARKERS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")


def write_rehearsal(path: Path, result: dict[str, Any]) -> None:
    """Write the curves of a rehearsal: saved hours, mean wait and slowdown against dollars, by policy.

    Raises:
        BadInput: The file cannot be written.
    """
    curve = result["curve"]
    usual = next(row for row in curve if row["policy"] == "all-on-premise")
    about = " ".join((money_words(result), *fidelity_words(result["fidelity"])))
    budgets = ", ".join(f"{100 * share:g} %" for share in sorted({row["budget_share"] for row in curve}))
    about += f" The points of each line are budgets of {budgets} of the log's core-hours."
    figures = [
        _curves(curve, "saved_hours", 1.0, "Hours saved against money spent", "hours, all jobs"),
        _curves(curve, "mean_wait_seconds", 1 / 3600.0, "Mean wait of all jobs", "hours"),
        _curves(curve, "mean_bounded_slowdown", 1.0, "Mean bounded slowdown (tau 60 s)", "", is_log=True),
    ]
    for figure, field, factor in (
        (figures[1], "mean_wait_seconds", 1 / 3600.0),
        (figures[2], "mean_bounded_slowdown", 1.0),
    ):
        figure.add_hline(
            y=usual[field] * factor,
            line_dash="dash",
            line_color=COLOURS[4],
            annotation_text="all on-premise",
        )
    write_page(path, f"Rehearsal of {result['trace']}", about, figures)


def _curves(
    curve: Sequence[dict[str, Any]], field: str, factor: float, title: str, unit: str, *, is_log: bool = False
) -> go.Figure:
    """One line for each policy that moves jobs, over the dollars that it spent."""
    figure = go.Figure()
    names = dict.fromkeys(row["policy"] for row in curve if row["policy"] != "all-on-premise")
    for index, name in enumerate(names):
        rows = [row for row in curve if row["policy"] == name]
        is_best = name == "price"
        figure.add_scatter(
            name=name,
            x=[row["cost_usd"] for row in rows],
            y=[row[field] * factor for row in rows],
            text=[
                f"{100 * row['budget_share']:g} %: {row['moved_jobs']:,} jobs moved, "
                f"{100 * row['budget_share_spent']:.0f} % of the budget"
                for row in rows
            ],
            mode="lines+markers",
            line={
                "color": COLOURS[index % len(COLOURS)],
                "width": 4 if is_best else 2,
                "dash": "dot" if name == "clairvoyant" else "solid",
            },
            marker={"symbol": _MARKERS[index % len(_MARKERS)], "size": 9},
        )
    styled(figure, title, unit)
    if is_log:
        figure.update_yaxes(type="log", tickformat="~g")
    return figure.update_layout(xaxis_title="USD spent", xaxis_rangemode="tozero")
