"""Demands written down by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from advisor.papers.cluster.demand import LARGE, Demand


def demand(rows: list[tuple[float, ...]], **columns: list[float]) -> Demand:
    """Rows of (submit, run, processors[, requested]); the request is the run time unless given."""
    submit, run, processors = (np.array([row[at] for row in rows], np.float64) for at in range(3))
    requested = np.array([row[3] if len(row) > 3 else row[1] for row in rows], np.float64)
    count = len(rows)
    values = {
        "requested": requested,
        "planned": requested,
        "limit": np.full(count, np.inf),
        "job_class": np.full(count, LARGE),
        "user": np.zeros(count, np.int64),
    }
    for name, column in columns.items():
        values[name] = np.array(column, values[name].dtype)
    return Demand(submit=submit, run=run, processors=processors.astype(np.int64), **values)


@pytest.fixture
def by_hand() -> Callable[..., Demand]:
    return demand
