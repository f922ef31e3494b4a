"""Partition names and parameters read from slurm.conf itself, where no slurmctld may answer.

`advisor config check` compares the names with the settings; `advisor rehearse --slurm-conf` reads the rest.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from advisor.model.errors import BadInput

_PARTITION: Final = re.compile(r"^\s*PartitionName\s*=\s*(\S+)", re.IGNORECASE)
_INCLUDE: Final = re.compile(r"^\s*Include\s+(\S+)", re.IGNORECASE)
_DEPTH: Final = 5
_LIMIT_BYTES: Final = 10_000_000


def value_in(path: Path, name: str, *, depth: int = _DEPTH) -> str | None:
    """The value of a parameter in a slurm.conf and the files it includes, the last of several; None: not set.

    Raises:
        BadInput: The file cannot be read.
    """
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise BadInput(
            f"cannot read it ({error.strerror})",
            where=str(path),
            mend="Give --slurm-conf the cluster's slurm.conf, as a user who may read it and what it includes",
            code="slurm_conf.unreadable",
        ) from None
    value, wanted = None, re.compile(rf"^\s*{re.escape(name)}\s*=\s*(\S+)", re.IGNORECASE)
    for line in text.splitlines():
        if match := wanted.match(line):
            value = match[1]
        elif (match := _INCLUDE.match(line)) and depth:
            value = value_in(path.parent / match[1], name, depth=depth - 1) or value
    return value


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
