"""The socket of `advisor control`, on which Slurm's programs, `advisor serve` and LSF's connector call."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from advisor.model.errors import AdvisorError
from advisor.service.exchange import announcing, staged
from advisor.service.exchange.announcing import Announced
from advisor.service.exchange.handover import MAX_BYTES, HandoverFolder, decode
from advisor.service.exchange.socket_file import SocketFile, peer_uid
from advisor.service.exchange.staged import Staged

log = structlog.get_logger(__name__)

TURN: Final = b'{"v":1,"op":"turn"}\n'
"""The message of `prolog_slurmctld` when a placeholder starts."""
_READ_SECONDS: Final = 2.0

AskConnector = Callable[[str, object], dict[str, Any]]
"""Answers a question of LSF's resource connector: its name and its input."""


class ControlSocket:
    """The socket that receives the hand-overs of `resume` and the other programs.

    Args:
        arrived: Called after each hand-over was written, to wake the loop that acts.
        placeholder_started: Called when a placeholder has started; the message is only a hint that Slurm
            should be polled.
        announced: Called with submissions that start hedged; this is a hint as well.
        stage_in_ended: Called when a job's stage-in has ended; says whether that is settled.
        asked: Answers the calls of LSF's resource connector; None: there is none.
    """

    def __init__(
        self,
        socket_file: SocketFile,
        folder: HandoverFolder,
        allowed_uids: frozenset[int],
        arrived: Callable[[], None],
        placeholder_started: Callable[[], None] = lambda: None,
        announced: Callable[[Sequence[Announced]], None] = lambda _: None,
        stage_in_ended: Callable[[Staged], bool] = lambda _: False,
        asked: AskConnector | None = None,
    ) -> None:
        self._file = socket_file
        self._folder = folder
        self._allowed = allowed_uids
        self._arrived = arrived
        self._placeholder_started = placeholder_started
        self._announced = announced
        self._stage_in_ended = stage_in_ended
        self._asked = asked
        self._stopping = threading.Event()
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._accept, name="control-socket", daemon=True)

    def start(self) -> None:
        """Bind and listen.

        Raises:
            BadInput: The socket cannot be made.
        """
        self._file.claim()
        self._listener = self._file.listen()
        self._listener.settimeout(0.5)
        self._thread.start()

    def stop(self) -> None:
        """Close the socket; the programs leave files from now on."""
        self._stopping.set()
        self._file.remove()
        if self._thread.is_alive():
            self._thread.join(5.0)
        if self._listener is not None:
            self._listener.close()

    def _accept(self) -> None:
        while not self._stopping.is_set() and self._listener is not None:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if not self._stopping.wait(0.1):  # e.g. no file descriptor left: try again
                    log.warning("handover.accept_failed", error=error.strerror)
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name="handover", daemon=True).start()
            except RuntimeError as error:  # the host gives no thread: the program leaves a file
                log.warning("handover.not_taken", error=str(error))
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(_READ_SECONDS)
                reply = self._answer(connection)
                connection.sendall(json.dumps(reply).encode() + b"\n")
            except (OSError, AdvisorError) as error:
                # the program leaves a file then
                log.warning("handover.not_taken", error=str(error))

    def _answer(self, connection: socket.socket) -> dict[str, Any]:
        uid = peer_uid(connection)
        if uid not in self._allowed:
            log.warning("handover.refused", uid=uid)
            return {"v": 1, "ok": False, "error": "handover.uid"}
        line = bytearray()
        while not line.endswith(b"\n"):
            chunk = connection.recv(65536)
            if not chunk or len(line) + len(chunk) > MAX_BYTES:
                return {"v": 1, "ok": False, "error": "handover.malformed"}
            line += chunk
        if bytes(line) == TURN:
            self._placeholder_started()
            return {"v": 1, "ok": True}
        if (announced := announcing.decode(bytes(line))) is not None:
            self._announced(announced)
            return {"v": 1, "ok": True}
        if (ended := staged.decode(bytes(line))) is not None:
            return {"v": 1, "ok": self._stage_in_ended(ended)}
        if self._asked is not None and (question := _question(bytes(line))) is not None:
            return self._asked(*question)
        try:
            hand_over = decode(bytes(line))
        except AdvisorError as error:
            return {"v": 1, "ok": False, "error": error.code}
        self._folder.put(hand_over, bytes(line))
        log.info("handover.taken", operation=hand_over.operation, nodes=len(hand_over.nodes))
        self._arrived()
        return {"v": 1, "ok": True}


def _question(line: bytes) -> tuple[str, object] | None:
    """The name and the input of a question of LSF's resource connector; None for another message."""
    try:
        message = json.loads(line)
        is_one = message["v"] == 1 and message["op"] == "connector"
        return (str(message["call"]), message["input"]) if is_one else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
