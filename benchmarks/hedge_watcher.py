"""The process that watches in ``benchmarks.hedge``; to be killed at any moment.

Like `advisor control` it looks at Slurm every so often, at once when `prolog_slurmctld` tells of a turn, and
for the placeholders of jobs that are announced.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from advisor.model.errors import AdvisorError
from advisor.service.exchange.announcing import Announced
from advisor.service.exchange.control_socket import ControlSocket
from advisor.service.exchange.handover import HandoverFolder
from advisor.service.exchange.socket_file import SocketFile
from advisor.testing.lab import Lab
from advisor.testing.watched import WatchedLab
from benchmarks.hedge import CONTROL_SOCKET, SECTIONS

_PERIOD_SECONDS = 0.5
_MIN_REST_SECONDS = 0.1


class Watcher:
    """Looks in one thread and watches in another.

    Args:
        lab: The lab's folder.
        state: Where it writes down what it does.
    """

    def __init__(self, lab: Path, state: Path) -> None:
        self._watched = WatchedLab(Lab(lab), state, sections=SECTIONS)
        self._turn = threading.Event()
        self._stirred = threading.Event()
        self._has_looked = False
        self._socket = ControlSocket(
            SocketFile(state / CONTROL_SOCKET),
            HandoverFolder(state / "handover"),
            frozenset({os.getuid()}),
            arrived=self._turn.set,
            placeholder_started=self._turn.set,
            announced=self._hedged,
        )

    def run(self) -> None:
        """Watch until killed; its log says why it ended by itself."""
        self._socket.start()
        looking = threading.Thread(target=self._look, daemon=True)
        looking.start()
        urgent_task = self._watched.loop.urgent_task
        while looking.is_alive():  # one that dies of an error of ours ends the process, and so the benchmark
            self._stirred.clear()
            if self._has_looked:
                self._has_looked = False
                self._watched.go_on()
            elif urgent_task.due_in() <= 0.0:
                with suppress(AdvisorError):
                    urgent_task.step.run()
            else:
                self._stirred.wait(min(_PERIOD_SECONDS, urgent_task.due_in()))

    def _look(self) -> None:
        while True:
            self._turn.clear()
            with suppress(AdvisorError):
                self._watched.look()
                self._has_looked = True
                self._stirred.set()
            time.sleep(_MIN_REST_SECONDS)
            self._turn.wait(_PERIOD_SECONDS - _MIN_REST_SECONDS)

    def _hedged(self, jobs: Sequence[Announced]) -> None:
        self._watched.loop.expect(jobs)
        self._stirred.set()


if __name__ == "__main__":
    Watcher(*map(Path, sys.argv[1:])).run()
