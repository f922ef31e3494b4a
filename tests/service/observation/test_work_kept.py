"""What the earlier runs of a job with checkpoints have kept."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.history.store import Attempt
from advisor.model.snapshot import QueuedJob
from advisor.service.observation.work_kept import WorkKept
from tests.service.doubles import make_queued

SLOWDOWN = 2.0


def run(start: float, end: float, partition: str = "burst") -> Attempt:
    times = {"submit_time": start, "start_time": start, "end_time": end, "first_submit_time": 0.0}
    return Attempt(job_id=7, partition=partition, **times)


def kept(*runs: Attempt) -> WorkKept:
    return WorkKept(attempts=lambda _job_id: runs, slowdown=lambda _queued: SLOWDOWN, burst_partition="burst")


def job(state: str = "PENDING", restarts: int = 0, **fields: Any) -> QueuedJob:
    given = {"comment": "checkpoint=10min", "queue": "burst", "restarts": restarts}
    return make_queued(7, state, **given | fields)


def test_a_lost_run_keeps_all_but_the_time_since_its_last_checkpoint() -> None:
    book = kept()
    book.see([job("RUNNING", start_time=1000.0)], 1000.0 + 3000.0)
    assert book.of(job("RUNNING", start_time=1000.0)) == 0.0
    assert book.of(job("RUNNING", start_time=1000.0), 3000.0) == (3000.0 - 600.0) / SLOWDOWN
    for waiting in (job(restarts=0), job(restarts=1)):  # requeued; slurmctld counts that a moment later
        book.see([waiting], 4010.0)
        assert book.of(waiting) == 1200.0


def test_runs_here_and_there_add_up() -> None:
    book = kept()
    book.see([job("RUNNING", start_time=0.0)], 3000.0)
    here = job("RUNNING", 1, queue="onprem", start_time=5000.0)
    book.see([here], 6000.0)
    assert book.of(here, 1000.0) == 1200.0 + 400.0
    book.see([job(restarts=2)], 6100.0)
    assert book.of(job(restarts=2)) == 1600.0
    again = job("RUNNING", 2, start_time=7000.0)
    book.see([again], 7100.0)
    assert book.of(again, 100.0) == 1600.0  # no new checkpoint so far


def test_a_process_that_has_just_begun_reads_the_accounting() -> None:
    book = kept(run(0.0, 50.0), run(100.0, 3100.0), run(4000.0, 5000.0, "onprem"))
    waiting = job(restarts=2, submit_time=5000.0)
    book.see([waiting], 6000.0)
    assert book.submitted(waiting) == 0.0
    assert book.of(waiting) == 1200.0 + 400.0  # the last two; a run before these is of another job


def test_other_jobs_and_jobs_that_have_left_keep_nothing() -> None:
    book = kept(run(0.0, 3000.0))
    without = job("RUNNING", comment="by=18:00", start_time=0.0)
    book.see([without], 3000.0)
    assert book.of(without, 3000.0) == 0.0
    book.see([job("RUNNING", start_time=0.0)], 3000.0)
    book.see([], 3100.0)
    assert book.of(job()) == 0.0


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_job_that_has_not_run_keeps_nothing(restarts: int) -> None:
    book = kept()
    book.see([job(restarts=restarts)], 0.0)
    assert book.of(job(restarts=restarts)) == 0.0
