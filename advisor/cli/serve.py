"""``advisor serve``: the submit server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from advisor.cli.context import ConfigOption, settings_of

if TYPE_CHECKING:
    from advisor.model.settings import Settings
    from advisor.service.submit.state_holder import LoadModel


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(config: ConfigOption = None) -> None:
    """Answer the job_submit hook on a Unix socket, from memory only.

    Runs until SIGTERM; SIGHUP reads the settings again. It notifies systemd when it has warmed up.
    """
    from advisor.service.submit.models import model_loader
    from advisor.service.submit.serve import run

    def loader_of(settings: Settings) -> LoadModel:
        return model_loader(settings)

    run(settings_of(config), loader_of=loader_of, reload_settings=lambda: settings_of(config))
