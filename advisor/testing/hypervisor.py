"""Plays EC2's machines: every running instance becomes a process on this machine, and stops with it.

It looks only at what EC2 shows (state and tags of instances), never at what the advisor thinks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self

import structlog

from advisor.ec2.tags import node_of
from advisor.testing.ec2.process import Ec2Emulator

_POLL_SECONDS: Final = 0.1
_log = structlog.get_logger("advisor.testing.hypervisor")


class Hypervisor:
    """Boots nodes when their instances run and stops them when the instances go.

    Args:
        emulator: Where the instances are.
        start, stop: Called with the node's name; `start` after the boot delay.
        boot_seconds: Time from running instance to `start`. Over one second: slurmctld compares whole
            seconds, and a boot in the second of the resume request is now and then taken for none.
    """

    def __init__(
        self,
        emulator: Ec2Emulator,
        start: Callable[[str], object],
        stop: Callable[[str], object],
        *,
        boot_seconds: float = 1.5,
    ) -> None:
        self._emulator = emulator
        self._start = start
        self._stop_node = stop
        self.boot_seconds = boot_seconds
        self._seen: dict[str, float] = {}
        self._booted: dict[str, str] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hypervisor", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(30)

    @property
    def booted(self) -> dict[str, str]:
        """Instance id to node of everything that runs now."""
        return dict(self._booted)

    def run_once(self) -> None:
        """Look once: boot what is due, stop what is gone."""
        instances = self._emulator.instances()
        running = {item["id"]: item for item in instances if item["state"] == "running"}
        for instance_id, item in running.items():
            self._boot_when_due(instance_id, item)
        for instance_id in [known for known in self._booted if known not in running]:
            node = self._booted.pop(instance_id)
            if node not in self._booted.values():  # a younger instance may already be that node
                self._stop_node(node)
        for instance_id in [known for known in self._seen if known not in running]:
            del self._seen[instance_id]

    def _boot_when_due(self, instance_id: str, item: dict[str, Any]) -> None:
        node = node_of(item["tags"], item["launch_index"])
        first_seen = self._seen.setdefault(instance_id, time.monotonic())
        if not node or instance_id in self._booted or time.monotonic() - first_seen < self.boot_seconds:
            return
        self._booted[instance_id] = node
        self._start(node)

    def _run(self) -> None:
        while not self._ending.wait(_POLL_SECONDS):
            try:
                self.run_once()
            except OSError:
                continue  # the emulator is going down or restarting
            except Exception:  # noqa: BLE001 -- one bad node must not stop the others
                _log.exception("hypervisor.step_failed")
