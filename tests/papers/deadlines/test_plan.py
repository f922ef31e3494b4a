"""The plan of a job with a deadline: what it chooses where the answer is known, and what it saves."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.papers.deadlines.moment import Market, Moment
from advisor.papers.deadlines.plan import STEPS, DeadlinePlan, plan_deadline, planned, step_of
from advisor.papers.deadlines.spot_spells import SpotChances, ages_in_spell, spot_chances

HOUR = 3600.0
WORK, TIME, CHANGEOVER = 8 * HOUR, 10 * HOUR, 360.0


def chances(up: float, down: float) -> SpotChances:
    """Spot that stays, or stays away, for a step with these probabilities, whatever its age."""
    ages = np.array([0.0, 600.0, 7200.0])
    return SpotChances(step_of(TIME, 60.0), ages, np.array([0.5, 0.1, 0.0]), np.full(3, up), np.full(3, down))


def plan(up: float, down: float, *, spot_price: float = 0.3) -> DeadlinePlan:
    found = chances(up, down)
    return plan_deadline(found, work=WORK, time=TIME, changeover=CHANGEOVER, spot_price=spot_price)


def moment(
    running: Market = Market.IDLE, *, has_spot: bool, passed: float = 0.0, done: float = 0.0
) -> Moment:
    return Moment(WORK - done, TIME - passed, running, 0.0, has_spot, CHANGEOVER, 60.0)


def test_spot_that_stays_is_used_and_waited_for_where_it_comes_back() -> None:
    steady = plan(1.0, 0.5)
    assert planned(moment(has_spot=True), 60.0, steady) is Market.SPOT
    assert planned(moment(has_spot=False), 60.0, steady) is Market.IDLE
    assert planned(moment(Market.ON_DEMAND, has_spot=True), 60.0, steady) is Market.SPOT


def test_spot_that_goes_at_once_is_not_worth_its_changeover() -> None:
    fleeting = plan(0.05, 0.99)
    running = moment(Market.ON_DEMAND, has_spot=True, passed=2 * HOUR, done=1.5 * HOUR)
    assert planned(running, 60.0, fleeting) is Market.ON_DEMAND
    assert planned(moment(has_spot=True), 60.0, plan(1.0, 0.5, spot_price=5.0)) is not Market.SPOT


def test_what_is_expected_is_what_it_comes_to_where_nothing_is_left_to_chance() -> None:
    start = len(chances(1.0, 1.0).ages)
    on_demand = plan(1.0, 1.0).costs[STEPS, start, -1, Market.ON_DEMAND]
    assert on_demand == pytest.approx(WORK, rel=0.01), "spot never comes: the whole run on-demand"
    on_spot = plan(1.0, 1.0).costs[STEPS, 0, -1, Market.SPOT]
    assert on_spot == pytest.approx(0.3 * WORK, rel=0.01)


def test_less_spot_never_makes_a_plan_cheaper() -> None:
    costs = [float(plan(up, 0.9).costs[STEPS, 0, -1, Market.IDLE]) for up in (0.99, 0.9, 0.5, 0.1)]
    assert costs == sorted(costs)


def test_chances_are_those_of_the_spells_that_were_seen() -> None:
    rng = np.random.default_rng(3)
    spells = [
        (state, max(1, int(rng.exponential(hours * 60))))
        for _ in range(300)
        for state, hours in ((1, 4), (0, 1))
    ]
    has_spot = np.repeat([bool(state) for state, _ in spells], [length for _, length in spells])
    found = spot_chances(has_spot, 60.0, 600.0)
    assert found.stays_up[:8].mean() == pytest.approx(np.exp(-600 / (4 * HOUR)), abs=0.03)
    assert found.stays_down[:8].mean() == pytest.approx(np.exp(-600 / HOUR), abs=0.03)
    nothing = spot_chances(np.zeros(0, np.bool_), 60.0, 600.0)
    assert np.all((nothing.stays_up > 0.5) & (nothing.stays_up < 1.0))


def test_ages_count_from_the_last_change() -> None:
    assert ages_in_spell(np.array([True, True, False, True, True]), 60.0).tolist() == [0, 60, 0, 0, 60]
