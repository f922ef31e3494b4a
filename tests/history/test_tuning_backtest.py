"""New parameters are judged on jobs that they were not tuned on."""

from __future__ import annotations

import numpy as np

from advisor.history.tuning_backtest import row_before_newest
from advisor.model.table import JobTable


def table_of(count: int, **columns: np.ndarray) -> JobTable:
    whole = np.zeros(count, np.int64)
    return JobTable(
        job_id=np.arange(count),
        submit=np.arange(count, dtype=np.float64),
        wait=np.full(count, 5.0),
        run=np.full(count, 60.0),
        processors=whole + 1,
        requested_time=np.full(count, 600.0),
        user=whole,
        group=whole,
        queue=whole,
        status=whole,
        **columns,
    )


def test_the_newest_jobs_of_each_target_are_kept_for_judging() -> None:
    """A job that was cut short is none of the newest run times: one more before it is judged on."""
    assert row_before_newest(table_of(10), 3) == 7
    assert row_before_newest(table_of(10), 11) == 1
    is_whole = np.ones(10, np.bool_)
    is_whole[[8, 9]] = False
    assert row_before_newest(table_of(10, is_whole=is_whole), 3) == 5
    requeued = np.zeros(10)
    requeued[9] = np.nan
    assert row_before_newest(table_of(10, requeued_seconds=requeued), 3) == 6
