"""Standard Workload Format: the Parallel Workloads Archive's logs, read and written.

Eighteen columns a line, comments begin with ``;``; -1 is unknown. Format: Chapin et al., "Benchmarks and
standards for the evaluation of parallel job schedulers" (JSSPP 1999), version 2.2.
"""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.files.log_file import (
    Malformed,
    MalformedLine,
    MalformedLines,
    Progress,
    Report,
    unreadable,
)
from advisor.history._swf_header import MAX_COMMENT_CHARACTERS, SwfHeader, read_header
from advisor.history._swf_rows import iter_rows
from advisor.model.job import Job, JobOutcome, JobState
from advisor.model.table import UNKNOWN_CODE, JobTable

__all__ = [
    "STATUS_OF_STATE",
    "Malformed",
    "MalformedLine",
    "MalformedLines",
    "Progress",
    "Report",
    "SwfHeader",
    "iter_outcomes",
    "read_header",
    "read_table",
    "write",
]

Keep: TypeAlias = Literal["ran", "all"]
Clock: TypeAlias = Literal["log", "epoch"]

_STATE_OF_STATUS = {
    1: JobState.COMPLETED,
    0: JobState.FAILED,
    5: JobState.CANCELLED,
    3: JobState.COMPLETED,  # last part of a job logged in parts
    4: JobState.FAILED,
}
STATUS_OF_STATE = dict.fromkeys(JobState, 0) | {
    JobState.COMPLETED: 1,
    JobState.CANCELLED: 5,
    JobState.UNKNOWN: -1,
}
"""The format's status number of each state: what is neither completed nor cancelled failed."""

_FIRST_INVENTED_NUMBER = 1_000_001


def read_table(
    path: str | Path,
    *,
    keep: Keep = "ran",
    malformed: Malformed = "skip",
    report: Report | None = None,
    progress: Progress | None = None,
) -> JobTable:
    """Read a whole log into columns, rows in file order.

    Times are seconds since the log's start, waits as the log has them: some logs have waits below 0
    (clocks that disagreed; -1 is unknown).

    Parameters
    ----------
    path : path
        A log, plain or gzip (told by content).
    keep : {"ran", "all"}
        ``"ran"``: only jobs with a run time above 0; ``"all"``: every row.
    malformed : {"skip", "refuse"}
        What to do about malformed lines.
    report : callable, optional
        Called with each :class:`MalformedLine` that is skipped.
    progress : callable, optional
        Called with (bytes read, bytes in the file).

    Raises
    ------
    BadInput
        Unreadable, not SWF, empty, truncated, or malformed where that is refused: what, file and line.
    """
    path = Path(path)
    header = read_header(path)
    blocks = [
        _columns_of(rows[rows[:, 3] > 0] if keep == "ran" else rows)
        for rows in iter_rows(path, malformed=malformed, report=report, progress=progress)
    ]
    whole, real = (np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True))
    return JobTable(
        job_id=whole[0],
        processors=whole[1],
        user=whole[2],
        group=whole[3],
        queue=whole[4],
        status=whole[5],
        executable=whole[6],
        submit=real[0],
        wait=real[1],
        run=real[2],
        requested_time=real[3],
        start_of_log=header.unix_start_time,
        utc_offset_seconds=header.utc_offset_seconds,
        total_processors=header.max_processors,
        name=path.name.removesuffix(".gz").removesuffix(".swf"),
    )


def _processors_of(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Requested processors, else used ones, at least 1."""
    return np.maximum(np.where(rows[:, 7] > 0, rows[:, 7], rows[:, 4]), 1)


def _columns_of(rows: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Keep of a block what a table needs: (7, n) whole numbers and (4, n) real ones."""
    user, group, queue, executable = (
        np.where(rows[:, column] >= 0, rows[:, column], UNKNOWN_CODE) for column in (11, 12, 14, 13)
    )
    whole = np.array([rows[:, 0], _processors_of(rows), user, group, queue, rows[:, 10], executable])
    requested_time = np.where(rows[:, 8] > 0, rows[:, 8], np.nan)
    return whole.astype(np.int64), np.array([rows[:, 1], rows[:, 2], rows[:, 3], requested_time])


def iter_outcomes(
    path: str | Path,
    *,
    keep: Keep = "ran",
    clock: Clock = "log",
    malformed: Malformed = "skip",
    report: Report | None = None,
    progress: Progress | None = None,
) -> Iterator[JobOutcome]:
    """Read a log as a stream of finished jobs, in file order.

    Nominal numbers become text (``"95"``), the executable's number the job's name. A wait below 0 counts
    as 0 here, for nothing starts before it was submitted; a run time below 0 (``keep="all"``) as 0.

    Parameters
    ----------
    path, keep, malformed, report, progress
        As for :func:`read_table`.
    clock : {"log", "epoch"}
        Times since the log's start, or since the epoch (the same where the header has no UnixStartTime).

    Raises
    ------
    BadInput
        As for :func:`read_table`.
    """
    path = Path(path)
    offset = read_header(path).unix_start_time if clock == "epoch" else 0.0
    for rows in iter_rows(path, malformed=malformed, report=report, progress=progress):
        kept = rows[rows[:, 3] > 0] if keep == "ran" else rows
        for row in kept.tolist():
            yield _outcome_of(row, offset)


def _outcome_of(row: list[float], offset: float) -> JobOutcome:
    requested, used = int(row[7]), int(row[4])
    processors = max(1, requested if requested > 0 else used)
    submit = row[1] + offset
    start = submit + max(0.0, row[2])
    return JobOutcome(
        job=Job(
            job_id=int(row[0]),
            submit_time=submit,
            processors=processors,
            user=_nominal(row[11]),
            group=_nominal(row[12]),
            queue=_nominal(row[14]),
            requested_time=row[8] if row[8] > 0 else None,
            memory_mb=round(row[9] * processors / 1024) if row[9] > 0 else None,
            name=_nominal(row[13]),
        ),
        start_time=start,
        end_time=start + max(0.0, row[3]),
        state=_STATE_OF_STATUS.get(int(row[10]), JobState.UNKNOWN),
        processors_used=used if used > 0 else processors,
        partition=_nominal(row[15]),
    )


def _nominal(value: float) -> str | None:
    return str(int(value)) if value >= 0 else None


def write(
    path: str | Path, outcomes: Iterable[JobOutcome], header: SwfHeader | None = None, *, clock: Clock = "log"
) -> int:
    """Write finished jobs as a log, atomically; gzip when the name ends in ``.gz``.

    Names that are no number (users, queues, ...) become numbers from 1,000,001 on in order of appearance:
    the log carries nobody's name.

    Parameters
    ----------
    path : path
        The file; replaced when it exists.
    outcomes : iterable of JobOutcome
        In the order they are to be written.
    header : SwfHeader, optional
        Written as comments.
    clock : {"log", "epoch"}
        What the outcomes' times count from; epoch times are written relative to ``unix_start_time``.

    Returns
    -------
    int
        Jobs written.

    Raises
    ------
    BadInput
        The file cannot be written.
    """
    path = Path(path)
    header = header or SwfHeader()
    offset = header.unix_start_time if clock == "epoch" else 0.0
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    count = 0
    try:
        try:
            with _open_text(partial, packed=path.suffix == ".gz") as out:
                out.write(_header_text(header))
                numbers = _Numbers()
                for outcome in outcomes:
                    out.write(_line_of(outcome, offset, numbers))
                    count += 1
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise unreadable(path, error) from None
    return count


def _open_text(path: Path, *, packed: bool) -> IO[str]:
    if packed:
        return gzip.open(path, "wt", encoding="utf-8", newline="\n", compresslevel=6)
    return path.open("w", encoding="utf-8", newline="\n")


def _header_text(header: SwfHeader) -> str:
    if header.comments:
        return "".join(f";{_one_line(comment)}\n" for comment in header.comments)
    lines = ["Version: 2.2", f"Computer: {_one_line(header.computer or 'unknown')}"]
    if header.unix_start_time:
        lines.append(f"UnixStartTime: {int(header.unix_start_time)}")
    lines.append(f"TimeZone: {int(header.utc_offset_seconds)}")
    if header.time_zone:
        lines.append(f"TimeZoneString: {_one_line(header.time_zone)}")
    lines += [f"MaxNodes: {header.max_nodes}"] if header.max_nodes else []
    lines += [f"MaxProcs: {header.max_processors}"] if header.max_processors else []
    lines += [f"Queue: {number} {_one_line(name)}" for number, name in header.queues.items()]
    lines += [f"Partition: {number} {_one_line(name)}" for number, name in header.partitions.items()]
    return "".join(f"; {line}\n" for line in lines)


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())[:MAX_COMMENT_CHARACTERS]


class _Numbers:
    """Numbers for names: a number stays itself, other names get the next free one of their column."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], int] = {}
        self._next: dict[str, int] = {}

    def of(self, column: str, name: str | None) -> int:
        if name is None:
            return UNKNOWN_CODE
        if name.isascii() and name.isdigit() and len(name) <= 15 and str(int(name)) == name:
            return int(name)
        key = (column, name)
        if key not in self._known:
            self._known[key] = self._next.get(column, _FIRST_INVENTED_NUMBER)
            self._next[column] = self._known[key] + 1
        return self._known[key]


def _line_of(outcome: JobOutcome, offset: float, numbers: _Numbers) -> str:
    job = outcome.job
    memory = -1.0 if job.memory_mb is None else job.memory_mb * 1024 / job.processors
    values: tuple[float | None, ...] = (
        job.job_id,
        job.submit_time - offset,
        outcome.wait_seconds,
        outcome.run_seconds,
        outcome.processors_used,
        None,
        None,
        job.processors,
        job.requested_time,
        memory,
        STATUS_OF_STATE[outcome.state],
        numbers.of("user", job.user),
        numbers.of("group", job.group),
        numbers.of("executable", job.name),
        numbers.of("queue", job.queue),
        numbers.of("partition", outcome.partition),
        None,
        None,
    )
    return " ".join(map(_text_of, values)) + "\n"


def _text_of(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "-1"
    return str(int(value)) if value == int(value) else repr(float(value))
