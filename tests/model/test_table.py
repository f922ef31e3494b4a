"""Time limits of jobs that asked for none."""

from __future__ import annotations

import math

import numpy as np

from advisor.model.table import limits_of

NONE = math.nan


def limits(*jobs: tuple[float, float]) -> list[float]:
    """Limits of jobs of (requested time, run time)."""
    asked, run = np.array(jobs).T
    return limits_of(asked, run).tolist()


def test_the_longest_limit_stands_for_one_that_is_missing() -> None:
    assert limits((600.0, 300.0), (3600.0, 4000.0), (NONE, 50.0)) == [600.0, 3600.0, 3600.0]


def test_one_absurd_limit_is_not_that_of_the_others() -> None:
    century = 100 * 365 * 86_400.0
    assert limits((century, 10.0), (600.0, 500.0), (NONE, 50.0)) == [century, 600.0, 500.0]


def test_a_job_without_a_limit_is_not_ended_at_that_of_others() -> None:
    assert limits((600.0, 300.0), (NONE, 9000.0), (NONE, 50.0)) == [600.0, 9000.0, 9000.0]


def test_a_log_without_limits_has_its_longest_run_time() -> None:
    assert limits((NONE, 10.0), (NONE, 70.0)) == [70.0, 70.0]
    assert limits_of(np.empty(0), np.empty(0)).tolist() == []
