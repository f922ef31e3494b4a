"""``advisor bench``: the measurements of the source tree's package ``benchmarks``, where it is at hand.

An installed wheel does not have them; there the command says so.
"""

from __future__ import annotations

from importlib import import_module

import typer

from advisor.model.errors import BadInput

_ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


def register(app: typer.Typer) -> None:
    """Add the commands of ``benchmarks``, or the one that says that they are missing."""
    try:
        commands = import_module("benchmarks.commands")
    except ModuleNotFoundError as missing:
        if missing.name not in ("benchmarks", "benchmarks.commands"):
            raise
        app.command("bench", context_settings=_ANY_ARGUMENTS)(_missing)
    else:
        app.add_typer(commands.bench, name="bench")


def _missing() -> None:
    """Measure on this machine; needs the source tree."""
    raise BadInput(
        "the benchmarks are in the source tree, not in the installed package",
        where="advisor bench",
        mend="Run `make setup`, then `.venv/bin/advisor bench NAME`, in a copy of the source tree",
        code="bench.source_tree",
    )
