"""The process that watches in ``advisor.testing.bench.hedge``; to be killed at any moment.

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
from advisor.service.announcing import Announced
from advisor.service.handover import ControlSocket, HandoverFolder
from advisor.service.socket_file import SocketFile
from advisor.testing.bench.hedge import CONTROL_SOCKET, SECTIONS
from advisor.testing.lab import Lab
from advisor.testing.watched import WatchedLab

_PERIOD_SECONDS = 0.5
_SHORTEST_REST_SECONDS = 0.1


def main(lab: str, state: str) -> None:
    """Watch until killed."""
    turn, stirred = threading.Event(), threading.Event()
    watched = WatchedLab(Lab(Path(lab)), Path(state), sections=SECTIONS)

    def came() -> None:
        turn.set()
        stirred.set()

    def hedged(jobs: Sequence[Announced]) -> None:
        watched.loop.expect(jobs)
        stirred.set()

    control_socket = ControlSocket(
        SocketFile(Path(state) / CONTROL_SOCKET),
        HandoverFolder(Path(state) / "handover"),
        frozenset({os.getuid()}),
        arrived=came,
        turn=came,
        hedged=hedged,
    )
    control_socket.start()
    errand = watched.loop.errand
    while True:
        began = time.monotonic()
        turn.clear()
        with suppress(AdvisorError):
            watched.round()
        end = max(time.monotonic() + _SHORTEST_REST_SECONDS, began + _PERIOD_SECONDS)
        while (left := end - time.monotonic()) > 0.0 and not turn.is_set():
            if errand.due_in() <= 0.0:
                with suppress(AdvisorError):
                    errand.step.run()
            elif stirred.wait(min(left, errand.due_in())):
                stirred.clear()


if __name__ == "__main__":
    main(*sys.argv[1:])
