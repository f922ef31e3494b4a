"""Reads the jobs of a command's ``--trace`` from a log, or draws a synthetic workload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import structlog

from advisor.history import swf
from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.simulate.workload import workload

SYNTHETIC = "synthetic"
SYNTHETIC_JOBS = 20_000
SYNTHETIC_PROCESSORS = 128
_MAX_SYNTHETIC_JOBS = 10_000_000


def load_table(spec: str | Path, *, keep: swf.Keep = "ran", progress: swf.Progress | None = None) -> JobTable:
    """Jobs of a replay in submission order; jobs of one second keep the log's order.

    Malformed lines are skipped; the program's own log says how many there were, and which was the first.

    Args:
        spec: A ``.swf`` or ``.swf.gz`` file, or ``synthetic[:jobs[:seed]]``: a workload by
            ``advisor.simulate.workload`` on 128 processors, 20,000 jobs with seed 1 unless said otherwise.
        keep: {"ran", "all"}: As for ``swf.read_table``; synthetic jobs all ran.
        progress: Called with (done, all): bytes of a file, jobs of a synthetic workload.

    Raises:
        BadInput: An unreadable or malformed log, or numbers out of range.
    """
    if str(spec) == SYNTHETIC or str(spec).startswith(f"{SYNTHETIC}:"):
        return _synthetic(str(spec), progress)
    skipped = swf.MalformedLines(keep=1)
    table = swf.read_table(Path(spec), keep=keep, report=skipped, progress=progress)
    if skipped.count:
        first = skipped.first[0]
        structlog.get_logger().warning(
            "trace.lines_skipped",
            trace=str(spec),
            lines=skipped.count,
            first_line=first.number,
            reason=first.reason,
            text=first.text,
        )
    if not len(table):
        raise BadInput(
            "no job in it ever ran", where=str(spec), mend="Give a log of finished jobs", code="trace.empty"
        )
    if np.all(np.diff(table.submit) >= 0):
        return table
    return table.select(np.argsort(table.submit, kind="stable"))


def _synthetic(spec: str, progress: swf.Progress | None) -> JobTable:
    """``synthetic[:jobs[:seed]]``."""
    words = spec.split(":")[1:]
    numbers = [int(word) for word in words if word.isdecimal() and len(word) <= 18]
    if len(numbers) != len(words) or len(words) > 2:
        raise BadInput(
            f"{spec!r} is not synthetic[:jobs[:seed]]",
            where="--trace",
            mend="Write for instance synthetic:20000:1",
            code="trace.synthetic",
        )
    jobs, seed = [*numbers, *(SYNTHETIC_JOBS, 1)[len(numbers) :]]
    if not 1 <= jobs <= _MAX_SYNTHETIC_JOBS:
        raise BadInput(
            f"{jobs} synthetic jobs are asked for",
            where="--trace",
            mend=f"Ask for 1 to {_MAX_SYNTHETIC_JOBS} synthetic jobs",
            code="trace.synthetic",
        )
    return workload(
        np.random.default_rng(seed), jobs=jobs, processors=SYNTHETIC_PROCESSORS, progress=progress
    )
