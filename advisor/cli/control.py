"""``advisor control``: the loops."""

from __future__ import annotations

import typer

from advisor.cli.context import ConfigOption, settings_of


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("control")(control)


def control(config: ConfigOption = None) -> None:
    """Look at Slurm, learn, provision cloud nodes, serve /metrics.

    Runs until SIGTERM; SIGHUP begins anew with the settings as they are then.
    """
    from advisor.service.control.process import run

    run(settings_of(config), reload_settings=lambda: settings_of(config))
