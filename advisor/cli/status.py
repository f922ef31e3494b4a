"""``advisor status``: the state of the advisor and its cluster."""

from __future__ import annotations

import time
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.tables import print_facts


def status(config: ConfigOption = None, output: FormatOption = Format.TEXT) -> None:
    """Show modes, ages, queue, cloud nodes, what keeps jobs from the cloud, and the last errors.

    Asks the submit server and reads what `advisor control` wrote last, so it works while Slurm or EC2 does
    not. Exit code 1: you may not read the state of a process.
    """
    from advisor.service.admin.status_report import ask_serve, status_report

    settings = settings_of(config)
    result = status_report(settings, time.time(), ask_serve(settings))
    emit(result, output, lambda console: _draw(console, result))
    if any(result[name]["running"] is None for name in ("serve", "control")):
        raise typer.Exit(1)


def _draw(console: Console, result: dict[str, Any]) -> None:
    from advisor.service.admin.status_words import status_rows

    print_facts(console, status_rows(result))
    for trouble in result["troubles"]:
        console.print(Text(f"! {trouble}", "yellow"))
