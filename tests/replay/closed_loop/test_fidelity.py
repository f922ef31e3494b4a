"""How near a simulated log is to what happened, and why not nearer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import rankdata

from advisor.replay.closed_loop.fidelity import Fidelity, _ranks, fidelity_of
from advisor.replay.closed_loop.log import loop_jobs
from advisor.replay.closed_loop.world import Policy, World, WorldOptions
from tests.replay.closed_loop.hand_made import log


def fidelity(*rows: tuple[float, ...], machine: int, waits: list[float], skip: int = 0) -> Fidelity:
    jobs = loop_jobs(log(rows, machine=machine, waits=waits), skip=skip)
    return fidelity_of(jobs, World(jobs, WorldOptions(), Policy()).run())


def test_a_log_that_is_easy_backfilling_is_repeated_exactly() -> None:
    found = fidelity((0.0, 2, 100.0), (10.0, 2, 100.0), (20.0, 1, 50.0), machine=2, waits=[0.0, 90.0, 180.0])
    assert not found.deviates
    assert found.reasons == ()
    assert found.mean_wait_ratio == pytest.approx(1.0)
    assert found.start_rank_correlation == pytest.approx(1.0)
    assert found.wait_rank_correlation == pytest.approx(1.0)
    assert found.explained_share == pytest.approx(1.0)
    assert found.median_absolute_deviation_seconds == pytest.approx(0.0)


def test_free_processors_that_a_job_did_not_get_are_named() -> None:
    found = fidelity((0.0, 1, 100.0), (10.0, 1, 100.0), machine=4, waits=[0.0, 5000.0])
    assert found.deviates
    assert found.mean_wait_ratio == 0.0
    assert any(reason.startswith("50 % of the jobs waited in the log although") for reason in found.reasons)


def test_missing_limits_and_overtaking_are_named() -> None:
    rows = [(0.0, 4, 1000.0, float("nan")), (1.0, 4, 1000.0, 1000.0), (2.0, 4, 1000.0, 1000.0)]
    found = fidelity(*rows, machine=4, waits=[0.0, 1999.0, 998.0])
    assert found.mean_wait_ratio == pytest.approx((999.0 + 1998.0) / (1999.0 + 998.0))
    assert found.start_rank_correlation == pytest.approx(0.5)
    variance = (0.0**2 + 1999.0**2 + 998.0**2) / 3 - (2997.0 / 3) ** 2
    errors = ((999.0 - 1999.0) ** 2 + (1998.0 - 998.0) ** 2) / 3
    assert found.explained_share == pytest.approx(1.0 - errors / variance)
    assert found.deviates
    (said,) = (reason for reason in found.reasons if reason.startswith("33 % of the jobs have no time limit"))
    assert "gives them the longest one" in said  # what `loop_jobs` does
    assert any(reason.startswith("33 % of the jobs started in the log after") for reason in found.reasons)


def test_jobs_from_before_the_window_are_counted() -> None:
    found = fidelity(
        (0.0, 1, 9000.0), (10.0, 1, 100.0), (20.0, 1, 100.0), machine=1, waits=[0.0, 8990.0, 9080.0], skip=1
    )
    assert found.deviates
    assert any(reason.startswith("1 earlier jobs") for reason in found.reasons)


def test_a_log_without_waits_says_so() -> None:
    found = fidelity((0.0, 1, 100.0), machine=1, waits=[-1.0])
    assert (found.jobs, found.deviates) == (0, True)
    assert math.isnan(found.mean_wait_seconds)


def test_ranks_are_scipys() -> None:
    values = np.random.default_rng(1).integers(0, 40, 200).astype(float)
    assert np.array_equal(_ranks(values), rankdata(values))
