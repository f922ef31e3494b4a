"""`advisor serve` announces each submission that starts hedged to `advisor control`, right after its answer.

Jobs that are submitted after a job and before its placeholder go before it, so the placeholder must be
submitted at once and not at the next poll. The message is a hint: without it the placeholder comes at the
next poll, and a wrong one costs a poll. What is done with a job depends on Slurm's data about it only.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

_GATHER_SECONDS: Final = 0.02
"""Pause before a message: slurmctld has yet to create the job, and many announcements become one message."""
_SEND_SECONDS: Final = 0.5
_MAX_WAITING: Final = 2000
_MAX_PER_MESSAGE: Final = 500
_MAX_ID: Final = 80

log = structlog.get_logger(__name__)


class Announced(msgspec.Struct, frozen=True, gc=False):
    """One submission that starts hedged.

    Attributes:
        id: Id of its advice: slurmctld has not given the job a number yet.
        uid: Its user, so that only this user's jobs are polled.
    """

    id: str
    uid: int | None = None


class Announcement(msgspec.Struct, frozen=True, tag_field="op", tag="hedged", gc=False):
    """The message."""

    v: int
    jobs: tuple[Announced, ...]


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Announcement)


def decode(line: bytes) -> tuple[Announced, ...] | None:
    """Read a message; None for any other line."""
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if found.v != 1 or len(found.jobs) > _MAX_PER_MESSAGE:
        return None
    return tuple(job for job in found.jobs if len(job.id) <= _MAX_ID and (job.uid is None or job.uid >= 0))


class Announcer:
    """Sends announcements to ``control_socket`` from a thread of its own, so that callers never wait."""

    def __init__(self, control_socket: Path, *, rest: Callable[[float], None] = time.sleep) -> None:
        self.control_socket = control_socket
        self._rest = rest
        self._waiting: deque[Announced] = deque(maxlen=_MAX_WAITING)
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
        self.sent = 0
        self.not_sent = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def announce(self, advice_id: str, uid: int | None) -> None:
        """Queue one announcement; beyond 2,000 the oldest are dropped and left to the next poll."""
        if len(self._waiting) >= _MAX_WAITING:
            self.not_sent += 1
        self._waiting.append(Announced(advice_id, uid))
        self._wake.set()

    def stop(self, timeout: float = 2.0) -> None:
        """End the thread; what was not sent is left to the next poll."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while self._wake.wait() and not self._stopping:
            self._rest(_GATHER_SECONDS)
            self._wake.clear()
            while self._waiting and not self._stopping:
                self._send(
                    [self._waiting.popleft() for _ in range(min(len(self._waiting), _MAX_PER_MESSAGE))]
                )

    def _send(self, jobs: list[Announced]) -> None:
        message = _encoder.encode(Announcement(v=1, jobs=tuple(jobs))) + b"\n"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(_SEND_SECONDS)
                client.connect(str(self.control_socket))
                client.sendall(message)
                answer = client.recv(4096)
        except OSError as error:
            self._failed(len(jobs), error.strerror or type(error).__name__)
            return
        if b'"ok": true' in answer:
            self.sent += len(jobs)
        else:  # an older release, or one that does not accept it from this user
            self._failed(len(jobs), answer[:100].decode("ascii", "replace"))

    def _failed(self, jobs: int, why: str) -> None:
        self.not_sent += jobs
        if self.not_sent - jobs == 0:  # the first; metrics count the others
            log.warning("announcing.failed", socket=str(self.control_socket), why=why)
