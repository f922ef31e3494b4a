"""Check the helper that submits placeholders: its socket, the socket's permissions, its answer."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from advisor.model.settings import Settings
from advisor.service.admin.doctor import Diagnosis, error, guarded, ok, warning
from advisor.service.hedge.place_helper import ask

_CHECK: Final = "place helper"
_ENABLE: Final = (
    "systemctl enable --now advisor-places.socket (docs/options.md, 'The helper that submits placeholders')"
)
_TIMEOUT_SECONDS: Final = 15.0
"""Long enough for systemd to start the helper."""


def examine_places(settings: Settings) -> Iterator[Diagnosis]:
    """Check whether placeholders can be submitted, where the settings need them."""
    yield from guarded(_CHECK, _examine(settings))


def _examine(settings: Settings) -> Iterator[Diagnosis]:
    if not (settings.hedge.enabled or settings.speculates):
        yield ok("not needed: hedge.enabled is false, and cluster.policy is not ambati2021")
        return
    if _owner(settings.paths.control_socket) == 0:
        yield ok("not needed: `advisor control` runs as root")
        return
    path = settings.hedge.helper_socket
    if not path.is_socket():
        yield error(f"{path} does not exist: jobs in the cloud get no placeholder here", _ENABLE)
        return
    yield from _permissions(path, settings.paths.state)
    yield from _answer(path)


def _permissions(path: Path, state: Path) -> Iterator[Diagnosis]:
    """Check the socket's owner and mode: through it root submits sleeping jobs for any user."""
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    service = _owner(state)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield error(f"other users can use {path} (mode {mode:04o})", "Set SocketMode=0600 in its unit")
    if service is not None and found.st_uid != service:
        yield error(
            f"{path} belongs to user id {found.st_uid}, but the service runs as user id {service}",
            "Set SocketUser= in advisor-places.socket to the service's user, and restart it",
        )


def _answer(path: Path) -> Iterator[Diagnosis]:
    """Send an empty request, which a working helper refuses."""
    if not os.access(path, os.W_OK):
        yield warning(f"you may not use {path}", "Run the doctor as the service's user")
        return
    try:
        code = ask(path, b"", _TIMEOUT_SECONDS).code
    except (OSError, msgspec.DecodeError) as problem:
        yield error(f"{path} does not answer ({problem})", "journalctl -u 'advisor-places@*' has the reason")
        return
    if code == "hedge.bad_request":
        yield ok(f"{path} answers")
    else:
        yield error(f"{path} answers {code or 'nothing'}", "Install the unit of this release, and restart it")


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None
