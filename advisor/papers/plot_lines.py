"""Figures of named lines, for the pages of several papers."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from advisor.service.admin.plots import COLOURS


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
