"""The process's own memory in huge pages: fewer of them to look up when the caches are cold.

Between two questions sbatch and slurmctld empty the processor's tables of pages. An answer then touches
objects all over Python's heap, each page of 4 KiB a walk through the page tables, in a virtual machine
through two of them. Linux puts 2 MiB together when it is asked to (``MADV_COLLAPSE``, since 6.1): an answer
with cold caches took a tenth less. Where that is refused nothing changes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

HUGE_BYTES: Final = 2 * 1024 * 1024
_MADV_COLLAPSE: Final = 25
_MAPS: Final = Path("/proc/self/maps")
_HEAP: Final = "[heap]"


def collapse() -> int:
    """Ask for huge pages wherever the heap fills one; returns how many there are then.

    Takes some milliseconds the first time and does not stop threads that only read and write.
    """
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
        madvise = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):  # no Linux, or no /proc here
        return 0
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(madvise(address, HUGE_BYTES, _MADV_COLLAPSE) == 0 for address in places(lines))


def places(maps: Iterable[str]) -> Iterator[int]:
    """Where a huge page lies within private, writable memory without a file behind it.

    Args:
        maps: Lines as of ``/proc/self/maps``.

    Yields:
        Addresses, multiples of :data:`HUGE_BYTES`.
    """
    for line in maps:
        span, permissions, _offset, _device, inode, *name = line.split(maxsplit=5)
        if permissions != "rw-p" or inode != "0" or name not in ([], [_HEAP]):
            continue
        begin, end = (int(address, 16) for address in span.split("-"))
        yield from range(-(-begin // HUGE_BYTES) * HUGE_BYTES, end - HUGE_BYTES + 1, HUGE_BYTES)
