"""Read logs in Standard Workload Format, the format of the Parallel Workloads Archive.

A line has eighteen columns; -1 means unknown, and comments begin with ``;``. Format: Chapin et al.,
"Benchmarks and standards for the evaluation of parallel job schedulers" (JSSPP 1999), version 2.2. Counted
from 0, the columns that are read are: 0 job number, 1 submit time, 2 wait, 3 run time, 4 processors used, 7
processors requested, 8 time requested, 9 memory requested (KB a processor), 10 status, 11 user, 12 group, 13
executable, 14 queue and 15 partition. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.files.log_file import (
    Malformed,
    MalformedLines,
    Progress,
    Report,
)
from advisor.history._swf_header import SwfHeader, read_header
from advisor.history._swf_rows import iter_rows
from advisor.model.job import Job, JobOutcome, JobState
from advisor.model.table import UNKNOWN_CODE, JobTable

__all__ = [
    "STATUS_OF_STATE",
    "Malformed",
    "MalformedLines",
    "Progress",
    "SwfHeader",
    "iter_outcomes",
    "read_header",
    "read_table",
]

Keep: TypeAlias = Literal["ran", "all"]

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
"""The format's status number of each state."""


def read_table(
    path: str | Path,
    *,
    keep: Keep = "ran",
    malformed: Malformed = "skip",
    report: Report | None = None,
    progress: Progress | None = None,
) -> JobTable:
    """Read a whole log, plain or gzip, into columns; rows are in file order.

    Times are seconds since the log's start. Some logs have waits below 0 because of differing clocks.

    Args:
        keep: {"ran", "all"}: ``"ran"``: only jobs with a run time above 0; ``"all"``: every row.
        report: Called with each :class:`MalformedLine` that is skipped.
        progress: Called with (bytes read, bytes in the file).

    Raises:
        BadInput: The file cannot be read, is no SWF, is empty or truncated, or (``malformed="refuse"``)
            malformed.
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
    """The columns of a table from a block of rows: (7, n) whole numbers and (4, n) real ones."""
    user, group, queue, executable = (
        np.where(rows[:, column] >= 0, rows[:, column], UNKNOWN_CODE) for column in (11, 12, 14, 13)
    )
    whole = np.array([rows[:, 0], _processors_of(rows), user, group, queue, rows[:, 10], executable])
    requested_time = np.where(rows[:, 8] > 0, rows[:, 8], np.nan)
    return whole.astype(np.int64), np.array([rows[:, 1], rows[:, 2], rows[:, 3], requested_time])


def iter_outcomes(
    path: str | Path,
    *,
    malformed: Malformed = "skip",
    report: Report | None = None,
    progress: Progress | None = None,
) -> Iterator[JobOutcome]:
    """Read the jobs that ran, in file order; parameters and errors as for `read_table`.

    Numbers of users, groups and queues become text (``"95"``), the executable's number the job's name. Waits
    below 0 count as 0. Times are seconds since the epoch, or since the log's start where the header has no
    UnixStartTime.
    """
    path = Path(path)
    offset = read_header(path).unix_start_time
    for rows in iter_rows(path, malformed=malformed, report=report, progress=progress):
        for row in rows[rows[:, 3] > 0].tolist():
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
        end_time=start + row[3],
        state=_STATE_OF_STATUS.get(int(row[10]), JobState.UNKNOWN),
        processors_used=used if used > 0 else processors,
        partition=_nominal(row[15]),
    )


def _nominal(value: float) -> str | None:
    """The number of a user, group, queue or executable as text; None for -1."""
    return str(int(value)) if value >= 0 else None
