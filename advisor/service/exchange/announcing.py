"""Telling `advisor control` of a submission that starts hedged, in the moment it is answered.

Whoever comes between a job and its placeholder goes first, so the placeholder must follow within a moment,
and not at the next look. The message is a hint: one that is lost costs that look's time and nothing else, one
that is wrong costs a look. What is done about a job is decided by what Slurm itself says of it.
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
"""slurmctld has yet to make the job of the answer; and a storm becomes one message in so long."""
_SEND_SECONDS: Final = 0.5
_MAX_WAITING: Final = 2000
_MAX_A_MESSAGE: Final = 500
_MAX_ID: Final = 80

log = structlog.get_logger(__name__)


class Announced(msgspec.Struct, frozen=True, gc=False):
    """One submission that starts hedged.

    Attributes
    ----------
    id : str
        Its advice, by which its job is known: slurmctld has not numbered it yet.
    uid : int or None
        Its user, so that nobody else's jobs need be looked at.
    """

    id: str
    uid: int | None = None


class Announcement(msgspec.Struct, frozen=True, tag_field="op", tag="hedged", gc=False):
    """What is sent."""

    v: int
    jobs: tuple[Announced, ...]


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Announcement)


def decode(line: bytes) -> tuple[Announced, ...] | None:
    """Read a message; None for any other."""
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if found.v != 1 or len(found.jobs) > _MAX_A_MESSAGE:
        return None
    return tuple(job for job in found.jobs if len(job.id) <= _MAX_ID and (job.uid is None or job.uid >= 0))


class Announcer:
    """Tells `advisor control`, from a thread of its own; who announces waits for nothing.

    Parameters
    ----------
    control_socket : Path
        Where it listens.
    rest : callable
        Sleeps.
    """

    def __init__(self, control_socket: Path, *, rest: Callable[[float], None] = time.sleep) -> None:
        self.control_socket = control_socket
        self._rest = rest
        self._waiting: deque[Announced] = deque(maxlen=_MAX_WAITING)
        self._stirred = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
        self.told = 0
        self.not_told = 0

    def start(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def announce(self, advice_id: str, uid: int | None) -> None:
        """Have it told; of more than two thousand at once the oldest are left to the next look."""
        if len(self._waiting) >= _MAX_WAITING:
            self.not_told += 1
        self._waiting.append(Announced(advice_id, uid))
        self._stirred.set()

    def stop(self, timeout: float = 2.0) -> None:
        """End; what is not told by then the next look shows."""
        self._stopping = True
        self._stirred.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while self._stirred.wait() and not self._stopping:
            self._rest(_GATHER_SECONDS)
            self._stirred.clear()
            while self._waiting and not self._stopping:
                self._tell([self._waiting.popleft() for _ in range(min(len(self._waiting), _MAX_A_MESSAGE))])

    def _tell(self, jobs: list[Announced]) -> None:
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
            self.told += len(jobs)
        else:  # an older release, or one that does not take it from this user
            self._failed(len(jobs), answer[:100].decode("ascii", "replace"))

    def _failed(self, jobs: int, why: str) -> None:
        self.not_told += jobs
        if self.not_told - jobs == 0:  # the first; metrics count the others
            log.warning("announcing.failed", socket=str(self.control_socket), why=why)
