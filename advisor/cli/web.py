"""``advisor web``: the pages for admins."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.cli.context import ConfigOption, loaded_settings

if TYPE_CHECKING:
    from advisor.model.settings import Settings

_COMMAND = (sys.executable, "-P", "-c", "from advisor.cli.main import run; run()")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("web")(web)


def web(
    address: Annotated[
        str | None, typer.Option(help="Address to listen on, instead of web.address.", metavar="ADDRESS")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on, instead of web.port.", metavar="PORT")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Serve web pages for admins, with what the other commands show.

    The pages change nothing and do not ask Slurm or EC2. All who can connect see the jobs of all users, so by
    default only this machine can (`web.address`): put the site's proxy and login before it.
    """
    from advisor.config.loading import changed
    from advisor.web.run import run

    asked: dict[str, Any] = {
        name: value for name, value in (("web.address", address), ("web.port", port)) if value is not None
    }

    def load() -> Settings:
        loaded = loaded_settings(config)
        return changed(loaded, asked).settings if asked else loaded.settings

    options = () if config is None else (f"--config={config.absolute()}",)
    run(load(), load=load, command=_COMMAND, options=options)
