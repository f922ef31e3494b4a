"""Read the fields of one line of ``lsb.acct`` or ``lsb.events``: separated by blanks, strings in quotes.

IBM's page on ``lsb.acct`` says "one record per line, the fields of a record are separated by blanks". Real
files also have doubled quotes inside strings, and sometimes several blanks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

# possessive quantifiers: no line, e.g. one of quotes only, makes the match slow
_QUOTED: Final = r'"[^"]*+(?:""[^"]*+)*+"'
_WELL_FORMED: Final = re.compile(rf'(?:\s*+(?:{_QUOTED}(?!\S)|[^\s"]\S*+))*+\s*+')
_TOKEN: Final = re.compile(rf"{_QUOTED}|\S+")
_TOKEN_OR_STRAY: Final = re.compile(rf'(?:{_QUOTED}(?!\S)|[^\s"]\S*)|(\S)')
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_REAL: Final = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")

Value: TypeAlias = str | int | float
Layout: TypeAlias = tuple[tuple[str, str], ...]
"""Consecutive fields: names and kinds (``s`` text, ``d`` whole number, ``f`` number), see :func:`layout`."""


class MalformedRecord(Exception):
    """A line that is not the expected record; the message says which field, and why."""


class Fields:
    """The fields of a line (without its line end), taken one after the other by their kind.

    Raises:
        MalformedRecord: A quote has no end, or no blank follows it.

    Examples:
        >>> fields = Fields('"JOB_FINISH" 7 "a ""b"" c"')
        >>> fields.text("type"), fields.whole("id"), fields.text("command")
        ('JOB_FINISH', 7, 'a "b" c')
    """

    def __init__(self, line: str) -> None:
        if not _WELL_FORMED.fullmatch(line):
            raise MalformedRecord(f"a stray quote in field {_fields_before_stray(line) + 1}")
        self._found: list[str] = _TOKEN.findall(line)
        self._next = 0

    def __len__(self) -> int:
        """Number of fields that have not been taken."""
        return len(self._found) - self._next

    def text(self, name: str) -> str:
        """Take a string in quotes."""
        token = self._take(name)
        if token[0] != '"':
            raise self._unfit(name, "a string in quotes", token)
        return _unquoted(token)

    def whole(self, name: str) -> int:
        """Take a whole number."""
        token = self._take(name)
        if not _WHOLE.fullmatch(token):
            raise self._unfit(name, "a whole number", token)
        return int(token)

    def real(self, name: str) -> float:
        """Take a number."""
        token = self._take(name)
        if not _REAL.fullmatch(token):
            raise self._unfit(name, "a number", token)
        return float(token)

    def texts(self, name: str) -> tuple[str, ...]:
        """Take a count, and that many strings in quotes."""
        count = self.whole(f"number of {name}")
        if not 0 <= count <= len(self):
            raise MalformedRecord(f"{count} {name}, but {len(self)} fields are left")
        return tuple(self.text(name) for _ in range(count))

    def word(self, name: str) -> str:
        """Take a name in quotes, or without them, as LSF 9 writes some host names."""
        token = self._take(name)
        if _REAL.fullmatch(token):
            raise self._unfit(name, "a name", token)
        return _unquoted(token) if token[0] == '"' else token

    def next_is_text(self) -> bool:
        """Whether the next field is a string in quotes."""
        return self._next < len(self._found) and self._found[self._next][0] == '"'

    def wholes(self, name: str) -> list[int]:
        """Take all whole numbers up to the next other field."""
        end = self._next
        while end < len(self._found) and _WHOLE.fullmatch(self._found[end]):
            end += 1
        return [self.whole(name) for _ in range(self._next, end)]

    def all_of(self, row: Layout) -> dict[str, Value]:
        """Take a row of fields; those named ``-`` may be of any kind."""
        take: dict[str, Callable[[str], Value]] = {"s": self.text, "d": self.whole, "f": self.real}
        found: dict[str, Value] = {}
        for name, kind in row:
            if name == "-":
                self._take(name)
            else:
                found[name] = take[kind](name)
        return found

    def _take(self, name: str) -> str:
        if self._next >= len(self._found):
            raise MalformedRecord(f"the record ends after {self._next} fields, before {_words(name)}")
        self._next += 1
        return self._found[self._next - 1]

    def _unfit(self, name: str, expected: str, token: str) -> MalformedRecord:
        found = "a string" if token[0] == '"' else f"{token[:40]!a}"
        return MalformedRecord(f"field {self._next} ({_words(name)}) is {found} instead of {expected}")


def _fields_before_stray(line: str) -> int:
    for number, match in enumerate(_TOKEN_OR_STRAY.finditer(line)):
        if match[1] is not None:
            return number
    return 0


def _unquoted(token: str) -> str:
    text = token[1:-1]
    return text.replace('""', '"') if '"' in text else text


def _words(name: str) -> str:
    return "an unused field" if name == "-" else name.replace("_", " ")


def layout(text: str) -> Layout:
    """The layout for :meth:`Fields.all_of` of a text such as ``"job_id:d user:s -:f"``."""
    return tuple((name, kind) for name, _, kind in (word.partition(":") for word in text.split()))


def short_text(value: str | None) -> str | None:
    """The first 1,000 characters of a text; None for an empty one."""
    return value[:1000] if value else None
