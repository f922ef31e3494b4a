"""The reaction of a daemon to systemd's signals: end, or read the settings again."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Final

_LOOK_SECONDS: Final = 0.5


class DaemonSignals:
    """SIGTERM and SIGINT set ``stop``, SIGHUP sets ``reload``; each also ends a :meth:`wait`.

    It is made in the main thread, and takes the place of the handlers that were set before.

    Args:
        applied: A file that grows when settings are applied from the pages, which counts as SIGHUP.
    """

    def __init__(self, applied: Path | None = None) -> None:
        self.stop = threading.Event()
        self.reload = threading.Event()
        self._wake = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._received)
        if applied is not None:
            args = (applied, _signature(applied))
            threading.Thread(target=self._watch, args=args, name="settings", daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Return after that time, or at once when a signal has come since the last call."""
        self._wake.wait(seconds)
        self._wake.clear()

    def _watch(self, applied: Path, seen: tuple[int, int] | None) -> None:
        while not self.stop.wait(_LOOK_SECONDS):
            found = _signature(applied)
            if found is not None and found != seen:
                seen = found
                self._received(signal.SIGHUP, None)

    def _received(self, number: int, _frame: object) -> None:
        (self.reload if number == signal.SIGHUP else self.stop).set()
        self._wake.set()


def _signature(path: Path) -> tuple[int, int] | None:
    """A value that changes when a file is replaced; None if the file cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
