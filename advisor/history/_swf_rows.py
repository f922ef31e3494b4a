"""Read the job lines of a log in Standard Workload Format as rows of eighteen numbers.

The file is not trusted: the length of lines, the size of numbers and the number of rows have limits.
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
_MAX_BYTES_WITHOUT_A_ROW = 256 * 1024 * 1024  # only blank lines, comments or one endless line
_MAX_SECONDS = 3.2e8  # ten years: longer ones are errors, whose core-hours would hide all others
_MAX_PROCESSORS = 1e8  # ten times what the largest machine has
_MAX_MAGNITUDE = 1e15  # exact in a float64, and more than any id or byte count of a job
_LAST_SECOND = 1e11  # of the epoch, more than any: times are seconds, not milliseconds
_LIMITS = np.full(len(COLUMNS), _MAX_MAGNITUDE)
_LIMITS[1] = _LAST_SECOND
_LIMITS[[2, 3]] = _MAX_SECONDS
_LIMITS[[4, 7]] = _MAX_PROCESSORS
_MAX_ROWS = 100_000_000  # a gzip bomb must not fill the memory
_NOT_SWF_AFTER = 1000  # malformed lines before the first good one: it is another kind of file
_NUMBER = re.compile(rb"[+-]?+(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]{1,3}+)?+")
_ROW = re.compile(rb"\s*+%b(?:\s++%b){17}\s*+" % (_NUMBER.pattern, _NUMBER.pattern))
_NO_JOB = re.compile(rb"(?:\xef\xbb\xbf)?+\s*+(?:;|\Z)")  # a comment or a blank line; editors mark UTF-8


@dataclass(slots=True)
class _Judge:
    """Reports malformed lines, or refuses the file because of them."""

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
                mend="Correct or remove the line, or leave out --refuse-malformed, which skips such lines",
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
        """Pass the file's bytes on; refuse a long file without a job."""
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


class _Parts:
    """Leaves out the parts of jobs that have a line for the whole before them."""

    def __init__(self) -> None:
        self._wholes: list[NDArray[np.float64]] = []

    def left_out(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows, of shape (n, 18), that are no part of a job whose whole was in these or earlier rows."""
        is_part = np.isin(rows[:, 10], (2, 3, 4))
        self._wholes.append(rows[~is_part, 0])
        if not np.any(is_part):
            return rows
        return rows[~(is_part & np.isin(rows[:, 0], np.concatenate(self._wholes)))]


def iter_rows(
    path: Path,
    *,
    malformed: Malformed = "skip",
    report: Report | None = None,
    progress: Progress | None = None,
) -> Iterator[NDArray[np.float64]]:
    """Job lines as blocks of shape (n, 18), in file order; see :data:`COLUMNS`.

    A job that was logged in parts (statuses 2, 3 and 4) has a line for the whole before them in some logs.
    Its parts are left out there, so that its work counts once.

    Every number is finite and at most 1e15 in magnitude, submit times at most 1e11 s, waits and run times at
    most ten years. Job number, processors, status and the nominal columns are whole numbers.

    Raises:
        BadInput: The file cannot be read, is no SWF or has no job, or (``malformed="refuse"``) a malformed
            line.
    """
    judge = _Judge(path, malformed, report)
    parts = _Parts()
    next_line = 1
    for block in whole_lines(judge.watched(iter_bytes(path, progress)), MAX_LINE_BYTES):
        rows, lines = _parse(block, next_line, judge)
        next_line += lines
        if len(rows):
            judge.accept(len(rows))
            yield parts.left_out(rows)
    judge.finish()


def _parse(block: bytes, first_line: int, judge: _Judge) -> tuple[NDArray[np.float64], int]:
    """Rows of whole lines, and how many lines those were."""
    lines = block.split(b"\n")[:-1]
    rows: list[int] = []
    for index, line in enumerate(lines):
        if not line:  # a hostile file has millions of these, and two patterns for each take a minute
            continue
        if len(line) <= MAX_LINE_BYTES and _ROW.fullmatch(line):
            rows.append(index)
        elif not _NO_JOB.match(line):
            judge.reject(first_line + index, _why_no_row(line), line)
    values = np.fromstring(b" ".join([lines[index] for index in rows]), sep=" ").reshape(-1, len(COLUMNS))
    good = _plausible(values)
    for row in np.flatnonzero(~good).tolist():
        judge.reject(first_line + rows[row], _why_implausible(values[row]), lines[rows[row]])
    return values[good], len(lines)


def _why_no_row(line: bytes) -> str:
    if len(line) > MAX_LINE_BYTES:
        return f"longer than {MAX_LINE_BYTES} bytes"
    words = line.split()
    if len(words) != len(COLUMNS):
        return f"{len(words)} columns instead of {len(COLUMNS)}"
    name = next(name for name, word in zip(COLUMNS, words, strict=True) if not _NUMBER.fullmatch(word))
    return f"{name} is not a number"


def _plausible(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows have all numbers in range (not infinite), and whole numbers where the format has them."""
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
