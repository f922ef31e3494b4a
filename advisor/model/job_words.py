"""Constraints, array index expressions and units of memory, as Slurm and LSF write them."""

from __future__ import annotations

import re
from typing import Final

MAX_ARRAY_TASKS: Final = 4_000_001
"""Slurm's own ceiling of MaxArraySize."""
MAX_CONSTRAINT: Final = 512
"""Bytes of a constraint that the hook sets: the user's own with ours."""
MEBIBYTES: Final = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
"""MiB of a unit of memory as Slurm and LSF write it; without a unit, MiB."""
_ROOM_FOR_OURS: Final = 64
_ARRAY_PART: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?\Z", re.ASCII)
_CONJUNCTION: Final = re.compile(r"[\w.&-]*\Z", re.ASCII)
_FEATURE_WORD: Final = re.compile(r"[^&|,\[\]()*!\s]+")
_MEMORY: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([KMGTP]?)")


def mebibytes(text: str) -> int | None:
    """MiB of memory such as ``100M``, ``1.50G`` or ``0``; None for anything else."""
    match = _MEMORY.fullmatch(text.strip())
    return None if match is None else round(float(match[1]) * MEBIBYTES[match[2]])


def count_array_tasks(expression: str | None) -> int:
    """Tasks of an ``--array`` expression such as ``1-7:2%3,9``; 1 for None or what cannot be read.

    A huge range is counted, not walked.
    """
    if not expression:
        return 1
    total = 0
    for part in expression.partition("%")[0].strip("[]").split(","):
        match = _ARRAY_PART.match(part.strip())
        if match is None:
            return 1
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step == 0:
            return 1
        total += (last - first) // step + 1
    return max(1, min(total, MAX_ARRAY_TASKS))


def array_at_once(expression: str | None) -> int | None:
    """How many tasks of an ``--array`` expression such as ``1-7%3`` may run at a time; None: all."""
    match = re.search(r"%(\d{1,9})\]?\Z", (expression or "").strip())
    return int(match[1]) or None if match else None


def feature_words(expression: str | None) -> tuple[str, ...]:
    """Features named anywhere in a constraint expression, counts (``*2``) kept out."""
    if not expression:
        return ()
    return tuple(word for word in _FEATURE_WORD.findall(expression) if not word.isdigit())


def is_plain(constraint: str | None) -> bool:
    """Whether something can be added to a constraint: a conjunction, not so long that ours has no room."""
    if not constraint:
        return True
    is_short = len(constraint) <= MAX_CONSTRAINT - _ROOM_FOR_OURS
    return is_short and _CONJUNCTION.match(constraint) is not None


def besides_processors(tres: str | None) -> str | None:
    """A request of ``--gres`` or ``--gpus`` (``tres_per_node`` and the like) without processors and memory.

    From 23.11 on ``-c 4`` is ``tres_per_task=cpu=4`` too.
    """
    for part in (tres or "").split(","):
        kind = re.match(r"\s*([A-Za-z]+)[=:]", part)
        if part.strip() and (kind is None or kind[1] not in {"cpu", "mem"}):
            return tres
    return None
