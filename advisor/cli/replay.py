"""``advisor replay …``: the papers' experiments on a log. Each replay is a module of its own."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import typer

# Each module has `register(app)`. Order is the order of `advisor replay --help`.
REPLAYS: Final[tuple[str, ...]] = ("replay_classify",)

replay = typer.Typer(no_args_is_help=True, help="Replay a log: what would have been decided, and how well.")


def register(app: typer.Typer) -> None:
    """Add the group, with every replay in it."""
    for name in REPLAYS:
        import_module(f"advisor.cli.{name}").register(replay)
    app.add_typer(replay, name="replay")
