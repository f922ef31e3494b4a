"""The page of ``advisor rehearse``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go

from advisor.service.admin.plots import COLOURS, styled, write_page
from advisor.service.admin.rehearsal_words import fidelity_words, money_words, shipped_words

_LINE_COLOURS: Final = ("#343a40", *COLOURS, "#82c91e")
_MARKERS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")


def write_rehearsal(path: Path, result: dict[str, Any]) -> None:
    """Write the curves of a rehearsal: saved hours, mean wait and slowdown against dollars, by policy."""
    curve = result["curve"]
    words = [line.removeprefix("- ") for line in fidelity_words(result["fidelity"])]
    budgets = ", ".join(f"{100 * share:g} %" for share in sorted({row["budget_share"] for row in curve}))
    about = " ".join((money_words(result), *words, *shipped_words(result["rows"])))
    about += f" The points of each line are budgets of {budgets} of the log's core-hours."
    figures = [
        _curves(curve, "saved_hours", 1.0, "Hours saved against money spent", "hours, all jobs"),
        _curves(curve, "mean_wait_seconds", 1 / 3600.0, "Mean wait of all jobs", "hours"),
        _curves(curve, "mean_bounded_slowdown", 1.0, "Mean bounded slowdown (tau 60 s)", "times"),
    ]
    figures[2].update_yaxes(type="log", tickformat="~g")
    write_page(path, f"Rehearsal of {result['trace']}", about, figures)


def _curves(curve: Sequence[dict[str, Any]], field: str, factor: float, title: str, unit: str) -> go.Figure:
    """One line for each policy, over the dollars that it spent; a level where nothing is spent."""
    figure = go.Figure()
    most = max(row["cost_usd"] for row in curve)
    for index, name in enumerate(dict.fromkeys(row["policy"] for row in curve)):
        rows = [row for row in curve if row["policy"] == name]
        is_level = not any(row["cost_usd"] for row in rows)
        dash = "dash" if is_level else "dot" if name == "clairvoyant" else "solid"
        figure.add_scatter(
            name=name,
            x=[0.0, most] if is_level else [row["cost_usd"] for row in rows],
            y=[rows[0][field] * factor] * 2 if is_level else [row[field] * factor for row in rows],
            text=[
                f"{100 * row['budget_share']:g} %: {row['moved_jobs']:,} jobs moved, "
                f"{100 * row['budget_share_spent']:.0f} % of the budget spent"
                for row in rows
            ],
            mode="lines" if is_level else "lines+markers",
            line={
                "color": _LINE_COLOURS[index % len(_LINE_COLOURS)],
                "width": 4 if name == "price" else 2,
                "dash": dash,
            },
            marker={"symbol": _MARKERS[index % len(_MARKERS)], "size": 9},
        )
    return styled(figure, title, unit).update_layout(xaxis_title="USD spent", xaxis_rangemode="tozero")
