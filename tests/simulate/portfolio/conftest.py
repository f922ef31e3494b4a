"""Small logs written down by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from advisor.model.table import JobTable


def table(rows: Sequence[Sequence[float]]) -> JobTable:
    """Rows of (submit, run, processors[, requested[, user]])."""
    count = len(rows)
    column = [np.array([row[at] for row in rows], np.float64) for at in range(3)]
    requested = np.array([row[3] if len(row) > 3 else row[1] for row in rows], np.float64)
    user = np.array([row[4] if len(row) > 4 else 0 for row in rows], np.int64)
    zeros = np.zeros(count, np.int64)
    return JobTable(
        job_id=np.arange(count, dtype=np.int64),
        submit=column[0],
        wait=np.zeros(count),
        run=column[1],
        processors=column[2].astype(np.int64),
        requested_time=requested,
        user=user,
        group=zeros,
        queue=zeros,
        status=zeros + 1,
        executable=zeros,
        name="by hand",
    )


@pytest.fixture(scope="session")
def by_hand() -> Callable[..., JobTable]:
    return table
