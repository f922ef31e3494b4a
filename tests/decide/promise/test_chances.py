"""Chances that a job is done by a time, against draws from the same distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.decide.promise.chances import (
    ended_by,
    ended_of,
    kept_here,
    kept_there,
    late_by_loss,
    mean_run,
    needed_share,
    not_started_by,
    ready_here,
    rest_of,
    run_at,
)
from advisor.predict.run_times.grid import BINS, GRID, quantile

LIMIT = 7200.0


@pytest.fixture
def runs() -> np.ndarray:
    """Run times up to two hours, of two kinds."""
    found = np.zeros(BINS)
    found[20:24] = 0.1, 0.2, 0.1, 0.1
    found[33:36] = 0.2, 0.2, 0.1
    return found


def drawn(runs: np.ndarray, count: int = 20_000) -> np.ndarray:
    levels = np.random.default_rng(1).random(count)
    return np.minimum([quantile(runs, level) for level in levels], LIMIT)


def test_ended_by_is_the_share_of_draws(runs: np.ndarray) -> None:
    ended, draws = ended_of(runs), drawn(runs)
    for seconds in (30.0, 200.0, 400.0, 3000.0, 5000.0):
        assert ended_by(ended, seconds, LIMIT) == pytest.approx((draws <= seconds).mean(), abs=0.02)
    assert ended_by(ended, LIMIT, LIMIT) == 1.0
    assert ended_by(ended, 0.0, LIMIT) == ended_by(ended, -5.0, LIMIT) == 0.0


@pytest.mark.parametrize("level", [0.01, 0.3, 0.5, 0.77, 0.95, 0.999])
def test_run_at_is_the_inverse_of_ended_by(runs: np.ndarray, level: float) -> None:
    ended = ended_of(runs)
    seconds = run_at(ended, level, math.inf)
    assert ended_by(ended, seconds, math.inf) == pytest.approx(level, abs=1e-6)
    assert run_at(ended, level, 300.0) <= 300.0


def test_waits_and_runs_together(runs: np.ndarray) -> None:
    ended, draws = ended_of(runs), drawn(runs)
    waits, shares = np.array([0.0, 600.0, 3600.0]), np.array([0.5, 0.3, 0.2])
    total = draws + np.random.default_rng(2).choice(waits, len(draws), p=shares)
    for left in (100.0, 900.0, 4000.0, 8000.0):
        assert kept_here(waits, shares, ended, left, LIMIT) == pytest.approx((total <= left).mean(), abs=0.02)
    ready = ready_here(waits, shares, ended, 0.9, LIMIT)
    assert kept_here(waits, shares, ended, ready, LIMIT) == pytest.approx(0.9, abs=1e-3)
    assert not_started_by(waits, shares, 599.0) == pytest.approx(0.5)


def test_a_job_without_a_limit_is_ready_here_some_time(runs: np.ndarray) -> None:
    waits, shares = np.array([0.0, 600.0, 3600.0]), np.array([0.5, 0.3, 0.2])
    ready = ready_here(waits, shares, ended_of(runs), 0.95, math.inf)
    assert ready == pytest.approx(ready_here(waits, shares, ended_of(runs), 0.95, 1e6), abs=1.0)


def test_the_cloud_is_slower_and_starts_later(runs: np.ndarray) -> None:
    ended = ended_of(runs)
    assert kept_there(ended, 1000.0, 100.0, 1.5, LIMIT) == ended_by(ended, 600.0, LIMIT)


def test_the_mean_is_that_of_draws(runs: np.ndarray) -> None:
    assert mean_run(ended_of(runs), LIMIT) == pytest.approx(drawn(runs).mean(), rel=0.03)


@pytest.mark.parametrize("keeps_place", [False, True])
def test_the_share_of_the_cost_that_is_needed_is_that_of_draws(
    runs: np.ndarray,
    keeps_place: bool,  # noqa: FBT001 - pytest gives it by name
) -> None:
    ended, draws = ended_of(runs), drawn(runs)
    waits, shares = np.array([0.0, 600.0, 3600.0]), np.array([0.5, 0.3, 0.2])
    wait = np.random.default_rng(2).choice(waits, len(draws), p=shares)
    start, slowdown = 120.0, 1.1
    for left in (900.0, 4000.0, 8000.0):
        is_here, is_there = wait + draws <= left, start + slowdown * draws <= left
        until_turn = np.minimum(slowdown * draws, np.maximum(0.0, wait - start))
        paid = np.where(is_here & keeps_place, until_turn, slowdown * draws)
        needed = (slowdown * draws)[is_there & ~is_here].sum()
        found = needed_share(waits, shares, ended, left, start, slowdown, LIMIT, keeps_place)
        assert found == pytest.approx(needed / paid.sum(), abs=0.06)


def test_nothing_is_needed_of_a_start_that_comes_too_late(runs: np.ndarray) -> None:
    now = np.zeros(1), np.ones(1)
    assert needed_share(*now, ended_of(runs), 60.0, 120.0, 1.1, LIMIT, False) == 0.0


@pytest.mark.parametrize("at_risk", [np.inf, 600.0, 30.0])
@pytest.mark.parametrize("mean_life", [1800.0, 20_000.0])
def test_the_chance_of_a_loss_that_comes_too_late_is_that_of_draws(
    runs: np.ndarray, mean_life: float, at_risk: float
) -> None:
    ended, draws = ended_of(runs), drawn(runs)
    lives = np.random.default_rng(3).exponential(mean_life, len(draws))
    start, slowdown = 120.0, 1.1
    whole = start + slowdown * draws
    for left in (600.0, 3000.0, 6000.0, 12_000.0, 40_000.0):
        kept = np.maximum(0.0, lives - start - at_risk)
        on_demand = lives + whole - kept  # begun anew, or from a checkpoint, when the instance is lost
        is_late = (whole <= left) & (lives < whole) & (on_demand > left)
        found = late_by_loss(ended, np.exp(-GRID / mean_life), left, start, slowdown, LIMIT, at_risk)
        assert found == pytest.approx(is_late.mean(), abs=0.03)


def test_the_rest_of_a_run_is_that_of_draws_that_last_longer(runs: np.ndarray) -> None:
    ended, draws = ended_of(runs), drawn(runs)
    for done in (0.0, 300.0, 2000.0):
        longer = draws[draws > done] - done
        rest = rest_of(ended, done, LIMIT)
        for seconds in (60.0, 600.0, 3000.0):
            assert ended_by(rest, seconds, LIMIT) == pytest.approx((longer <= seconds).mean(), abs=0.03)
    assert rest_of(ended, 2.0 * LIMIT, LIMIT).tolist() == [1.0] * len(GRID)
