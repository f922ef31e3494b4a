"""Expected run times of the jobs in a queue."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.predict.run_times.grid import BINS, bin_of
from advisor.predict.run_times.queue_runs import QueueRuns

HOUR = 3600.0
DAY = 24 * HOUR


def chances(*runs: float) -> np.ndarray:
    """Equally likely run times."""
    found = np.zeros(BINS)
    for run in runs:
        found[bin_of(run)] += 1.0 / len(runs)
    return found


def expected(ran: float, limit: float, *runs: float) -> float:
    jobs = QueueRuns()
    jobs.see(7, chances(*runs))
    return float(jobs.expected([7], np.array([limit]), np.array([ran]))[0])


def test_a_job_that_waits_runs_for_its_mean() -> None:
    assert expected(0.0, DAY, HOUR, 5 * HOUR) == pytest.approx(3 * HOUR, rel=0.13)


def test_what_has_run_already_is_known() -> None:
    assert expected(2 * HOUR, DAY, HOUR, 5 * HOUR) == pytest.approx(5 * HOUR, rel=0.13)


def test_a_job_that_has_outrun_its_forecast_needs_as_long_again() -> None:
    assert expected(6 * HOUR, DAY, HOUR, 5 * HOUR) == 12 * HOUR


def test_no_job_runs_beyond_its_limit_nor_ends_before_now() -> None:
    assert expected(0.0, HOUR, HOUR) <= HOUR
    assert expected(20 * HOUR, DAY, HOUR) == DAY
    assert expected(25 * HOUR, DAY, HOUR) == DAY


def test_jobs_that_have_left_are_forgotten() -> None:
    jobs = QueueRuns()
    for key in (1, 2, 3):
        jobs.see(key, chances(HOUR))
    jobs.forget(1)
    jobs.forget(99)
    jobs.forget_all_but({3, 4})
    assert [key in jobs for key in (1, 2, 3)] == [False, False, True]
    assert jobs.expected([], np.empty(0), np.empty(0)).shape == (0,)
