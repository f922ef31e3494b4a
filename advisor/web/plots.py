"""Figures for pages: data in the page, drawn by the script that plotly's Python package brings along."""

from __future__ import annotations

from functools import cache

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs, get_plotlyjs_version


def figure_text(figure: go.Figure) -> str:
    """A figure as JSON for a ``script`` element: no text in it can end the element."""
    figure.update_layout(template=None, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)")
    text: str = figure.to_json(engine="json")
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def library() -> bytes:
    """The drawing library."""
    return str(get_plotlyjs()).encode()


def library_version() -> str:
    """Its version: what browsers keep it by."""
    return str(get_plotlyjs_version())
