"""Plays systemd's `advisor-places.socket`: the shipped place helper is started for each connection."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

_STOP_SECONDS: Final = 10.0


class PlaceSocket:
    """A Unix socket with ``Accept=yes``.

    Args:
        path: Of the socket.
        command: The helper's, with the connection as standard input and output.
        environment: Added to ours.
        log: Takes the helpers' standard error.
        owner: The user who may connect; empty: ourselves.
    """

    def __init__(
        self,
        path: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        owner: str = "",
    ) -> None:
        self.path = path
        self._owner = owner
        self.connections = 0
        self._command = list(command)
        self._environment = environment
        self._log = log
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        listener = self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.path))
        self.path.chmod(0o600)
        if self._owner:
            shutil.chown(self.path, self._owner)
        listener.listen()
        self._thread = threading.Thread(target=self._run, args=(listener,), name="place socket", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept`
            self._listener.close()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        self.path.unlink(missing_ok=True)
        for helper in self._helpers:
            helper.terminate()
            helper.wait(_STOP_SECONDS)

    def _run(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, self._log.open("ab") as log:
                self.connections += 1
                helper = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
                    self._command,
                    stdin=connection.fileno(),
                    stdout=connection.fileno(),
                    stderr=log,
                    env={**os.environ, **self._environment},
                )
            self._helpers.append(helper)
            self._helpers = [one for one in self._helpers if one.poll() is None]
