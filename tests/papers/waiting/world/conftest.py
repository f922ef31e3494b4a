"""Workloads for the world that may rent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from advisor.papers.waiting.world.world import Workload, workload_of


def workload(rows: list[tuple[float, ...]], *, revoked_after: list[float] | None = None) -> Workload:
    """Rows of (submit, run, processors[, requested[, user]])."""
    submit, run = (np.array([row[at] for row in rows], np.float64) for at in range(2))
    processors = np.array([row[2] for row in rows], np.int64)
    requested = np.array([row[3] if len(row) > 3 else row[1] for row in rows], np.float64)
    user = np.array([row[4] if len(row) > 4 else 0 for row in rows], np.int64)
    nothing = np.zeros(len(rows), np.int64)
    revoked = None if revoked_after is None else np.array(revoked_after, np.float64)
    return workload_of(
        submit, run, processors, requested, user=user, program=nothing, queue=nothing, revoked_after=revoked
    )


@pytest.fixture
def by_hand() -> Callable[..., Workload]:
    return workload
