"""Huge pages: only where the heap fills one, and what is in it stays."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from advisor.service.running import huge_pages
from advisor.service.running.huge_pages import HUGE_BYTES, collapse, places

MAPS = """\
55d000000000-55d000021000 rw-p 00000000 00:00 0                          [heap]
55d000200000-55d000600001 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000800000 r-xp 00000000 08:01 1234                       /usr/lib/libpython3.11.so
7f0001000000-7f0001400000 rw-p 00000000 08:01 1234                       /usr/lib/libpython3.11.so
7f0002001000-7f0002600000 rw-p 00000000 00:00 0
7f0003000000-7f0003200000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
7f0004000000-7f0004200000 r--p 00000000 00:00 0
7ffd00000000-7ffd00800000 rw-p 00000000 00:00 0                          [stack]
"""


def test_only_whole_pages_of_private_memory() -> None:
    assert [hex(address) for address in places(MAPS.splitlines())] == [
        "0x55d000200000",
        "0x55d000400000",
        "0x7f0002200000",
        "0x7f0002400000",
    ]


def test_what_is_in_memory_stays() -> None:
    with mmap.mmap(-1, 4 * HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        numbers = np.frombuffer(memory, np.int64)
        numbers[:] = np.arange(len(numbers))
        again = collapse()
        assert again >= 0
        assert (numbers == np.arange(len(numbers))).all()
        del numbers


def test_a_system_without_it_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huge_pages, "_MAPS", tmp_path / "missing")
    assert collapse() == 0
