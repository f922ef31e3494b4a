"""``advisor serve``: the submit server."""

from __future__ import annotations

import typer

from advisor.cli.context import ConfigOption, settings_of


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(config: ConfigOption = None) -> None:
    """Answer the job_submit hook on a Unix socket, from memory only.

    Runs until SIGTERM; SIGHUP reads the settings again. Under systemd it says READY when it is warm.
    """
    from advisor.service.models import model_loader
    from advisor.service.serve import run

    settings = settings_of(config)
    run(
        settings,
        load_model=model_loader(settings.paths.models, probability_cut=settings.size.probability_cut),
        reload_settings=lambda: settings_of(config),
    )
