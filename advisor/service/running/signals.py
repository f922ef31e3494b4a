"""What the signals of systemd mean for a daemon: end, or read the settings again."""

from __future__ import annotations

import signal
import threading


class DaemonSignals:
    """SIGTERM and SIGINT set ``stop``, SIGHUP sets ``reload``; each also ends a :meth:`wait`.

    It is made in the main thread, and takes the place of the handlers that were set before.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.reload = threading.Event()
        self._wake = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._received)

    def wait(self, seconds: float) -> None:
        """Return after that time, or at once when a signal has come since the last call."""
        self._wake.wait(seconds)
        self._wake.clear()

    def _received(self, number: int, _frame: object) -> None:
        (self.reload if number == signal.SIGHUP else self.stop).set()
        self._wake.set()
