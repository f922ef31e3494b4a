"""One-time links: made by `advisor web link`, each used once by whoever opens it."""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from advisor.files.owners import give_to_owner_of
from advisor.files.whole_file import read_plain_file, replacing
from advisor.model.errors import BadInput
from advisor.service.state.records import WEB_FOLDER
from advisor.web.persons import Person, Role

_LINKS: Final = "links"
_MOST_BYTES: Final = 4096
_MAX_TOKEN: Final = 200


class _Link(msgspec.Struct, frozen=True, kw_only=True):
    """For whom a link is, and until when (epoch seconds) it can be used."""

    name: str
    role: Role
    until: float


class Links:
    """The links that wait to be used: a file for each, named after the token's hash, never the token.

    Args:
        state: ``paths.state``.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._folder = state / WEB_FOLDER / _LINKS

    def make(self, person: Person, until: float) -> str:
        """A new link's token.

        Raises:
            BadInput: The folder cannot be written (``web.link``).
        """
        token = secrets.token_urlsafe(32)
        content = msgspec.json.encode(_Link(name=person.name, role=person.role, until=until))
        try:
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, exist_ok=True)
                give_to_owner_of(self._state, folder)
            path = self._path(token)
            with replacing(path, mode=0o600) as file:
                file.write(content)
            give_to_owner_of(self._state, path)
        except OSError as error:
            raise BadInput(
                f"the link cannot be written ({error.strerror})",
                where=str(self._folder),
                mend="Run the command on the controller, as root or as the service's user",
                code="web.link",
            ) from None
        return token

    def use(self, token: str, now: float) -> Person | None:
        """Whom a token lets in; None if it is unknown, used or too old. Each is taken by one caller only."""
        if not 0 < len(token) <= _MAX_TOKEN:
            return None
        path = self._path(token)
        try:
            link = msgspec.json.decode(read_plain_file(path, _MOST_BYTES), type=_Link)
            path.unlink()  # of several callers one succeeds
        except (OSError, BadInput, msgspec.MsgspecError):
            return None
        self._remove_old(now)
        return Person(link.name, link.role) if now < link.until else None

    def _path(self, token: str) -> Path:
        return self._folder / hashlib.sha256(token.encode(errors="replace")).hexdigest()

    def _remove_old(self, now: float) -> None:
        for path in self._folder.iterdir():
            with suppress(OSError, BadInput, msgspec.MsgspecError):
                if msgspec.json.decode(read_plain_file(path, _MOST_BYTES), type=_Link).until <= now:
                    path.unlink()
