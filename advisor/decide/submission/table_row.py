"""Conversion of a row of a table of jobs to the submission that it was, for replays of logs and history."""

from __future__ import annotations

import numpy as np

from advisor.model.job import Job
from advisor.model.table import UNKNOWN_CODE, JobTable


def job_of(table: JobTable, row: int, *, with_queue: bool = False) -> Job:
    """The submission of a row, as far as its columns say.

    Args:
        with_queue: Whether its queue is a partition of the site. The queues of a log are not, and a job in an
            unknown partition would stay.
    """

    def name(column: str) -> str | None:
        code = int(getattr(table, column)[row])
        names = table.names.get(column)
        if code == UNKNOWN_CODE:
            return None
        return str(code) if names is None else names[code]

    asked = float(table.requested_time[row])
    return Job(
        job_id=int(table.job_id[row]),
        submit_time=float(table.submit[row]),
        processors=int(table.processors[row]),
        user=name("user"),
        group=name("group"),
        queue=name("queue") if with_queue else None,
        requested_time=None if np.isnan(asked) else asked,
    )
