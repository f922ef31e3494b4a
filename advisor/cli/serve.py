"""``advisor serve``: the submit server."""

from __future__ import annotations

from advisor.cli.context import ConfigOption, settings_of


def serve(config: ConfigOption = None) -> None:
    """Answer the job_submit hook on a Unix socket, from memory only.

    Runs until SIGTERM; SIGHUP reads the settings again. It notifies systemd when it has warmed up.
    """
    from advisor.service.submit.models import model_loader
    from advisor.service.submit.serve import run

    run(settings_of(config), loader_of=model_loader, reload_settings=lambda: settings_of(config))
