"""The doctor's look at the helper that keeps users' places: is it there, is it ours alone, does it answer?"""

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
_ENABLE: Final = "systemctl enable --now advisor-places.socket (docs/options.md, Hedged starts)"
_TIMEOUT_SECONDS: Final = 15.0
"""systemd starts the helper for the question."""


def examine_places(settings: Settings) -> Iterator[Diagnosis]:
    """Whether places can be kept, where the settings want it."""
    yield from guarded(_CHECK, lambda: _examine(settings))


def _examine(settings: Settings) -> Iterator[Diagnosis]:
    if not (settings.hedge.enabled or settings.waiting.speculate):
        yield ok(_CHECK, "not needed: neither hedge.enabled nor waiting.speculate is set")
        return
    if _owner(settings.paths.control_socket) == 0:
        yield ok(_CHECK, "not needed: `advisor control` runs as root")
        return
    path = settings.hedge.helper_socket
    if not path.is_socket():
        yield error(_CHECK, f"{path} is not there: jobs in the cloud keep no place here", _ENABLE)
        return
    yield from _permissions(path, settings.paths.state)
    yield from _answer(path)


def _permissions(path: Path, state: Path) -> Iterator[Diagnosis]:
    """Whoever may open it can have root submit a sleeping job for any user."""
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    service = _owner(state)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield error(_CHECK, f"others can use {path} (mode {mode:04o})", "SocketMode=0600 in its unit")
    if service is not None and found.st_uid != service:
        yield error(
            _CHECK,
            f"{path} belongs to user id {found.st_uid}, the service is user id {service}",
            "Set SocketUser= in advisor-places.socket to the service's user, and restart it",
        )


def _answer(path: Path) -> Iterator[Diagnosis]:
    """Ask for nothing: a helper that works says that this is no wish."""
    if not os.access(path, os.W_OK):
        yield warning(_CHECK, f"you cannot ask {path}", "Run the doctor as the service's user")
        return
    try:
        code = ask(path, b"", _TIMEOUT_SECONDS).code
    except (OSError, msgspec.DecodeError) as problem:
        yield error(
            _CHECK, f"{path} does not answer ({problem})", "journalctl -u 'advisor-places@*' says more"
        )
        return
    if code == "hedge.bad_wish":
        yield ok(_CHECK, f"{path} answers")
    else:
        yield error(_CHECK, f"{path} answers {code or 'nothing'}", "Is it this release's unit?")


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None
