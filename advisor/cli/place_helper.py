"""``advisor place-helper``: submits placeholders as root; started by systemd for each connection."""

from __future__ import annotations

import sys

import typer

from advisor.cli.context import ConfigOption, settings_of


def register(app: typer.Typer) -> None:
    """Add the command, which only systemd runs."""
    app.command("place-helper", hidden=True)(place_helper)


def place_helper(config: ConfigOption = None) -> None:
    """Submit placeholders, as requested on standard input, for jobs that run in the cloud."""
    from advisor.service.hedge.place_helper import serve
    from advisor.slurm.commands import Commands
    from advisor.slurm.placeholders import Placeholders

    settings = settings_of(config)
    places = Placeholders(Commands(settings.paths.slurm_bin, settings.paths.slurm_conf))
    serve(sys.stdin.buffer, sys.stdout.buffer, places.reserve)
