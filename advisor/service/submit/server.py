"""`advisor serve`: a thread a connection, blocking reads, answers from memory.

A thread a connection and not an event loop: slurmctld keeps one connection and asks one question at a time,
and then a blocking ``recv`` is the shortest way from its question to its answer (the measurements are in
docs/designs/0005-submit-path.md). A client that hangs, sends half a line or nonsense hurts its own connection
only.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Final

import structlog

from advisor import __version__
from advisor.decide.explanation.reasons import Reason
from advisor.service.exchange import protocol
from advisor.service.exchange.announcing import Announcer
from advisor.service.exchange.protocol import (
    VERSION,
    AdviseRequest,
    AgainRequest,
    ExplainRequest,
    MetricsReply,
    MetricsRequest,
    PingReply,
    ProtocolError,
)
from advisor.service.exchange.socket_file import peer_uid
from advisor.service.exchange.spool import SpoolWriter
from advisor.service.running.metrics import ServeMetrics, ServeReadings
from advisor.service.submit.answering import Answered, Answerer, is_believable, starts_hedged
from advisor.service.submit.guests import GUEST_SECONDS, Guests
from advisor.service.submit.state_holder import StateHolder

_RECEIVE_BYTES: Final = 8192
"""Buffer of one receive call, which is allocated whole; most requests fit."""
_MAX_LINE_BYTES: Final = 65536  # a request of the hook has some 1,000
_MAX_CONNECTIONS: Final = 64  # slurmctld keeps one
_IDLE_SECONDS: Final = 600.0
"""A connection without a request for this time is closed; the hook opens another one."""
_HALF_LINE_SECONDS: Final = 5.0
"""A connection that has sent a part of a line must send the rest within this time."""
_SEND_SECONDS: Final = 5.0
"""A client must accept an answer within this time."""
_ACCEPT_SECONDS: Final = 0.2
"""How often the accepting thread looks whether the server is being stopped."""
_SILENT_SECONDS: Final = 2.0
"""If all connections are in use, one without a request for this time is closed for a new client."""
_TIMEVAL: Final = struct.Struct("@ll")

log = structlog.get_logger(__name__)


class SubmitServer:
    """Accepts connections on a listening socket and answers them.

    Args:
        allowed_uids: User ids that may ask about every user's jobs.
        every_user: Whether all other users may ask about their own jobs (`guests`).
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        answerer: Answerer,
        holder: StateHolder,
        spool: SpoolWriter,
        metrics: ServeMetrics,
        announcer: Announcer,
        allowed_uids: frozenset[int],
        every_user: bool = False,
    ) -> None:
        self._listener = listener
        self._answerer = answerer
        self._holder = holder
        self._spool = spool
        self._metrics = metrics
        self._announcer = announcer
        self.allowed_uids = allowed_uids
        self._guests = Guests(most=_MAX_CONNECTIONS // 2 if every_user else 0)
        self._asked_at: dict[socket.socket, float] = {}
        self._threads: set[threading.Thread] = set()
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._started = time.monotonic()
        self.advice_given = 0
        self._accept_thread = threading.Thread(target=self._accept, name="accept", daemon=True)
        metrics.watch(self._readings)

    def start(self) -> None:
        """Begin to accept."""
        self._listener.settimeout(_ACCEPT_SECONDS)
        self._accept_thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Accept no more connections, answer the requests that have arrived, and close all connections."""
        self._stopping.set()
        with self._guard:
            connections, threads = list(self._asked_at), list(self._threads)
        for connection in connections:
            _shut(connection, socket.SHUT_RD)
        deadline = time.monotonic() + timeout
        for thread in [self._accept_thread, *threads]:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError as error:
                # out of file descriptors or the like: others are being served, so wait and go on
                log.warning("accept.failed", error=error.strerror)
                time.sleep(0.1)
                continue
            if refusal := self._why_refused(connection) or self._why_not_begun(connection):
                self._guests.leave(connection)
                self._metrics.protocol_error(refusal)
                _refuse(connection, refusal)
        self._listener.close()  # never shut down: systemd may hold it as well

    def _why_refused(self, connection: socket.socket) -> str:
        uid = peer_uid(connection)
        if uid not in self.allowed_uids and (why := self._guests.why_refused(connection, uid)):
            return why
        return "" if self._has_room() else "server.busy"

    def _has_room(self) -> bool:
        """Whether one more connection may begin. If necessary, the one that is silent longest is closed.

        Otherwise clients that connect and ask nothing would keep slurmctld out for `_IDLE_SECONDS`.
        """
        with self._guard:
            if len(self._asked_at) < _MAX_CONNECTIONS:
                return True
            silent = min(self._asked_at, key=lambda connection: self._asked_at[connection])
            if time.perf_counter() - self._asked_at[silent] < _SILENT_SECONDS:
                return False
            del self._asked_at[silent]
        _shut(silent, socket.SHUT_RD)
        return True

    def _why_not_begun(self, connection: socket.socket) -> str:
        """Serve a connection in a thread of its own; the code of a refusal where the host gives none."""
        thread = threading.Thread(target=self._serve, args=(connection,), name="connection", daemon=True)
        with self._guard:
            self._asked_at[connection] = time.perf_counter()
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            with self._guard:
                del self._asked_at[connection]
                self._threads.discard(thread)
            return "server.busy"
        return ""

    def _serve(self, connection: socket.socket) -> None:
        try:
            _set_timeout(connection, socket.SO_SNDTIMEO, _SEND_SECONDS)
            self._answer_lines(connection)
        except OSError:  # it hung up, did not read, or was idle for too long
            pass
        except Exception:
            log.exception("connection.failed")
        finally:
            with self._guard:
                self._asked_at.pop(connection, None)
                self._threads.discard(threading.current_thread())
            self._guests.leave(connection)
            connection.close()

    def _answer_lines(self, connection: socket.socket) -> None:
        is_guest = connection in self._guests
        idle_seconds = GUEST_SECONDS if is_guest else _IDLE_SECONDS
        _set_timeout(connection, socket.SO_RCVTIMEO, idle_seconds)
        buffer = b""
        while received := connection.recv(_RECEIVE_BYTES):
            arrived = time.perf_counter()
            if connection in self._asked_at:
                self._asked_at[connection] = arrived
            had_half_a_line = bool(buffer)
            buffer = buffer + received if buffer else received
            while (end := buffer.find(b"\n") + 1) > 0:
                line, buffer = buffer[:end], buffer[end:]
                if len(line) > _MAX_LINE_BYTES:
                    break
                self._answer_line(connection, line, arrived, is_guest=is_guest)
            if len(buffer) > _MAX_LINE_BYTES or (end and len(line) > _MAX_LINE_BYTES):
                self._metrics.protocol_error("protocol.too_long")
                connection.sendall(protocol.refusal("protocol.too_long"))
                return
            if bool(buffer) != had_half_a_line:
                # half a line may not hold a connection for as long as an idle one
                seconds = min(_HALF_LINE_SECONDS, idle_seconds) if buffer else idle_seconds
                _set_timeout(connection, socket.SO_RCVTIMEO, seconds)

    def _answer_line(self, connection: socket.socket, line: bytes, arrived: float, *, is_guest: bool) -> None:
        try:
            request = protocol.decode_request(line)
            if is_guest:
                request = self._guests.own_question(connection, request)
        except ProtocolError as error:
            connection.sendall(protocol.refusal(error.code))
            self._metrics.protocol_error(error.code)
            return
        if isinstance(request, AdviseRequest):
            self._advise(connection, request, arrived)
        elif isinstance(request, AgainRequest):
            self._advise_again(connection, request, arrived)
        elif isinstance(request, MetricsRequest):
            reply = MetricsReply(v=VERSION, seq=request.seq, text=self._metrics.text())
            connection.sendall(protocol.encode_line(reply))
        else:
            connection.sendall(protocol.encode_line(self._pong(request.seq)))

    def _advise(self, connection: socket.socket, request: AdviseRequest, arrived: float) -> None:
        try:
            answered = self._answerer.answer(request)
        except Exception:
            connection.sendall(protocol.refusal("server.failed", request.seq))
            self._metrics.protocol_error("server.failed")
            log.exception("advice.failed")
            return
        if isinstance(request, ExplainRequest):
            connection.sendall(protocol.encode_line(answered.reply))
        else:
            connection.sendall(protocol.encode_hook_reply(answered.reply))
        # slurmctld has its answer: what follows delays no submission
        seconds = time.perf_counter() - arrived
        if not request.dry and starts_hedged(answered.record.advice):
            self._announcer.announce(answered.record.advice.advice_id, request.uid)
        self._write_down(request, answered, seconds)
        self._answerer.count()

    def _advise_again(self, connection: socket.socket, request: AgainRequest, arrived: float) -> None:
        try:
            answered = self._answerer.again(request)
        except Exception:
            connection.sendall(protocol.refusal("server.failed", request.seq))
            self._metrics.protocol_error("server.failed")
            log.exception("advice_again.failed")
            return
        reply = answered.reply
        is_first = request.is_new and reply.reason != Reason.STATE_UNKNOWN
        if is_first:
            self.advice_given += 1
            self._metrics.advised(AdviseRequest(v=VERSION), reply, time.perf_counter() - arrived)
        if is_first or reply.partition is not None:  # before it is told: what moves a job is in the ledger
            self._spool.append(answered.record)
        connection.sendall(protocol.encode_line(reply))

    def _write_down(self, request: AdviseRequest, answered: Answered, seconds: float) -> None:
        self.advice_given += 1
        self._metrics.advised(request, answered.reply, seconds)
        if not request.dry:
            self._spool.append(answered.record)

    def _pong(self, seq: int) -> PingReply:
        knowledge = self._holder.current
        now = time.time()
        snapshot = knowledge.snapshot
        return PingReply(
            v=VERSION,
            seq=seq,
            release=__version__,
            pid=os.getpid(),
            uptime_seconds=time.monotonic() - self._started,
            snapshot_age_seconds=None if snapshot is None else now - snapshot.state.time,
            snapshot_usable=is_believable(snapshot, now, knowledge.settings),
            model_version=self._holder.forecast_version,
            advice_given=self.advice_given,
            spool_dropped=self._spool.dropped,
            hedges_announced=self._announcer.sent,
            hedges_not_announced=self._announcer.not_sent,
        )

    def _readings(self) -> ServeReadings:
        pong = self._pong(0)
        age = pong.snapshot_age_seconds
        return ServeReadings(
            gauges={
                "snapshot_age_seconds": (
                    float("nan") if age is None else age,
                    "Age of the cluster snapshot; NaN without one.",
                ),
                "snapshot_believed": (pong.snapshot_usable, "0: everything stays on-premise."),
                "connections": (len(self._asked_at), "Open connections."),
                "spool_waiting": (self._spool.waiting, "Records not yet written."),
            },
            counters={
                "spool_dropped": (pong.spool_dropped, "Records lost: queue or disk full."),
                "hedges_announced": (
                    pong.hedges_announced,
                    "Submissions that start hedged, told to advisor control at once.",
                ),
                "hedges_not_announced": (
                    pong.hedges_not_announced,
                    "Those that it could not be told of; it finds them at its next poll.",
                ),
                "spool_written": (self._spool.written, "Records written."),
                "estimator_errors": (
                    self._answerer.estimator_errors,
                    "Submissions whose estimate failed; they stayed on-premise.",
                ),
            },
            state_errors=dict(self._holder.errors),
            model_version=pong.model_version or "",
        )


def _refuse(connection: socket.socket, error: str) -> None:
    try:
        connection.setblocking(False)
        connection.send(protocol.refusal(error))
    except OSError:  # it did not wait for the reason
        pass
    connection.close()


def _shut(connection: socket.socket, how: int) -> None:
    with suppress(OSError):  # already closed by the other side
        connection.shutdown(how)


def _set_timeout(connection: socket.socket, option: int, seconds: float) -> None:
    """Kernel timeout of a blocking socket: unlike Python's own it costs no poll() before each call."""
    whole = int(seconds)
    connection.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(whole, int((seconds - whole) * 1e6)))
