"""Bytes of a Standard Workload Format log to rows of numbers: fast where clean, careful where not.

A line whose bytes can only be eighteen plain numbers goes to numpy in bulk; every other line (comments,
exponents, anything odd) is looked at by itself. Nothing in the file is trusted: lines, numbers and the
count of rows have limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.files.log_file import (
    MAX_LINE_BYTES,
    Malformed,
    MalformedLine,
    Progress,
    Report,
    iter_bytes,
    whole_lines,
)
from advisor.model.errors import BadInput

COLUMNS = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "processors used",
    "average CPU time",
    "memory used",
    "processors requested",
    "time requested",
    "memory requested",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
"""The format's eighteen columns, in order."""

_WHOLE_COLUMNS = np.array([0, 4, 7, 10, 11, 12, 13, 14, 15])
_MAX_BYTES_WITHOUT_A_ROW = 256 * 1024 * 1024  # blank lines, comments or one endless line: this is no log
_MAX_SECONDS = 3.2e8  # ten years: no job waits or runs longer, and its core-hours would hide everybody else's
_MAX_PROCESSORS = 1e8  # ten times what the largest machine has
_MAX_MAGNITUDE = 1e15  # exact in a float64 and far beyond any time, id or byte count of a job
_LIMITS = np.full(len(COLUMNS), _MAX_MAGNITUDE)
_LIMITS[[2, 3]] = _MAX_SECONDS
_LIMITS[[4, 7]] = _MAX_PROCESSORS
_MAX_ROWS = 100_000_000  # a gzip bomb ends here, not in the machine's memory
_NOT_SWF_AFTER = 1000  # so many malformed lines before the first good one: this is some other file
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")

_BAD, _DIGIT, _DOT, _MINUS, _SPACE, _NEWLINE = range(6)
_CLASS = np.full(256, _BAD, np.uint8)
_CLASS[ord("0") : ord("9") + 1] = _DIGIT
_CLASS[ord(".")] = _DOT
_CLASS[ord("-")] = _MINUS
_CLASS[[ord(" "), ord("\t"), ord("\r")]] = _SPACE
_CLASS[ord("\n")] = _NEWLINE


@dataclass(slots=True)
class _Judge:
    """Decides what a malformed line means: report and go on, or refuse the file."""

    path: Path
    malformed: Malformed
    report: Report | None
    bytes_seen: int = 0
    rows: int = 0
    rejected: int = 0
    first: MalformedLine | None = None

    def reject(self, number: int, reason: str, text: bytes) -> None:
        line = MalformedLine(number, reason, ascii(text[:80].decode("utf-8", "replace"))[1:-1])
        self.rejected += 1
        self.first = self.first or line
        if self.malformed == "refuse":
            raise BadInput(
                f"malformed line ({reason}): {line.text}",
                where=f"{self.path}, line {number}",
                mend="Mend or remove the line, or have malformed lines skipped",
                code="trace.malformed",
            )
        if self.report is not None:
            self.report(line)
        if self.rows == 0 and self.rejected >= _NOT_SWF_AFTER:
            self.not_swf()

    def accept(self, count: int) -> None:
        self.rows += count
        if self.rows > _MAX_ROWS:
            raise BadInput(
                f"more than {_MAX_ROWS:,} jobs",
                where=str(self.path),
                mend="Split the log",
                code="trace.too_long",
            )

    def not_swf(self) -> None:
        assert self.first is not None  # noqa: S101 - called after a rejection only
        raise BadInput(
            f"not in Standard Workload Format ({self.first.reason}): {self.first.text}",
            where=f"{self.path}, line {self.first.number}",
            mend="Give a log with 18 numbers a line; comments begin with ';'",
            code="trace.not_swf",
        )

    def watched(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Pass the file's bytes on, and refuse a file that goes on and on without a job."""
        for block in blocks:
            self.bytes_seen += len(block)
            if not self.rows and self.bytes_seen > _MAX_BYTES_WITHOUT_A_ROW:
                raise BadInput(
                    f"no job in the first {_MAX_BYTES_WITHOUT_A_ROW >> 20} MiB",
                    where=str(self.path),
                    mend="Give a log with 18 numbers a line",
                    code="trace.not_swf",
                )
            yield block

    def finish(self) -> None:
        if self.rows:
            return
        if self.rejected:
            self.not_swf()
        what = "no job lines, only comments" if self.bytes_seen else "the file is empty"
        raise BadInput(what, where=str(self.path), mend="Give a log with jobs", code="trace.empty")


def iter_rows(
    path: Path,
    *,
    malformed: Malformed = "skip",
    report: Report | None = None,
    progress: Progress | None = None,
) -> Iterator[NDArray[np.float64]]:
    """Job lines as blocks of shape (n, 18), in file order; see :data:`COLUMNS`.

    Every number is finite and at most 1e15 in magnitude, waits and run times at most ten years. Job number,
    processors, status and the nominal columns are whole.

    Raises
    ------
    BadInput
        Unreadable, not SWF, no job at all, or (``malformed="refuse"``) at the first malformed line.
    """
    judge = _Judge(path, malformed, report)
    next_line = 1
    for block in whole_lines(judge.watched(iter_bytes(path, progress)), MAX_LINE_BYTES):
        rows, lines = _parse(block, next_line, judge)
        next_line += lines
        if len(rows):
            judge.accept(len(rows))
            yield rows
    judge.finish()


def _parse(block: bytes, first_line: int, judge: _Judge) -> tuple[NDArray[np.float64], int]:
    """Rows of whole lines, and how many lines those were."""
    starts, ends, odd = _survey(block)
    odd_lines = np.flatnonzero(odd)
    values, numbers = _bulk(block, starts, ends, odd_lines)
    careful: list[list[float]] = []
    careful_numbers: list[int] = []
    for index in odd_lines.tolist():
        row = _careful(block[starts[index] : ends[index]], first_line + index, judge)
        if row is not None:
            careful.append(row)
            careful_numbers.append(index)
    if careful:
        numbers = np.concatenate([numbers, np.array(careful_numbers, np.int64)])
        order = np.argsort(numbers, kind="stable")
        values = np.concatenate([values, np.array(careful, np.float64)])[order]
        numbers = numbers[order]
    good = _plausible(values)
    for index in np.flatnonzero(~good).tolist():
        line = int(numbers[index])
        judge.reject(first_line + line, _why_implausible(values[index]), block[starts[line] : ends[line]])
    return (values if good.all() else values[good]), len(ends)


def _survey(block: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Where lines start and end, and which are *not* plainly eighteen numbers.

    A plain number is digits with at most one point after the first digit and at most one minus in front.
    """
    kind = _CLASS[np.frombuffer(block, np.uint8)]
    space = kind >= _SPACE
    before = np.concatenate(([np.uint8(_NEWLINE)], kind[:-1]))
    after = np.concatenate((kind[1:], [np.uint8(_NEWLINE)]))
    ends = np.flatnonzero(kind == _NEWLINE)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    tokens = np.flatnonzero(~space & (before >= _SPACE))
    per_line = np.diff(np.searchsorted(tokens, ends), prepend=0)
    odd = (per_line != len(COLUMNS)) | (ends - starts > MAX_LINE_BYTES)
    strange = (kind == _BAD) | ((kind == _MINUS) & ((before < _SPACE) | (after != _DIGIT)))
    strange |= (kind == _DOT) & (before != _DIGIT)
    odd[np.searchsorted(ends, np.flatnonzero(strange))] = True
    dots = np.flatnonzero(kind == _DOT)
    token_of_dot = np.searchsorted(tokens, dots)
    second_dots = dots[1:][np.diff(token_of_dot) == 0]
    odd[np.searchsorted(ends, second_dots)] = True
    return starts, ends, odd


def _bulk(
    block: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], odd_lines: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Let numpy read the plain lines: values (n, 18) and each row's line index in the block."""
    numbers = np.delete(np.arange(len(ends)), odd_lines)
    if not len(numbers):
        return np.empty((0, len(COLUMNS))), numbers
    if len(odd_lines):
        pieces = []
        position = 0
        for index in odd_lines.tolist():
            pieces.append(block[position : starts[index]])
            position = int(ends[index]) + 1
        pieces.append(block[position:])
        block = b"".join(pieces)
    return np.fromstring(block, sep=" ").reshape(-1, len(COLUMNS)), numbers


def _careful(line: bytes, number: int, judge: _Judge) -> list[float] | None:
    """One odd line: None for blank lines, comments and (after telling the judge) malformed ones."""
    if len(line) > MAX_LINE_BYTES:
        if not line.lstrip().startswith(b";"):
            judge.reject(number, f"longer than {MAX_LINE_BYTES} bytes", line)
        return None
    words = line.split()
    if not words or words[0].startswith(b";"):
        return None
    if len(words) != len(COLUMNS):
        judge.reject(number, f"{len(words)} columns instead of {len(COLUMNS)}", line)
        return None
    for name, word in zip(COLUMNS, words, strict=True):
        if not _NUMBER.fullmatch(word):
            judge.reject(number, f"{name} is not a number", line)
            return None
    return [float(word) for word in words]


def _plausible(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Rows whose numbers are in range (infinity is not) and whole where they must be."""
    whole = values[:, _WHOLE_COLUMNS]
    in_range = np.all(np.abs(values) <= _LIMITS, axis=1)
    good: NDArray[np.bool_] = in_range & np.all(whole == np.floor(whole), axis=1) & (values[:, 1] >= 0)
    return good


def _why_implausible(row: NDArray[np.float64]) -> str:
    for index, name in enumerate(COLUMNS):
        if not abs(row[index]) <= _LIMITS[index]:
            return f"{name} is out of range"
        if index in _WHOLE_COLUMNS and row[index] != np.floor(row[index]):
            return f"{name} is not a whole number"
    return "submit time is negative"
