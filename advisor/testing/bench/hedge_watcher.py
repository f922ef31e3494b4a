"""The process that watches in ``advisor.testing.bench.hedge``; to be killed at any moment.

Like `advisor control` it looks at Slurm every so often, and at once when `prolog_slurmctld` tells of a turn.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from advisor.model.errors import AdvisorError
from advisor.service.handover import ControlSocket, HandoverFolder
from advisor.service.socket_file import SocketFile
from advisor.testing.bench.hedge import CONTROL_SOCKET, SECTIONS
from advisor.testing.lab import Lab
from advisor.testing.watched import WatchedLab

_PERIOD_SECONDS = 0.5
_SHORTEST_REST_SECONDS = 0.1


def main(lab: str, state: str) -> None:
    """Watch until killed."""
    turn = threading.Event()
    control_socket = ControlSocket(
        SocketFile(Path(state) / CONTROL_SOCKET),
        HandoverFolder(Path(state) / "handover"),
        frozenset({os.getuid()}),
        arrived=turn.set,
        turn=turn.set,
    )
    control_socket.start()
    watched = WatchedLab(Lab(Path(lab)), Path(state), sections=SECTIONS)
    while True:
        began = time.monotonic()
        turn.clear()
        with suppress(AdvisorError):
            watched.round()
        turn.wait(max(_SHORTEST_REST_SECONDS, _PERIOD_SECONDS - (time.monotonic() - began)))


if __name__ == "__main__":
    main(*sys.argv[1:])
