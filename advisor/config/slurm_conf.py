"""Partition names from slurm.conf: enough to check settings where no slurmctld answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_PARTITION: Final = re.compile(r"^\s*PartitionName\s*=\s*(\S+)", re.IGNORECASE)
_INCLUDE: Final = re.compile(r"^\s*Include\s+(\S+)", re.IGNORECASE)
_DEPTH: Final = 5
_LIMIT_BYTES: Final = 10_000_000


def partition_names(path: Path, *, depth: int = _DEPTH) -> set[str] | None:
    """Partitions of a slurm.conf and the files it includes; None when it cannot be read.

    ``PartitionName=DEFAULT`` sets defaults and is no partition. An included file that cannot be read makes
    the answer None as well: with an incomplete list, partitions that exist would be called unknown.
    """
    try:
        if path.stat().st_size > _LIMIT_BYTES:
            return None
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        return None
    names: set[str] = set()
    for line in text.splitlines():
        if match := _PARTITION.match(line):
            names.update(name for name in match[1].split(",") if name.upper() != "DEFAULT")
        elif match := _INCLUDE.match(line):
            included = partition_names(path.parent / match[1], depth=depth - 1) if depth else None
            if included is None:
                return None
            names |= included
    return names
