"""``advisor control``: the loops."""

from __future__ import annotations

from advisor.cli.context import ConfigOption, settings_of


def control(config: ConfigOption = None) -> None:
    """Run the loops: poll Slurm, learn, provision cloud nodes; and serve /metrics.

    Runs until SIGTERM; SIGHUP restarts it with the settings read again.
    """
    from advisor.service.control.process import run

    run(settings_of(config), reload_settings=lambda: settings_of(config))
