"""The place helper submits placeholders for users: the only process of the advisor that runs as root.

sbatch lets only root submit for another user, and `advisor control` is not root. systemd starts
``advisor place-helper`` as root for each connection to a socket that only the advisor's user may open. The
helper does one thing: it submits a sleeping job, shaped like a job in the queue, for that job's user. Its
start takes half a second, in which other jobs may be submitted; so the connection stays open for the next
request.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from advisor.model.errors import AdvisorError, RetryLater, TellAdmin
from advisor.slurm.placeholders import PlaceholderRequest, Placeholders

_MAX_BYTES: Final = 8192
_TIMEOUT_SECONDS: Final = 40.0
_LIFE_SECONDS: Final = 1800.0  # less than RuntimeMaxSec of its unit, by more than one request takes
_MAX_HELD_SECONDS: Final = 3600.0
_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]{1,255}")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The helper's answer: the placeholder's id, or the error."""

    placeholder: int = 0
    code: str = ""
    message: str = ""
    is_for_admin: bool = False


def answer(line: bytes, reserve: Callable[[PlaceholderRequest], int]) -> Answer:
    """Carry out the request in one line, if it is valid."""
    try:
        request = msgspec.json.decode(line, type=PlaceholderRequest)
    except msgspec.DecodeError as error:
        return Answer(code="hedge.bad_request", message=str(error)[:200], is_for_admin=True)
    words = (*request.partition.split(","), *(request.features or ()))
    limit = request.limit_seconds
    if (
        request.job_id < 1
        or not all(_WORD.fullmatch(word) for word in words)
        or not 0.0 < request.held_seconds <= _MAX_HELD_SECONDS
        or not (limit is None or 0.0 < limit < 1e9)
    ):
        return Answer(
            code="hedge.bad_request", message="the request has a value out of range", is_for_admin=True
        )
    try:
        return Answer(placeholder=reserve(request))
    except AdvisorError as error:
        is_for_admin = isinstance(error, TellAdmin)
        return Answer(code=error.code, message=str(error)[:1000], is_for_admin=is_for_admin)


def serve_one(asked: BinaryIO, said: BinaryIO, reserve: Callable[[PlaceholderRequest], int]) -> bool:
    """Answer one request; False at the end of the connection or after a line that is too long."""
    line = asked.readline(_MAX_BYTES)
    if not line:
        return False
    said.write(msgspec.json.encode(answer(line, reserve)) + b"\n")
    said.flush()
    return line.endswith(b"\n")


def serve(asked: BinaryIO, said: BinaryIO, reserve: Callable[[PlaceholderRequest], int]) -> None:
    """Answer the requests of a connection, one after the other, until it is closed or half an hour old."""
    end = time.monotonic() + _LIFE_SECONDS
    while (left := end - time.monotonic()) > 0.0:
        # the client waits for each answer, so `asked` never holds a request that select does not see
        ready, _, _ = select.select([asked], [], [], left)
        if not (ready and serve_one(asked, said, reserve)):
            return


def ask(helper: Path, question: bytes, timeout: float = _TIMEOUT_SECONDS) -> Answer:
    """Send the helper one request on a connection of its own (:meth:`Helper.ask`)."""
    with closing(Helper(helper, timeout)) as once:
        return once.ask(question)


class Helper:
    """A connection to the helper's socket, kept from one request to the next. Used by one thread.

    ``timeout`` is in seconds, for each read and write.
    """

    def __init__(self, path: Path, timeout: float = _TIMEOUT_SECONDS) -> None:
        self.path = path
        self._timeout = timeout
        self._connection: socket.socket | None = None

    def ask(self, question: bytes) -> Answer:
        """Send one request, without its line end. A request that may have arrived is never sent again.

        Raises:
            OSError: The helper does not listen, does not answer in time, or ended without an answer.
            msgspec.DecodeError: The answer cannot be decoded.
        """
        connection = self.connected()
        try:
            connection.sendall(question + b"\n")
            said = b""
            while not said.endswith(b"\n") and len(said) < _MAX_BYTES:
                received = connection.recv(_MAX_BYTES)
                if not received:
                    raise ConnectionResetError("it ended without an answer")
                said += received
            return msgspec.json.decode(said, type=Answer)
        except (OSError, msgspec.DecodeError):
            self.close()
            raise

    def close(self) -> None:
        """Close the connection: the helper ends."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connected(self) -> socket.socket:
        """The open connection; a new one if the helper has ended.

        Raises:
            OSError: The helper does not listen.
        """
        if self._connection is not None and not _is_open(self._connection):
            self.close()
        if self._connection is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.settimeout(self._timeout)
                connection.connect(str(self.path))
            except OSError:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def _is_open(connection: socket.socket) -> bool:
    """Whether the other side has neither closed the connection nor sent anything unasked."""
    timeout = connection.gettimeout()
    connection.setblocking(False)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.settimeout(timeout)
    return False  # end of the stream, or an answer without a request


class HelpedPlaceholders(Placeholders):
    """Placeholders that the helper submits; all other commands are those of ``places``."""

    def __init__(self, places: Placeholders, helper: Path) -> None:
        super().__init__(places.commands)
        self._helper = Helper(helper)

    def prepare(self) -> None:
        """See :class:`~advisor.slurm.placeholders.Placeholders`."""
        with suppress(OSError):  # the next request reports it
            self._helper.connected()

    def close(self) -> None:
        """Close the connection: the helper ends."""
        self._helper.close()

    def reserve(self, request: PlaceholderRequest) -> int:
        """See :class:`~advisor.slurm.placeholders.Placeholders`."""
        try:
            found = self._helper.ask(msgspec.json.encode(request))
        except FileNotFoundError:
            raise TellAdmin(
                f"no place helper listens at {self._helper.path}. Only root may submit users' placeholders: "
                "enable advisor-places.socket; or set hedge.enabled = false, and a cluster.policy other than "
                "ambati2021",
                code="hedge.no_helper",
            ) from None
        except (OSError, msgspec.DecodeError) as error:
            raise RetryLater(
                f"the place helper has failed: {error}. `journalctl -u 'advisor-places@*'` has the reason",
                code="hedge.helper",
            ) from error
        if found.placeholder > 0:
            return found.placeholder
        kind = TellAdmin if found.is_for_admin else RetryLater
        raise kind(
            found.message
            or "the place helper's answer names no job. `journalctl -u 'advisor-places@*'` has the reason",
            code=found.code or "hedge.helper",
        )
