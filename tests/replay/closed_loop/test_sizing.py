"""Sizes of a cluster and budgets: what is simulated, and which pair is the cheapest."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.replay.closed_loop.log import LoopJobs, loop_jobs
from advisor.replay.closed_loop.policies import Terms
from advisor.replay.closed_loop.sizing import SHARES, Plan, narrow, pairs_of, sized
from advisor.replay.closed_loop.world import WorldOptions
from tests.replay.closed_loop.hand_made import log


@pytest.fixture(scope="module")
def jobs() -> LoopJobs:
    """A day of 400 jobs of one or two processors on 20, which are busy for four fifths of it."""
    runs = np.random.default_rng(3).choice([600.0, 1800.0, 7200.0, 14_400.0], size=400)
    rows = [(row * 216.0, 1 + row % 2, float(run), 4.0 * run) for row, run in enumerate(runs)]
    return loop_jobs(log(rows, machine=20), nodes=64)


def plan(**more: object) -> Plan:
    values = {
        "world": WorldOptions(),
        "terms": Terms(policy="price"),
        "usd_per_core_hour": 0.1,
        "own_usd_per_core_hour": 0.04,
    }
    return Plan(**(values | more))  # type: ignore[arg-type]


def test_sizes_are_whole_nodes_that_keep_up(jobs: LoopJobs) -> None:
    load = jobs.core_seconds / jobs.span
    pairs = pairs_of(jobs, 8)
    assert {cores % 8 for cores, _ in pairs} == {0}
    assert (64, 0.0) in pairs
    assert {share for cores, share in pairs if cores == 64} == {0.0, *SHARES}
    assert all(cores + share * load > load for cores, share in pairs)
    assert (32, 0.0) not in pairs, "the load is larger"
    assert min(cores for cores, _ in pairs_of(jobs, 64)) == 64


def test_jobs_wider_than_a_size_run_in_the_cloud_at_once_and_are_paid() -> None:
    rows = [(0.0, 20, 3600.0), *((7200.0 * row, 2, 3600.0) for row in range(1, 30))]
    jobs = loop_jobs(log(rows, machine=20))
    assert len(narrow(jobs, 10)) == 29
    world = WorldOptions(boot_seconds=120.0, slowdown=1.0, bills_boot=True)
    found = sized(jobs, plan(world=world, terms=Terms(policy="price"), target_wait_seconds=60.0))
    half = next(one for one in found.curve if (one.cores, one.budget_usd_a_year) == (10, 0.0))
    assert half.moved_jobs == 1
    assert half.mean_wait_seconds == pytest.approx(120.0 / 30.0)
    years = jobs.span / (365.25 * 86_400.0)
    assert half.cloud_usd_a_year == pytest.approx(20 * 3720.0 / 3600.0 * 0.1 / years)


def test_the_cheapest_pair_that_keeps_the_wait(jobs: LoopJobs) -> None:
    found = sized(jobs, plan(target_wait_seconds=600.0))
    best = found.optimum
    assert best is not None
    assert best.mean_wait_seconds <= 600.0
    assert best.cost_usd_a_year == min(one.cost_usd_a_year for one in found.curve if one.meets_target)
    for one in found.curve:
        assert one.cost_usd_a_year == pytest.approx(one.own_usd_a_year + one.cloud_usd_a_year)
        assert one.own_usd_a_year == pytest.approx(0.04 * one.cores * 365.25 * 24.0)
        assert one.cloud_usd_a_year <= one.budget_usd_a_year * (1.0 + 1e-9)


def test_by_itself_the_target_is_the_wait_of_the_present_size(jobs: LoopJobs) -> None:
    found = sized(jobs, plan())
    here = next(one for one in found.curve if one.cores == 64 and not one.budget_usd_a_year)
    assert here.meets_target
    assert found.target_wait_seconds == here.mean_wait_seconds


def test_free_cores_are_all_owned_and_nothing_meets_a_target_that_cannot_be_met(jobs: LoopJobs) -> None:
    assert sized(jobs, plan(own_usd_per_core_hour=0.0, target_wait_seconds=1e9)).optimum is not None
    assert sized(jobs, plan(target_wait_seconds=-1.0)).optimum is None
