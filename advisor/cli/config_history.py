"""``advisor config history`` and ``advisor config undo``: what the page Tune does, in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from advisor.cli.config_values import history_of, plain_written, tell_written, write_settings
from advisor.cli.context import ConfigOption
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.tables import print_table
from advisor.decide.explanation.display import clean
from advisor.service.admin.since import clock_text

if TYPE_CHECKING:
    from advisor.service.state.records import Applied


def history(
    limit: Annotated[int, typer.Option(min=1, help="So many of the newest changes.")] = 20,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """List the changes of settings by commands and pages, newest first: who, when, why, from what to what."""
    entries = list(reversed(history_of(config).entries()))[:limit]

    def draw(console: Console) -> None:
        cells = [
            (str(one.number), clock_text(one.time), clean(one.author, 40), clean(one.reason), _words(one))
            for one in entries
        ]
        print_table(console, ("number", "when", "who", "why", "what"), cells, text="what")

    emit({"changes": entries}, output, draw)


def undo(
    number: Annotated[int, typer.Argument(help="The change's number in `advisor config history`.")],
    reason: Annotated[str, typer.Option(help="Why; without it: undo of change NUMBER.")] = "",
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Take a change of settings back, if none of them was changed since, by a command, a page or by hand."""
    kept = history_of(config)
    why = reason or f"undo of change {number}"
    result = write_settings(config, lambda: kept.to_undo(number), why, undoes=number)
    emit(plain_written(result), output, lambda console: tell_written(console, result))


def _words(entry: Applied) -> str:
    changes = (
        f"{one.key}: {clean(one.before or 'default', 200)} to {clean(one.after or 'default', 200)}"
        for one in entry.changes
    )
    undone = "" if entry.undoes is None else f" (undoes {entry.undoes})"
    return "; ".join(changes) + undone
