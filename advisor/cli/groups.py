"""Command groups that several modules add to: ``advisor replay ...``, ``advisor bench ...``."""

from __future__ import annotations

import typer


def group(app: typer.Typer, name: str, about: str) -> typer.Typer:
    """Find the group of that name, or make it; `about` is its help where it is made."""
    for registered in app.registered_groups:
        if registered.name == name and registered.typer_instance is not None:
            return registered.typer_instance
    made = typer.Typer(no_args_is_help=True, help=about)
    app.add_typer(made, name=name)
    return made
