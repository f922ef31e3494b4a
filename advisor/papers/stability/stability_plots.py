"""The page of ``advisor replay stability``."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from advisor.service.admin.plots import COLOURS, styled, write_page


def write_stability(path: Path, result: dict[str, Any]) -> None:
    """Write the page.

    Raises:
        BadInput: The file cannot be written.
    """
    rows = result["rows"]
    names = [html.escape(row["scheduler"]) for row in rows]
    least_lost = [name for name, row in zip(names, rows, strict=True) if row["gives_way"] == "least-lost"]

    def bars(values: dict[str, list[float]]) -> go.Figure:
        figure = go.Figure()
        for index, (name, value) in enumerate(values.items()):
            figure.add_bar(name=name, x=names, y=value, marker_color=COLOURS[index])
        return figure

    hours = {
        "mean": [row["mean_jct"] / 3600 for row in rows],
        "90th percentile": [row["p90_jct"] / 3600 for row in rows],
    }
    figures = [
        styled(
            bars({"geometric mean": [row["geomean_njct"] for row in rows]}),
            "Job completion time over the capacity scheduler's (lower is better)",
            "nJCT",
        ),
        styled(bars(hours), "Job completion time", "hours"),
        styled(
            bars({"wasted": [row["wasted_work_share"] for row in rows]}),
            "Work lost to preemptions, checkpoints and copies",
            "share of core-seconds",
        ),
    ]
    cluster = result["cluster"]
    about = (
        f"{result['task_count']:,} tasks of {result['jobs']:,} jobs on {cluster['nodes']} nodes of "
        f"{cluster['mean_cores']:.0f} cores together, which change {cluster['changes']:,} times in "
        f"{cluster['days']:.1f} days. Every scheduler meets the same changes and the same tasks. "
        f"When a node shrinks, those that lose the least work end under {', '.join(least_lost) or 'none'}; "
        "the oldest, as published, under the others."
    )
    write_page(path, f"Nodes that change: {result['nodes']}", about, figures)
