"""A small blocking client of the submit socket, for `advisor advise`, `doctor`, metrics and benchmarks."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any, Final, NoReturn, Self, TypeVar

import msgspec

from advisor.model.errors import RetryLater, TellAdmin, UseFallback
from advisor.model.job import Job
from advisor.service.exchange.access import DENIED, denied
from advisor.service.exchange.protocol import (
    METRICS_BYTES,
    NOT_ALLOWED,
    NOT_OWN_JOB,
    REPLY_BYTES,
    VERSION,
    AdviseReply,
    AgainRequest,
    ExplainRequest,
    MetricsReply,
    MetricsRequest,
    PingReply,
    PingRequest,
    encode_line,
    fields_of,
)

_Reply = TypeVar("_Reply", AdviseReply, PingReply, MetricsReply)
_TIMEOUT_SECONDS: Final = 2.0


class SubmitClient:
    """One connection to `advisor serve`, opened at the first question.

    Args:
        timeout: Longest a connect, a send or a receive waits, seconds.
    """

    def __init__(self, path: Path, timeout: float = _TIMEOUT_SECONDS) -> None:
        self._path = path
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; the next question connects again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def advise(self, **fields: Any) -> AdviseReply:
        """Ask about one submission; ``fields`` are those of ``ExplainRequest``.

        Raises:
            RetryLater: No server listens, or no answer in time (``submit.unreachable``).
            TellAdmin: The login may not ask, or the process may not open the socket (``access.denied``).
            UseFallback: The server refused, or answered something else (the refusal's code).
        """
        request = ExplainRequest(v=VERSION, seq=self._next(), **fields)
        return self._ask(encode_line(request), AdviseReply, REPLY_BYTES)

    def again(
        self,
        job: Job,
        wait_seconds: float | None = None,
        planned_wait_seconds: float | None = None,
        *,
        is_new: bool = False,
    ) -> AdviseReply:
        """Ask about a job that waits on-premise (`AgainRequest`); errors as :meth:`advise`."""
        request = AgainRequest(
            v=VERSION,
            job=job,
            seq=self._next(),
            wait_seconds=wait_seconds,
            planned_wait_seconds=planned_wait_seconds,
            is_new=is_new,
        )
        return self._ask(encode_line(request), AdviseReply, REPLY_BYTES)

    def ping(self) -> PingReply:
        """Ask how the server is; errors as :meth:`advise`."""
        return self._ask(encode_line(PingRequest(v=VERSION, seq=self._next())), PingReply, REPLY_BYTES)

    def metrics(self) -> str:
        """Prometheus text of the server; errors as :meth:`advise`."""
        line = encode_line(MetricsRequest(v=VERSION, seq=self._next()))
        return self._ask(line, MetricsReply, METRICS_BYTES).text

    def exchange(self, line: bytes, limit: int = REPLY_BYTES) -> bytes:
        """Send one raw line and receive one; of the errors of :meth:`advise`, `UseFallback` is not raised.

        ``limit`` is the longest answer, bytes.
        """
        try:
            return self._exchange(line, limit)
        except OSError as error:
            self.close()
            if error.errno in {errno.EACCES, errno.EPERM}:
                raise denied(self._path) from error
            if error.errno == errno.EAFNOSUPPORT:
                raise TellAdmin(
                    f"{self._path}: this process may open no Unix socket. "
                    "Add AF_UNIX to RestrictAddressFamilies in its systemd unit",
                    code=DENIED,
                ) from error
            raise RetryLater(
                f"{self._path}: no answer from the submit server ({error}). "
                "`systemctl status advisor-serve` says whether it runs",
                code="submit.unreachable",
            ) from error

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _exchange(self, line: bytes, limit: int) -> bytes:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(self._timeout)
            self._socket.connect(str(self._path))
        self._socket.sendall(line)
        received = self._socket.recv(65536)
        while not received.endswith(b"\n"):
            if len(received) > limit:
                raise OSError(f"answer longer than {limit} bytes")
            more = self._socket.recv(65536)
            if not more:
                raise ConnectionResetError("connection closed")
            received += more
        return received

    def _ask(self, line: bytes, kind: type[_Reply], limit: int) -> _Reply:
        received = self.exchange(line, limit)
        # the answers to this client's requests are JSON: a line in fields by place is a refusal
        if (fields := fields_of(received)) is not None:
            _version, _sequence, code, *_ = fields
            self._refused(code)
        try:
            return msgspec.json.decode(received, type=kind)
        except msgspec.MsgspecError as error:
            self.close()
            raise UseFallback(
                f"{self._path}: not an answer of a submit server of this release: {error}. "
                "Restart advisor-serve",
                code="protocol.malformed",
            ) from error

    def _refused(self, code: str) -> NoReturn:
        if code in (NOT_ALLOWED, NOT_OWN_JOB):
            may = "ask about its own jobs only" if code == NOT_OWN_JOB else "not ask"
            raise TellAdmin(
                f"{self._path}: this login may {may}. Run the command as root, the service's user or "
                "SlurmUser, or add this login's user id to submit.allowed_uids",
                code=DENIED,
            )
        raise UseFallback(
            f"{self._path}: the submit server has refused the request ({code}). "
            "`journalctl -u advisor-serve` may say more",
            code=code,
        )
