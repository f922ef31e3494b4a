"""systemd is told, when there is one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from advisor.service.running.notify import Notifier


@pytest.mark.parametrize("abstract", [False, True])
def test_datagrams_arrive(tmp_path: Path, abstract: bool) -> None:  # noqa: FBT001 - parametrised
    name = f"@advisor-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name[1:] if abstract else name)
        notifier = Notifier.from_environment({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000"})
        assert notifier.watchdog_seconds == 30.0
        notifier.ready("warm")
        notifier.alive("fine")
        notifier.stopping()
        received = [manager.recv(1000) for _ in range(3)]
    assert received == [b"READY=1\nSTATUS=warm", b"WATCHDOG=1\nSTATUS=fine", b"STOPPING=1"]


def test_without_systemd_nothing_happens(tmp_path: Path) -> None:
    assert not Notifier.from_environment({}).send("READY=1")
    assert not Notifier(str(tmp_path / "gone")).send("READY=1")
    other = {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    assert Notifier.from_environment(other).watchdog_seconds is None
    assert Notifier.from_environment({"WATCHDOG_USEC": "soon"}).watchdog_seconds is None
