"""The fence: keeps a process that has lost the lease from writing, launching or changing anything.

Two hosts may run `advisor control` on one folder of state. Which process acts is written in one file there,
`lease.json`, with a number that grows at each takeover. A process compares the file with what it was when the
process took it, before each write, launch and change of Slurm:

* A file is replaced in this order: the new content lies under a partial name, the lease is read, the file is
  renamed. A takeover writes the lease, removes all partial files, then reads the state. So a process that was
  stopped between two of these steps, however long, finds the lease changed or its partial file gone.
* An intent to launch is on the disk before the lease is read and EC2 is called. A takeover writes the lease
  before it reads the journal. So if the old process still calls EC2, the new one knows of the intent and
  finds the launch by its token.

No clock is compared and no lock is held meanwhile, so a stopped process never blocks the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from advisor.files.whole_file import read_plain_file
from advisor.model.errors import TellAdmin

MAX_LEASE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Fence:
    """The lease as this process took it.

    Attributes:
        number: Grows at each takeover; part of client tokens and state files.
        content: What the file holds as long as this process has the lease.
    """

    path: Path
    number: int
    content: bytes

    def check(self) -> None:
        """Read the lease.

        Raises:
            TellAdmin: Another process has it, or there is none any more (``lease.lost``).
            BadInput: It may not be read.
            RetryLater: This process cannot open it for the moment.
        """
        try:
            found = read_plain_file(self.path, MAX_LEASE_BYTES)
        except FileNotFoundError:
            found = b""
        if found == self.content:
            return
        why = "another control process has taken over, and this one ends. Nothing need be done"
        if not found:
            why = (
                f"{self.path} is gone: is its folder mounted? This process ends, and systemd starts it again"
            )
        raise TellAdmin(why, code="lease.lost")


_in_force: Fence | None = None


def in_force() -> Fence | None:
    """The fence of this process; None without a second controller."""
    return _in_force


def put_in_force(fence: Fence | None) -> None:
    """Have everything that this process writes, launches and changes checked by a fence."""
    global _in_force  # noqa: PLW0603 -- a process has the lease or not, whatever part of it asks
    _in_force = fence


def check() -> None:
    """Check the fence in force; raises as `Fence.check`. Without one nothing happens."""
    if _in_force is not None:
        _in_force.check()


def number() -> int:
    """Number of the fence in force; 0 without one."""
    return 0 if _in_force is None else _in_force.number
