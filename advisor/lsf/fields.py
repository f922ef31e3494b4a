"""The fields of one line of LSF's log files: blanks between them, strings in quotes, quotes inside doubled.

What IBM's page on ``lsb.acct`` says of the form ("one record per line, the fields of a record are separated
by blanks"); the doubled quotes, and more than one blank here and there, are what real files have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

_TOKEN: Final = re.compile(r'"((?:[^"]|"")*+)"(?!\S)|([^\s"]\S*)|(\S)')
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_REAL: Final = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")

Value: TypeAlias = str | int | float


class MalformedRecord(Exception):
    """A line that is not the record it should be; the message says which field and why."""


class Fields:
    """The fields of a line, taken one after the other by their kind.

    Parameters
    ----------
    line : str
        Without its line end.

    Raises
    ------
    MalformedRecord
        A quote has no end, or is followed by something other than a blank.

    Examples
    --------
    >>> fields = Fields('"JOB_FINISH" 7 "a ""b"" c"')
    >>> fields.text("type"), fields.whole("id"), fields.text("command")
    ('JOB_FINISH', 7, 'a "b" c')
    """

    def __init__(self, line: str) -> None:
        self._found: list[tuple[str, str]] = []
        for match in _TOKEN.finditer(line):
            quoted, bare, stray = match.groups()
            if stray is not None:
                raise MalformedRecord(f"a stray quote in field {len(self._found) + 1}")
            self._found.append(("", bare) if quoted is None else (quoted.replace('""', '"'), ""))
        self._next = 0

    def __len__(self) -> int:
        """How many fields are left."""
        return len(self._found) - self._next

    def text(self, name: str) -> str:
        """Take a string in quotes."""
        quoted, bare = self._take(name)
        if bare:
            raise self._unfit(name, "a string in quotes", bare)
        return quoted

    def whole(self, name: str) -> int:
        """Take a whole number."""
        _, bare = self._take(name)
        if not _WHOLE.fullmatch(bare):
            raise self._unfit(name, "a whole number", bare)
        return int(bare)

    def real(self, name: str) -> float:
        """Take a number."""
        _, bare = self._take(name)
        if not _REAL.fullmatch(bare):
            raise self._unfit(name, "a number", bare)
        return float(bare)

    def texts(self, name: str) -> tuple[str, ...]:
        """Take a count and as many strings in quotes."""
        count = self.whole(f"number of {name}")
        if not 0 <= count <= len(self):
            raise MalformedRecord(f"{count} {name}, but {len(self)} fields are left")
        return tuple(self.text(name) for _ in range(count))

    def word(self, name: str) -> str:
        """Take a name, in quotes or (as LSF 9 writes hosts' names here and there) without."""
        quoted, bare = self._take(name)
        if _REAL.fullmatch(bare):
            raise self._unfit(name, "a name", bare)
        return quoted or bare

    def wholes(self, name: str) -> list[int]:
        """Take all whole numbers up to the next field that is something else."""
        return [self.whole(name) for _ in self._run_of_wholes()]

    def all_of(self, wanted: Iterable[tuple[str, str]]) -> dict[str, Value]:
        """Take a row of fields, each a name and its kind: ``s`` text, ``d`` whole, ``f`` number.

        Those named ``-`` are checked and left out.
        """
        take: dict[str, Callable[[str], Value]] = {"s": self.text, "d": self.whole, "f": self.real}
        found: dict[str, Value] = {}
        for name, kind in wanted:
            value = take[kind](name)
            if name != "-":
                found[name] = value
        return found

    def _take(self, name: str) -> tuple[str, str]:
        if self._next >= len(self._found):
            raise MalformedRecord(f"the record ends after {self._next} fields, before {_words(name)}")
        self._next += 1
        return self._found[self._next - 1]

    def _run_of_wholes(self) -> range:
        end = self._next
        while end < len(self._found) and _WHOLE.fullmatch(self._found[end][1]):
            end += 1
        return range(self._next, end)

    def _unfit(self, name: str, expected: str, bare: str) -> MalformedRecord:
        found = f"{bare[:40]!a}" if bare else "a string"
        return MalformedRecord(f"field {self._next} ({_words(name)}) is {found} instead of {expected}")


def _words(name: str) -> str:
    return "a field of no interest" if name == "-" else name.replace("_", " ")


def layout(text: str) -> tuple[tuple[str, str], ...]:
    """Write a row of fields for :meth:`Fields.all_of` as ``"job_id:d user:s"``."""
    return tuple((name, kind) for name, _, kind in (word.partition(":") for word in text.split()))
