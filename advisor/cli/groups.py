"""The command group ``advisor replay ...``, to which several modules add a command."""

from __future__ import annotations

from typing import Final

import typer

_NAME: Final = "replay"


def replay_group(app: typer.Typer) -> typer.Typer:
    """The group of the application; it is made where no module has asked for it yet."""
    for registered in app.registered_groups:
        if registered.name == _NAME and registered.typer_instance is not None:
            return registered.typer_instance
    made = typer.Typer(no_args_is_help=True, help="Replay logs through the decisions.")
    app.add_typer(made, name=_NAME)
    return made
