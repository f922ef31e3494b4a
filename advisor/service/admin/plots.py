"""Pages of figures: one file each, with the plotting library inside, so that nothing is fetched."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go
import plotly.io
from plotly.offline import get_plotlyjs

from advisor.files.whole_file import replace_file
from advisor.model.errors import BadInput

COLOURS = ("#4c6ef5", "#f59f00", "#12b886", "#e64980", "#868e96", "#7950f2", "#15aabf")
_HEIGHT = 460
_LOOK = "plotly_white"
# plotly would copy its whole look into each new figure, which costs more than the figure
plotly.io.templates.default = None

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font-family:system-ui,sans-serif;margin:2rem auto;max-width:1000px;color:#212529}}
p{{color:#495057;line-height:1.5}}
@media screen and (prefers-color-scheme:dark){{body{{background:#16191d;color:#e9ecef}}p{{color:#ced4da}}
.plotly-graph-div{{filter:invert(.91) hue-rotate(180deg)}}}}</style><script>{library}</script></head>
<body><h1>{title}</h1><p>{about}</p>{plots}</body></html>
"""


def write_page(path: Path, title: str, about: str, figures: Sequence[go.Figure]) -> None:
    """Write figures below each other as one page, atomically.

    Titles and texts may hold names from logs: they are escaped.
    """
    for figure in figures:
        figure.update_layout(template=_LOOK)
    plots = "".join(figure.to_html(full_html=False, include_plotlyjs=False) for figure in figures)
    page = _PAGE.format(
        title=html.escape(title), about=html.escape(about), library=get_plotlyjs(), plots=plots
    )
    try:
        replace_file(path.resolve(), page.encode())  # a link, such as /dev/stdout, stays
    except OSError as error:
        raise _unwritable(path, error.strerror or "") from None


def refuse_unwritable(path: Path) -> None:
    """Say at once that the page could not be written, not after what it is to show has been replayed.

    Raises:
        BadInput: Its folder is not there or cannot be written to, or a folder or device has its name.
    """
    target = path.resolve()
    if not target.parent.is_dir():
        raise _unwritable(path, "No such folder")
    if target.is_dir():
        raise _unwritable(path, "Is a directory")
    if target.exists() and not target.is_file():
        raise _unwritable(path, "Is not a plain file")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise _unwritable(path, "Permission denied")


def _unwritable(path: Path, reason: str) -> BadInput:
    return BadInput(
        f"cannot write the page ({reason})",
        where=str(path),
        mend="Give a file in a folder that can be written to",
        code="plot.unwritable",
    )


def styled(figure: go.Figure, title: str, unit: str) -> go.Figure:
    """One look for all pages; ``unit`` names the value axis."""
    figure.update_layout(
        title=html.escape(title),
        height=_HEIGHT,
        yaxis_title=html.escape(unit),
        legend={"orientation": "h", "y": -0.15},
        margin={"t": 60, "l": 70, "r": 20},
    )
    return figure
