"""Stops a lab whose owner died: run as its own process, it waits for the end of a pipe.

``python -m advisor.testing.lab_guardian FOLDER``: when standard input ends without the word ``done``, the
owner was killed; the lab is stopped and its folder removed.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from advisor.testing.lab import Lab


def main() -> None:
    """Wait, then clean up if nobody else did."""
    # Ctrl-C in the owner's terminal is the owner's business
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if sys.stdin.read().strip() != "done":
        Lab.clean_up(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
