"""The files of the lease by which one of two control processes acts."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import msgspec

from advisor.files.fence import MAX_LEASE_BYTES
from advisor.files.whole_file import read_plain_file

LEASE: Final = "lease.json"
BEAT: Final = "lease.beat"


class Holder(msgspec.Struct, frozen=True):
    """Which process acts: its host and process id, since when (epoch seconds), and how many did before."""

    fence: int = 0
    host: str = ""
    pid: int = 0
    time: float = 0.0


class Beat(msgspec.Struct, frozen=True):
    """The counter that the holder increases while it lives."""

    fence: int = 0
    count: int = 0
    released: bool = False


Content = TypeVar("Content", Holder, Beat)


def decoded(content: bytes, kind: type[Content]) -> Content:
    """The record in a file; an empty one where it is damaged."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, ValueError):
        return kind()


def read_holder(folder: Path) -> Holder:
    """Which process acts; raises FileNotFoundError and AdvisorError as `read_plain_file`."""
    return decoded(read_plain_file(folder / LEASE, MAX_LEASE_BYTES), Holder)
