"""systemd's notification protocol: one datagram a message (sd_notify(3)). Without systemd nothing happens."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Self


class Notifier:
    """Tells systemd READY, STOPPING and that the watchdog need not bark.

    Args:
        address: ``NOTIFY_SOCKET``; ``@`` at its start stands for the abstract name space.
        watchdog_seconds: Time after which systemd restarts a silent service.
    """

    def __init__(self, address: str | None, watchdog_seconds: float | None = None) -> None:
        self._address = address
        self.watchdog_seconds = watchdog_seconds

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Notifier for the socket and the watchdog systemd gave this process."""
        watchdog: float | None = None
        microseconds = environment.get("WATCHDOG_USEC", "")
        if microseconds.isdigit() and environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            watchdog = int(microseconds) / 1e6
        return cls(environment.get("NOTIFY_SOCKET") or None, watchdog)

    def send(self, *assignments: str) -> bool:
        """Send ``NAME=value`` lines; False without a listener (never an error: the service goes on)."""
        if self._address is None:
            return False
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(1.0)
                sender.sendto("\n".join(assignments).encode(), address)
        except OSError:
            return False
        return True

    def ready(self, status: str) -> None:
        """Everything is warm; systemd may start what waits for us."""
        self.send("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        """A clean stop has begun."""
        self.send("STOPPING=1")

    def alive(self, status: str) -> None:
        """Feed the watchdog."""
        self.send("WATCHDOG=1", f"STATUS={status}")
