"""``advisor web``: the pages, and the links by which people sign in."""

from __future__ import annotations

import socket
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from advisor.cli.context import ConfigOption, loaded_settings, settings_of
from advisor.cli.output import Format, FormatOption, emit, stderr
from advisor.model.errors import BadInput

if TYPE_CHECKING:
    from advisor.config import LoadedSettings
    from advisor.model.settings import Settings

_COMMAND = (sys.executable, "-P", "-c", "from advisor.cli.main import run; run()")
_MAX_NAME = 80

group = typer.Typer(invoke_without_command=True)


@group.callback()
def web(
    context: typer.Context,
    address: Annotated[
        str | None, typer.Option(help="Address to listen on, instead of web.address.", metavar="ADDRESS")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on, instead of web.port.", metavar="PORT")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Serve web pages, with what the other commands show.

    People sign in through the site's proxy (`web.user_header`) or by a link of `advisor web link`. The pages
    ask neither Slurm nor EC2. By default only this machine can connect (`web.address`).
    """
    if context.invoked_subcommand is not None:
        return
    from advisor.config.loading import changed
    from advisor.web.run import run

    asked = {"address": address, "port": port}

    def load() -> LoadedSettings:
        loaded = loaded_settings(config)
        for name, value in asked.items():
            if value is not None:
                loaded = changed(loaded, {f"web.{name}": value}, f"--{name}")
        return loaded

    options = () if config is None else (f"--config={config.absolute()}",)
    run(load=load, command=_COMMAND, options=options)


@group.command("link")
def link(
    user: Annotated[
        str, typer.Option(help="Name of the person; with the role `user` that of a user of the cluster.")
    ] = "admin",
    role: Annotated[
        str, typer.Option(help="admin, operator (may not change settings) or user (own jobs only).")
    ] = "admin",
    minutes: Annotated[float, typer.Option(min=1.0, max=1440.0, help="How long the link waits.")] = 10.0,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Print a link that lets one person in, once.

    Users who may write the state folder (root and the service's user) can make one. It waits ten minutes; the
    browser that has used it stays signed in for twelve hours.
    """
    from advisor.web.links import Links
    from advisor.web.persons import Person, Role

    if role not in set(Role):
        raise BadInput(
            f"{role!r} is no role", where="--role", mend=f"It is one of {', '.join(Role)}", code="web.role"
        )
    if not (user.isprintable() and 0 < len(user) <= _MAX_NAME):
        raise BadInput(
            "it is not a name",
            where="--user",
            mend=f"Give 1 to {_MAX_NAME} printable characters",
            code="web.user",
        )
    settings, until = settings_of(config), time.time() + 60.0 * minutes
    token = Links(settings.paths.state).make(Person(user, Role(role)), until)
    result = {
        "url": f"{_home(settings)}/signin?link={token}",
        "user": user,
        "role": role,
        "until": until,
    }
    emit(result, output, lambda console: console.print(Text(str(result["url"])), soft_wrap=True))
    if not settings.web.hosts and not _is_listening(settings.web.address, settings.web.port):
        stderr.print(
            Text("Nothing listens there yet: `systemctl enable --now advisor-web` starts the pages.")
        )


def _is_listening(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _home(settings: Settings) -> str:
    """Where the pages are: at the proxy's first name, else where they listen."""
    web = settings.web
    if web.hosts:
        return f"https://{web.hosts[0]}{web.path}"
    address = f"[{web.address}]" if ":" in web.address else web.address
    return f"http://{address}:{web.port}{web.path}"
