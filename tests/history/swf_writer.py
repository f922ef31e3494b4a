"""Write jobs whose names are numbers as a log in Standard Workload Format."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

from advisor.history import swf
from advisor.model.job import JobOutcome


def write(path: Path, outcomes: Iterable[JobOutcome], header: swf.SwfHeader | None = None) -> None:
    """Write a log; gzip when the name ends in ``.gz``. Times are relative to the log's start."""
    header = header or swf.SwfHeader()
    lines = [
        "; Version: 2.2",
        f"; UnixStartTime: {header.unix_start_time:.0f}",
        f"; TimeZone: {header.utc_offset_seconds:.0f}",
        f"; MaxProcs: {header.max_processors}",
        *(" ".join(map(_text, _row(outcome))) for outcome in outcomes),
    ]
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def _row(outcome: JobOutcome) -> list[float | str | None]:
    job = outcome.job
    memory = None if job.memory_mb is None else job.memory_mb * 1024 / job.processors
    asked = [None, None, job.processors, job.requested_time, memory]
    names = [job.user, job.group, job.name, job.queue, outcome.partition]
    times = [job.submit_time, outcome.wait_seconds, outcome.run_seconds, outcome.processors_used]
    return [job.job_id, *times, *asked, swf.STATUS_OF_STATE[outcome.state], *names, None, None]


def _text(value: float | str | None) -> str:
    return "-1" if value is None else value if isinstance(value, str) else repr(value)
