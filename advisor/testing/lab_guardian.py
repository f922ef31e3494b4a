"""Stops a lab whose owner died: run as its own process, it waits for the end of a pipe.

``python -m advisor.testing.lab_guardian FOLDER``: when standard input ends without the word ``done``, the
owner was killed; the lab is stopped and its folder removed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from advisor.model.errors import RetryLater


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the process that cleans a lab's folder up if this process is killed."""
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "advisor.testing.lab_guardian", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def await_ready(guardian: subprocess.Popen[str]) -> None:
    """Make sure that it watches: a guardian that could not start would leave everything behind."""
    if guardian.stdout is None or guardian.stdout.closed:
        return
    if guardian.stdout.readline() != "ready\n":
        raise RetryLater("the lab's guardian did not start", code="lab.guardian")
    guardian.stdout.close()


def main() -> None:
    """Wait for the end of standard input, then clean up unless the owner has."""
    from advisor.testing.lab import Lab  # noqa: PLC0415 (the lab imports this module)

    # Ctrl-C in the owner's terminal is the owner's business
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if sys.stdin.read().strip() != "done":
        Lab.clean_up(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
