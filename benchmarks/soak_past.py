"""A past in which long jobs waited and short ones did not: the advisor sends long ones to the cloud."""

from __future__ import annotations

import time
from typing import Final

from advisor.history.store import HistoryStore
from advisor.model.job import Job, JobOutcome
from advisor.testing.site import Site

_FIRST_JOB: Final = 1_000_000
_JOBS: Final = 200


def write_the_past(site: Site, processors: int = 1) -> None:
    """Write it into the site's history; each job used this many processors."""
    now = time.time()
    outcomes = []
    for number in range(_JOBS):
        minutes, wait = (30, 7200.0) if number % 2 else (1, 0.0)
        submit = now - 86400.0 - 10800.0 * number
        job = Job(
            job_id=_FIRST_JOB + number,
            submit_time=submit,
            processors=processors,
            user="root",
            group="root",
            queue="onprem",
            requested_time=60.0 * minutes,
        )
        end = submit + wait + 30.0 * minutes
        outcomes.append(JobOutcome(job=job, start_time=submit + wait, end_time=end))
    with HistoryStore(f"sqlite:///{site.state / 'history.db'}") as store:
        store.add(outcomes, source="swf:past")
