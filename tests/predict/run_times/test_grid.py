"""Distributions on the grid of run times."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.predict.run_times.grid import BINS, GRID, MAX_SECONDS, bin_of, mean, quantile, survival


@pytest.fixture
def distribution() -> NDArray[np.float64]:
    """Some mass in every bin between a minute and three days, none elsewhere."""
    chances = np.random.default_rng(3).random(BINS)
    chances[GRID < 60.0] = 0.0
    chances[GRID > 3 * 86400.0] = 0.0
    result: NDArray[np.float64] = chances / chances.sum()
    return result


def test_each_edge_belongs_to_the_bin_that_it_ends() -> None:
    assert [bin_of(edge) for edge in GRID.tolist()] == list(range(BINS))
    assert [bin_of(edge * 1.001) for edge in GRID[:-1].tolist()] == list(range(1, BINS))
    assert bin_of(0.0) == 0
    assert bin_of(10 * MAX_SECONDS) == bin_of(math.inf) == BINS - 1


def test_survival_at_edges_is_the_mass_above(distribution: NDArray[np.float64]) -> None:
    for k, edge in enumerate(GRID[:-1].tolist()):
        assert survival(distribution, edge) == pytest.approx(distribution[k + 1 :].sum(), abs=1e-9)
    assert survival(distribution, 0.0) == pytest.approx(1.0)
    assert survival(distribution, MAX_SECONDS) == 0.0


@pytest.mark.parametrize("level", [0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_quantile_is_where_survival_has_fallen_by_its_level(
    distribution: NDArray[np.float64], level: float
) -> None:
    assert survival(distribution, quantile(distribution, level)) == pytest.approx(1.0 - level, abs=1e-9)


def test_quantiles_at_uniform_levels_are_draws(distribution: NDArray[np.float64]) -> None:
    levels = (np.arange(20_000) + 0.5) / 20_000
    draws = np.array([quantile(distribution, level) for level in levels.tolist()])
    shares = np.bincount([bin_of(draw) for draw in draws.tolist()], minlength=BINS) / len(draws)
    assert np.max(np.abs(shares - distribution)) < 1e-3
    assert mean(distribution, math.inf) == pytest.approx(draws.mean(), rel=0.02)
    assert mean(distribution, 300.0) == pytest.approx(np.minimum(draws, 300.0).mean(), rel=0.02)
