"""Small logs for the tests of the size classifier: by hand, at random, as a table or job by job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.model.job import Job
from advisor.model.table import UNKNOWN_CODE, JobTable
from advisor.predict.size.size_history import WEEK_SECONDS


def table_of(rows: list[tuple[float, float, float, int, float, int]], **more) -> JobTable:
    """Rows of (submit, wait, run, processors, request, user)."""
    submit, wait, run, processors, request, user = (np.array(column) for column in zip(*rows, strict=True))
    count = len(rows)
    unknown = np.full(count, UNKNOWN_CODE)
    return JobTable(
        job_id=np.arange(1, count + 1),
        submit=submit.astype(float),
        wait=wait.astype(float),
        run=run.astype(float),
        processors=processors.astype(np.int64),
        requested_time=np.where(request > 0, request, np.nan),
        user=user.astype(np.int64),
        group=unknown,
        queue=unknown,
        status=np.ones(count, np.int64),
        **more,
    )


def random_table(seed: int, count: int = 60, *, weeks: float = 3.0) -> JobTable:
    generator = np.random.default_rng(seed)
    table = table_of(
        [
            (
                submit,
                float(generator.choice([0, 0, 5, 3000])),
                float(generator.choice([1, 40, 400, 4000, 90_000])),
                int(generator.choice([1, 4, 8])),
                float(generator.choice([0, 60, 3600, 86400])),
                int(generator.integers(-1, 3)),
            )
            for submit in np.sort(np.round(generator.random(count) * weeks * WEEK_SECONDS, -2))
        ],
        executable=generator.integers(-1, 2, count),
        start_of_log=843480031.0,
        utc_offset_seconds=3600.0,
    )
    return replace(table, queue=generator.integers(-1, 2, count))


def jobs_of(table: JobTable) -> list[Job]:
    def text(code: int) -> str | None:
        return str(code) if code >= 0 else None

    return [
        Job(
            job_id=int(table.job_id[i]),
            submit_time=float(table.submit[i]),
            processors=int(table.processors[i]),
            user=text(table.user[i]),
            queue=text(table.queue[i]),
            name=text(table.executable[i]),
            requested_time=None if np.isnan(table.requested_time[i]) else float(table.requested_time[i]),
        )
        for i in range(len(table))
    ]
