"""Submitting placeholders for users: the one thing of the advisor that takes root, apart from all others.

sbatch lets only root submit for somebody else, and `advisor control` is not root. systemd starts
``advisor place-helper`` as root for each connection to a socket that only the advisor's user may open. It can
do one thing: submit a job that sleeps, shaped like a job that is in the queue, for that job's user. To start
it takes half a second, in which others come before the job; so a connection is kept for the next question.
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
_LIFE_SECONDS: Final = 1800.0  # its unit's RuntimeMaxSec is longer than this and one question
_MAX_HELD_SECONDS: Final = 3600.0
_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]{1,255}")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the helper says: the placeholder's id, or why there is none."""

    placeholder: int = 0
    code: str = ""
    message: str = ""
    is_for_admin: bool = False


def answer(line: bytes, reserve: Callable[[PlaceholderRequest], int]) -> Answer:
    """Do what one line asks for, if it is in order."""
    try:
        wish = msgspec.json.decode(line, type=PlaceholderRequest)
    except msgspec.DecodeError as error:
        return Answer(code="hedge.bad_wish", message=str(error)[:200], is_for_admin=True)
    words = (*wish.partition.split(","), *(wish.features or ()))
    limit = wish.limit_seconds
    if (
        wish.job_id < 1
        or not all(_WORD.fullmatch(word) for word in words)
        or not 0.0 < wish.held_seconds <= _MAX_HELD_SECONDS
        or not (limit is None or 0.0 < limit < 1e9)
    ):
        return Answer(code="hedge.bad_wish", message="no such place can be kept", is_for_admin=True)
    try:
        return Answer(placeholder=reserve(wish))
    except AdvisorError as error:
        is_for_admin = isinstance(error, TellAdmin)
        return Answer(code=error.code, message=str(error)[:1000], is_for_admin=is_for_admin)


def serve_one(asked: BinaryIO, said: BinaryIO, reserve: Callable[[PlaceholderRequest], int]) -> bool:
    """Answer one question; False where there is none, or nobody could say where the next one begins."""
    line = asked.readline(_MAX_BYTES)
    if not line:
        return False
    said.write(msgspec.json.encode(answer(line, reserve)) + b"\n")
    said.flush()
    return line.endswith(b"\n")


def serve(asked: BinaryIO, said: BinaryIO, reserve: Callable[[PlaceholderRequest], int]) -> None:
    """Answer the questions of a connection, one after the other, until it is closed or half an hour old."""
    end = time.monotonic() + _LIFE_SECONDS
    while (left := end - time.monotonic()) > 0.0:
        # whoever asks waits for each answer, so that nothing is read ahead
        ready, _, _ = select.select([asked], [], [], left)
        if not (ready and serve_one(asked, said, reserve)):
            return


def ask(helper: Path, question: bytes, timeout: float = _TIMEOUT_SECONDS) -> Answer:
    """Ask the helper one question, a line.

    Raises
    ------
    OSError
        Nobody listens, not in time, or it ended without a word.
    msgspec.DecodeError
        What came back is no answer.
    """
    with closing(Helper(helper, timeout)) as once:
        return once.ask(question)


class Helper:
    """The helper's connection, kept from one question to the next. Used by one thread.

    Parameters
    ----------
    path : Path
        The helper's socket.
    timeout : float
        Seconds to wait for it at each step.
    """

    def __init__(self, path: Path, timeout: float = _TIMEOUT_SECONDS) -> None:
        self.path = path
        self._timeout = timeout
        self._connection: socket.socket | None = None

    def ask(self, question: bytes) -> Answer:
        """Ask one question, a line. One that may have been heard is never repeated.

        Raises
        ------
        OSError
            Nobody listens, not in time, or it ended without a word.
        msgspec.DecodeError
            What came back is no answer.
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
        """Let the helper end."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connected(self) -> socket.socket:
        """The connection, made anew if the helper has ended: it is there when the next question comes.

        Raises
        ------
        OSError
            Nobody listens.
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
    """Whether the other side still listens, and owes nothing."""
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
    return False  # its end, or what nobody asked for


class HelpedPlaceholders(Placeholders):
    """Placeholders kept with the helper's help.

    Parameters
    ----------
    places : Placeholders
        Whose commands are used for everything else.
    helper : Path
        The helper's socket.
    """

    def __init__(self, places: Placeholders, helper: Path) -> None:
        super().__init__(places.commands)
        self._helper = Helper(helper)

    def prepare(self) -> None:
        """See :class:`~advisor.slurm.placeholders.Placeholders`."""
        with suppress(OSError):  # the next question says so
            self._helper.connected()

    def close(self) -> None:
        """Let the helper end."""
        self._helper.close()

    def reserve(self, wish: PlaceholderRequest) -> int:
        """See :class:`~advisor.slurm.placeholders.Placeholders`."""
        try:
            found = self._helper.ask(msgspec.json.encode(wish))
        except FileNotFoundError:
            raise TellAdmin(
                f"nobody listens at {self._helper.path}: to keep users' places takes root, so enable "
                "advisor-places.socket, or set hedge.enabled = false and waiting.speculate = false",
                code="hedge.no_helper",
            ) from None
        except (OSError, msgspec.DecodeError) as error:
            raise RetryLater(f"the place helper: {error}", code="hedge.helper") from error
        if found.placeholder > 0:
            return found.placeholder
        kind = TellAdmin if found.is_for_admin else RetryLater
        raise kind(found.message or "the place helper named no job", code=found.code or "hedge.helper")
