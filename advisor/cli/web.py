"""``advisor web``: the pages for admins."""

from __future__ import annotations

import sys

import typer

from advisor.cli.context import ConfigOption, settings_of

_COMMAND = (sys.executable, "-P", "-c", "from advisor.cli.main import run; run()")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("web")(web)


def web(config: ConfigOption = None) -> None:
    """Serve the pages for admins: what the other commands show, to be read in a browser.

    Changes nothing and asks neither Slurm nor EC2. Runs until SIGTERM. Everybody who can reach it sees
    everybody's jobs: it listens on this machine alone (`web.address`), for the site's own proxy and login.
    """
    from advisor.web.run import run

    options = () if config is None else (f"--config={config.absolute()}",)
    run(settings_of(config), load=lambda: settings_of(config), command=_COMMAND, options=options)
