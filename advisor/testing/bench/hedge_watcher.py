"""The process that watches in ``advisor.testing.bench.hedge``; to be killed at any moment."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

from advisor.model.errors import AdvisorError
from advisor.testing.bench.hedge import SECTIONS
from advisor.testing.lab import Lab
from advisor.testing.watched import WatchedLab

_PERIOD_SECONDS = 0.5


def main(lab: str, state: str) -> None:
    """Watch until killed."""
    watched = WatchedLab(Lab(Path(lab)), Path(state), sections=SECTIONS)
    while True:
        began = time.monotonic()
        with suppress(AdvisorError):
            watched.round()
        time.sleep(max(0.1, _PERIOD_SECONDS - (time.monotonic() - began)))


if __name__ == "__main__":
    main(*sys.argv[1:])
