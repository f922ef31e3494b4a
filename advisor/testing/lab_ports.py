"""A block of TCP ports for each lab, below the ephemeral range, so that labs run side by side.

Labs that share ports but no files, as those in a chroot, need ranges of their own: ``ADVISOR_LAB_PORTS``.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final

from advisor.model.errors import RetryLater

BLOCK: Final = 200
_PORTS: Final = "12000-31800"


def _locks() -> Path:
    return Path(tempfile.gettempdir()) / f"advisor-lab-ports-{os.getuid()}"


def take_block(folder: Path) -> int:
    """Lock a free block for the lab in ``folder``; returns its first port.

    The lock is a folder that names the lab's; a lock whose lab folder is gone is taken over.

    Raises:
        RetryLater: Every block is taken.
    """
    locks = _locks()
    locks.mkdir(mode=0o700, exist_ok=True)
    # not in order: two labs that start at once should not meet on every block
    first, _, last = os.environ.get("ADVISOR_LAB_PORTS", _PORTS).partition("-")
    bases = list(range(int(first), int(last), BLOCK))
    random.SystemRandom().shuffle(bases)
    for base in bases:
        lock = locks / str(base)
        if lock.is_dir() and not _is_held(lock):
            shutil.rmtree(lock, ignore_errors=True)
        try:
            lock.mkdir()
        except FileExistsError:
            continue
        (lock / "folder").write_text(str(folder), encoding="utf-8")
        if _is_free(base):
            return base
        shutil.rmtree(lock, ignore_errors=True)
    raise RetryLater(f"every block of ports is taken; see {locks}", code="lab.ports")


def give_back(base: int) -> None:
    """Unlock a block."""
    shutil.rmtree(_locks() / str(base), ignore_errors=True)


def _is_held(lock: Path) -> bool:
    try:
        return Path((lock / "folder").read_text(encoding="utf-8")).is_dir()
    except OSError:
        return False


def _is_free(base: int) -> bool:
    """True when no process listens in the block (another user's lab, some other server)."""
    wanted = range(base, base + BLOCK)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        if any(int(line.split()[1].rpartition(":")[2], 16) in wanted for line in lines):
            return False
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", base))
        except OSError:
            return False
    return True
