"""How many nodes to reserve: the optimum against all numbers, and how sure it is."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.papers.waiting.planning import (
    Planner,
    PlanOptions,
    Point,
    coarse_optimum,
    plan,
    resampled_optima,
)
from advisor.papers.waiting.waiting_policies import policies
from advisor.papers.waiting.waiting_rows import workload_from
from advisor.papers.waiting.world.costs import CostModel
from advisor.replay.sources import load_table


@pytest.fixture(scope="module")
def workload():
    return workload_from(load_table("synthetic:1500:3"), CostModel(), 1)


@pytest.mark.parametrize(("policy", "node_cores"), [("oracle", 1), ("oracle", 8), ("speculation", 4)])
def test_optimum_is_that_of_all_numbers(workload, policy, node_cores):
    planner = Planner(workload, policies(900.0, 86_400.0)[policy], CostModel(), node_cores=node_cores)
    best = planner.optimum()
    searched = len(planner.points)
    every = [planner.at(nodes) for nodes in range(planner.points[-1].nodes + 1)]
    assert best.total_cost == pytest.approx(min(point.total_cost for point in every), rel=1e-3)
    assert searched <= len(every)


def test_all_rented_costs_all_the_work(workload):
    planner = Planner(workload, policies(900.0, 86_400.0)["oracle"], CostModel())
    assert planner.at(0).total_cost == pytest.approx(float(workload.run @ workload.processors))
    assert planner.at(0).weekly_rented.sum() == pytest.approx(planner.at(0).rented_cost)


def test_dear_reservations_are_not_made(workload):
    planner = Planner(workload, policies(900.0, 86_400.0)["oracle"], CostModel(reserved=1.1))
    assert planner.optimum().nodes == 0


def test_coarse_optimum_is_a_tenth_of_the_mean_load(workload):
    cores = coarse_optimum(workload, 900.0, 86_400.0, CostModel())
    load = Planner(workload, policies(900.0, 86_400.0)["oracle"], CostModel()).mean_load_cores
    assert cores in {max(1, round(part * 0.1 * load)) for part in range(1, 21)}


def points(weekly):
    return [
        Point(
            nodes=nodes,
            cores=nodes,
            reserved_cost=100.0 * nodes,
            rented_cost=float(np.sum(rented)),
            weekly_rented=np.array(rented, np.float64),
            mean_wait=0.0,
        )
        for nodes, rented in enumerate(weekly)
    ]


def test_bootstrap_of_equal_weeks_is_certain():
    found = resampled_optima(points([[100.0] * 8, [50.0] * 8, [48.0] * 8]), draws=50, block_weeks=2, seed=1)
    assert set(found.tolist()) == {1}


def test_bootstrap_sees_that_one_busy_month_decides():
    quiet_or_busy = [[0.0] * 8 + [400.0] * 4, [0.0] * 8 + [340.0] * 4]
    found = resampled_optima(points(quiet_or_busy), draws=400, block_weeks=4, seed=1)
    assert set(found.tolist()) == {0, 1}


def test_plan_says_optimum_interval_and_curve(workload):
    said = []
    result = plan("log", workload, PlanOptions(draws=200), lambda *what: said.append(what))
    best = result["optimum"]
    assert best["low"] <= best["nodes"] <= best["high"]
    assert min(point["cost_vs_optimum"] for point in result["curve"]) == 1.0
    assert [point["nodes"] for point in result["curve"]] == sorted(
        point["nodes"] for point in result["curve"]
    )
    reserved = [point["reserved_cost_usd_a_year"] for point in result["curve"]]
    per_core_hour = reserved[-1] / result["curve"][-1]["cores"] / (365.25 * 24)
    assert per_core_hour == pytest.approx(0.4 * 0.048)
    assert {what for what, *_ in said} == {"coarse", "fine"}


def test_a_few_days_are_no_history():
    short = workload_from(load_table("synthetic:60:3"), CostModel(), 1)
    with pytest.raises(BadInput, match="history"):
        plan("log", short, PlanOptions())
