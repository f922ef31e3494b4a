"""A row of a table of jobs as the submission it was."""

from __future__ import annotations

import numpy as np

from advisor.model.job import Job
from advisor.model.table import UNKNOWN_CODE, JobTable


def job_of(table: JobTable, row: int, *, with_queue: bool = False) -> Job:
    """A row as a submission, as far as its columns tell.

    Args:
        with_queue: Whether its queue is one of ours; a log's are not, and a job in none of ours would stay
            where it is.
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
