"""Options of several commands: lists of known words, and the page with figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.model.errors import BadInput


def _writable(path: Path | None) -> Path | None:
    """Refuse a page that cannot be written at once, not after a replay of minutes or hours."""
    if path is not None:
        from advisor.service.admin.plots import refuse_unwritable

        refuse_unwritable(path)
    return path


PlotOption = Annotated[
    Path | None,
    typer.Option(help="Write a page with the figures drawn.", dir_okay=False, callback=_writable),
]


def chosen(text: str | None, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Words of a comma-separated option, in the order given; all that are known by default."""
    if text is None:
        return known
    words = tuple(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
    unknown = [word for word in words if word not in known]
    if unknown or not words:
        raise BadInput(
            f"unknown: {', '.join(unknown)}" if unknown else "nothing is named",
            where=option,
            mend=f"Choose among {', '.join(known)}",
            code="option.unknown",
        )
    return words
