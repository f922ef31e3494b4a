"""Logs written down by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.model.table import UNKNOWN_CODE, JobTable


def log(
    rows: Sequence[tuple[float, ...]],
    *,
    machine: int,
    waits: Sequence[float] | None = None,
    users: Sequence[int] | None = None,
) -> JobTable:
    """Rows of (submit, processors, run[, limit]); the limit is the run time, the waits are 0 unless given."""
    count = len(rows)
    submit, processors, run = (np.array([row[at] for row in rows], np.float64) for at in range(3))
    unknown = np.full(count, UNKNOWN_CODE, np.int64)
    return JobTable(
        job_id=np.arange(1, count + 1),
        submit=submit,
        wait=np.zeros(count) if waits is None else np.array(waits, np.float64),
        run=run,
        processors=processors.astype(np.int64),
        requested_time=np.array([row[3] if len(row) > 3 else row[2] for row in rows], np.float64),
        user=unknown if users is None else np.array(users, np.int64),
        group=unknown,
        queue=unknown,
        status=np.ones(count, np.int64),
        total_processors=machine,
        name="by-hand",
    )
