"""Split the output of squeue and sinfo into records that no job's name can forge.

Users type names and comments, and Slurm prints them unchanged, with delimiters, line ends or whole lines that
look like another job. So each call ends its columns and its records with a random word, and the first and
last columns are values that only Slurm writes.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from advisor.model.errors import RetryLater

_MAX_RECORD: Final = 1024 * 1024
_ABSENT: Final = frozenset({"", "(null)", "N/A", "None", "Unknown", "UNKNOWN", "n/a"})
_WHOLE: Final = re.compile(r"[0-9]{1,15}")
_LEADING: Final = re.compile(r"([0-9]{1,9})([KMGTP]?)")
_SCALE: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_LIMIT: Final = re.compile(r"(?:(?:([0-9]{1,6})-)?([0-9]{1,6}):)?([0-9]{1,9}):([0-9]{2})")


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of one call to squeue or sinfo.

    Attributes:
        columns: Names of the columns, as ``--Format`` has them.
        between: The word that ends each column but the last.
        after: The word that ends a record.
    """

    columns: tuple[str, ...]
    between: str
    after: str

    @classmethod
    def of(cls, columns: Sequence[str]) -> Layout:
        """A layout with new random words; they have no comma or colon, which ``--Format`` interprets."""
        word = secrets.token_hex(8)
        return cls(tuple(columns), f"\x1e{word}\x1f", f"\x1d{word}\x1f")

    @property
    def argument(self) -> str:
        """Value of ``--Format``: a column with a suffix and no width is printed in full."""
        last = len(self.columns) - 1
        return ",".join(
            f"{name}:{self.after if index == last else self.between}"
            for index, name in enumerate(self.columns)
        )

    def records(self, text: str, report: Unread) -> Iterator[dict[str, str]]:
        """Records by column; those with another number of columns are counted in `report` and left out.

        Raises:
            RetryLater: The output ends inside a record (``slurm.unreadable``): a part of the queue is worse
                than none.
        """
        *complete, rest = text.split(self.after)
        if rest.strip():
            raise RetryLater(
                "the answer of squeue or sinfo ends in the middle of a record: the next poll asks again",
                code="slurm.unreadable",
            )
        for index, record in enumerate(complete):
            # Slurm writes a line end after each record
            values = (record.removeprefix("\n") if index else record).split(self.between)
            if len(values) != len(self.columns) or len(record) > _MAX_RECORD:
                report.malformed += 1
                continue
            yield dict(zip(self.columns, values, strict=True))


@dataclass(slots=True)
class Unread:
    """How many records could not be read."""

    malformed: int = 0


def text(value: str, limit: int = 1000) -> str | None:
    """A text of at most `limit` characters; None where Slurm shows that there is none."""
    stripped = value.strip()
    return None if stripped in _ABSENT else value[:limit]


def whole(value: str) -> int | None:
    """A whole number; None for anything else."""
    stripped = value.strip()
    return int(stripped) if _WHOLE.fullmatch(stripped) else None


def user_id(value: str) -> int | None:
    """A user's number; up to 26.05.2 squeue shows one above 2147483647 as if it were negative."""
    number = whole(value.strip().removeprefix("-"))
    return -number % 2**32 if number and value.strip().startswith("-") else number


def leading(value: str) -> int | None:
    """The number with which a column begins: ``4``, ``4-8`` (a range), ``4+``, ``2K`` (2,048)."""
    match = _LEADING.match(value.strip())
    if match is None:
        return None
    # squeue abbreviates counts by 1024: "20K"
    return int(match[1]) * _SCALE[match[2]]


def seconds(value: str) -> float | None:
    """Seconds of a time limit such as ``5:00``, ``1:00:00`` or ``2-03:00:00``; None for UNLIMITED etc."""
    match = _LIMIT.fullmatch(value.strip())
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def minutes(value: str) -> int | None:
    """Whole minutes of a time limit; None for UNLIMITED etc."""
    limit = seconds(value)
    return None if limit is None else int(limit // 60)


def suspend_seconds(text: str) -> float | None:
    """Seconds of a ``SuspendTime`` such as ``60``, ``60 sec`` or ``INFINITE``; None for ``NONE``."""
    word = text.strip().partition(" ")[0].upper()
    if word in {"INFINITE", "-1"}:
        return math.inf
    return float(word) if word.isdigit() else None


def cores(shown: str) -> int:
    """Cores of a node, by its sockets, cores and threads such as ``2:64:2``; 0: not known."""
    counts = [whole(word) or 0 for word in shown.strip().split(":")]
    return counts[0] * counts[1] if len(counts) == 3 else 0
