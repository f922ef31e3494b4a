"""Tables for every command: readable at 80 columns, and one line per row when piped."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_GAP: Final = "  "
_CONSOLE: Final = Console()
"""Rich wraps text for a console; only its defaults matter."""
_NARROWEST_TEXT: Final = 24
"""Least width of wrapped text; where there is less room, the table is cut into bands."""


def print_table(
    console: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    text: str = "",
    bold_rows: Sequence[int] = (),
) -> None:
    """Print a table.

    On a terminal that is too narrow, headings take several lines, then the column ``text`` is wrapped, then
    the columns are printed in bands of as many as fit, each beginning with the first column. Other cells are
    wrapped only if they are longer than a line. With ``--wide``, or without a terminal, each row is one line.

    Args:
        headings: One for each column; the first column names the row.
        numbers: Headings of right-aligned columns.
        text: Heading of the last column, if it has sentences that may be wrapped.
        bold_rows: Indices of rows in bold.
    """
    columns = [
        _Column(heading, [row[at] for row in rows], heading in numbers, heading == text)
        for at, heading in enumerate(headings)
    ]
    limit = None if console.soft_wrap else console.width
    for band in _bands(columns, limit):
        _print_band(console, band, bold_rows)


class _Column:
    """A heading, its cells, and their width."""

    def __init__(self, heading: str, cells: Sequence[str], is_number: bool, is_text: bool) -> None:
        self.heading = heading
        self.cells = cells
        self.is_number = is_number
        self.is_text = is_text
        self.body = max((cell_len(cell) for cell in cells), default=0)
        self.width = max(self.body, cell_len(heading))

    @property
    def narrowest(self) -> int:
        """Width with the heading on several lines."""
        return max(self.body, *map(cell_len, self.heading.split() or [""]))

    def set(self, text: str) -> str:
        """Pad a line of a cell."""
        blank = " " * (self.width - cell_len(text))
        return blank + text if self.is_number else text + blank

    def lines(self, text: str) -> list[str]:
        """A cell, or the heading, as lines no wider than the column."""
        return [text] if cell_len(text) <= self.width else wrapped(text, self.width)


def _total(columns: Sequence[_Column], width: Callable[[_Column], int]) -> int:
    return sum(map(width, columns)) + len(_GAP) * (len(columns) - 1)


def _bands(columns: list[_Column], limit: int | None) -> list[list[_Column]]:
    """Groups of columns that fit beside each other."""
    if limit is None or _total(columns, lambda column: column.width) <= limit:
        return [columns]
    for column in columns:
        column.width = column.narrowest
    spare = limit - _total(columns, lambda column: column.width)
    if spare >= 0:
        _widen(columns, spare)
        return [columns]
    sentences = columns[-1] if columns[-1].is_text else None
    if sentences is not None and sentences.width + spare >= _NARROWEST_TEXT:
        sentences.width += spare
        return [columns]
    return _cut(columns, limit)


def _widen(columns: Sequence[_Column], spare: int) -> None:
    """Widen columns for their headings, from the left."""
    for column in columns:
        more = min(spare, max(0, cell_len(column.heading) - column.width))
        column.width += more
        spare -= more


def _cut(columns: list[_Column], limit: int) -> list[list[_Column]]:
    first, bands = columns[0], [[columns[0]]]
    for column in columns[1:]:
        # a path may be longer than a line
        column.width = min(column.width, max(_NARROWEST_TEXT, limit - first.width - len(_GAP)))
        if len(bands[-1]) > 1 and _total([*bands[-1], column], lambda one: one.width) > limit:
            bands.append([first])
        bands[-1].append(column)
    return bands


def _print_band(console: Console, columns: Sequence[_Column], bold_rows: Sequence[int]) -> None:
    _print_row(console, columns, [column.heading for column in columns], "bold")
    for at in range(len(columns[0].cells)):
        style = "bold" if at in bold_rows else ""
        _print_row(console, columns, [column.cells[at] for column in columns], style)


def _print_row(console: Console, columns: Sequence[_Column], cells: Sequence[str], style: str) -> None:
    lines = [column.lines(cell) for column, cell in zip(columns, cells, strict=True)]
    for at in range(max(map(len, lines))):
        parts = (
            column.set(found[at] if at < len(found) else "")
            for column, found in zip(columns, lines, strict=True)
        )
        console.print(Text(_GAP.join(parts).rstrip(), style), soft_wrap=True)


def print_facts(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values; on a terminal, long values are wrapped."""
    width = max((cell_len(name) for name, _ in rows), default=0)
    limit = None if console.soft_wrap else console.width - width - len(_GAP)
    for name, value in rows:
        lines = [value] if limit is None else wrapped(value, max(_NARROWEST_TEXT, limit))
        for at, line in enumerate(lines or [""]):
            label = name if at == 0 else ""
            blank = " " * (width - cell_len(label))
            console.print(Text.assemble((label, "bold"), f"{blank}{_GAP}{line}"), soft_wrap=True)


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most so many columns, broken at blanks; a longer word is broken where the line ends."""
    lines = Text(text, overflow="fold").wrap(_CONSOLE, width)
    return [line.plain.rstrip(" ") for line in lines]


def percent(share: float | None, form: str = ".1f") -> str:
    """A fraction in per cent, written as a format specification says; a dash for None and NaN."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:{form}} %"
