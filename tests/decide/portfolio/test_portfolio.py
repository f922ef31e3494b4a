"""Algorithm 1, and what a plan costs: by hand."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.decide.portfolio.portfolio import (
    Budget,
    TimeConstrainedSelector,
    Worth,
)
from advisor.simulate.portfolio.online import Outcomes


def selector(count: int = 10) -> TimeConstrainedSelector:
    return TimeConstrainedSelector(np.arange(count), np.random.default_rng(1))


def only(loss, alike=()):
    """Tells of those asked for, and of what comes to the same plan as one of them."""
    known = np.zeros(len(loss), bool)

    def simulate(chosen):
        known[chosen] = True
        for group in alike:
            known[list(group)] |= known[list(group)].any()
        return np.where(known, loss, np.nan)

    return simulate


def test_first_choice_tries_the_smart_in_order():
    """All ten are smart at first and get the whole budget: the first five are simulated."""
    one = selector()
    loss = np.arange(10.0)[::-1]
    best, tried, seen = one.choose(only(loss), Budget(policies=5))
    assert tried.tolist() == [0, 1, 2, 3, 4]
    assert best == 4
    assert np.isnan(seen[5:]).all()
    # 60 % of the tried are smart, best first; the others are poor; who was not tried is stale
    assert one.smart == [4, 3, 2]
    assert one.poor == [1, 0]
    assert one.stale == [5, 6, 7, 8, 9]


def test_second_choice_tries_all_the_smart_first():
    """Five of ten: 3.5 for the three smart, 0.75 for the stale (one is simulated), one of the poor."""
    one = selector()
    loss = np.arange(10.0)[::-1]
    one.choose(only(loss), Budget(policies=5))
    _, tried, _ = one.choose(only(loss), Budget(policies=5))
    assert tried[:4].tolist() == [4, 3, 2, 5]
    assert tried[4] in {0, 1}
    assert len(tried) == 5
    assert sorted([*one.smart, *one.stale, *one.poor]) == list(range(10))


def test_each_kind_is_tried_once_before_another_of_a_known_kind():
    """Ten of five kinds. 3.5 of five for the three smart, of two kinds; then the three kinds nobody knows."""
    one = TimeConstrainedSelector(np.arange(10) // 2, np.random.default_rng(1))
    one.smart, one.stale, one.poor = [0, 1, 2], [3, 4], [5, 6, 7, 8, 9]
    _, tried, _ = one.choose(only(np.arange(10.0)), Budget(policies=6))
    assert tried[:4].tolist() == [0, 1, 2, 4]  # 3 is of the same kind as 2
    assert {policy // 2 for policy in tried.tolist()[4:]} == {3, 4}


def test_known_kinds_have_their_turn_when_no_new_one_is_left():
    """Nobody is tried twice, nor left out where the budget reaches."""
    one = TimeConstrainedSelector(np.array([0, 0, 0, 1, 1, 1]), np.random.default_rng(1))
    one.smart, one.stale, one.poor = [0], [1], [2, 3, 4, 5]
    _, tried, _ = one.choose(only(np.arange(6.0)), Budget(policies=5))
    assert len(set(tried.tolist())) == 5


def test_a_plan_known_for_nothing_makes_its_kind_known():
    """3 comes to the plan of 0: its kind is known, and the other of another kind comes before it."""
    one = TimeConstrainedSelector(np.array([0, 0, 1, 1, 2]), np.random.default_rng(1))
    one.smart, one.stale, one.poor = [0], [2, 4], [1, 3]
    _, tried, _ = one.choose(only(np.arange(5.0), alike=[(0, 3)]), Budget(policies=2))
    assert tried.tolist() == [0, 3, 4]


def test_what_is_left_of_the_budget_goes_to_whoever_there_is():
    """Two are poor after one choice of all but one: the rest is spent on the stale, nobody is tried twice."""
    one = selector(5)
    loss = np.arange(5.0)
    one.choose(only(loss), Budget(policies=4))
    one.poor, one.stale = [], [4, *one.poor]
    _, tried, _ = one.choose(only(loss), Budget(policies=4))
    assert len(set(tried.tolist())) == len(tried) == 4


def test_the_smart_are_so_many_and_everybody_has_his_turn():
    """lambda K are smart; with twenty of sixty nobody waits long."""
    one = selector(60)
    generator = np.random.default_rng(2)
    last = np.zeros(60, int)
    for turn in range(200):
        loss = generator.random(60)
        _, tried, _ = one.choose(only(loss), Budget(policies=20))
        last[tried] = turn
        assert len(one.smart) + len(one.stale) + len(one.poor) == 60
        assert len(one.smart) == 12
    assert last.min() > 200 - 60


def test_the_champion_is_always_simulated_and_once():
    one = selector()
    loss = np.arange(10.0)
    for _ in range(5):
        _, tried, seen = one.choose(only(loss), Budget(policies=3), 9)
        assert tried[0] == 9
        assert seen[9] == 9.0
        assert len(set(tried.tolist())) == len(tried) == 3


def test_a_clock_bounds_the_time():
    """Each simulation takes 10 ms: of 35 ms four are begun."""
    moment = 0.0

    tells = only(np.arange(10.0))

    def simulate(chosen):
        nonlocal moment
        moment += 0.01
        return tells(chosen)

    _, tried, _ = selector().choose(simulate, Budget(seconds=0.035, clock=lambda: moment))
    assert len(tried) == 4


def test_a_queue_that_has_grown_is_not_simulated_whole_before_it_is_timed():
    """Ten policies on ten jobs in 10 ms, of 200. On a thousand jobs each takes 10,000 times as long: 10 s."""
    moment, waiting = 0.0, 10

    def simulate(chosen):
        nonlocal moment
        moment += 1e-5 * waiting**2 * len(chosen)
        return only(np.arange(10.0))(chosen)

    one, budget = selector(), Budget(seconds=0.2, clock=lambda: moment)
    for _ in range(2):  # timed, then all at once
        _, tried, _ = one.choose(simulate, budget, jobs=waiting)
    assert len(tried) == 10
    waiting = 1000
    began = moment
    _, tried, _ = one.choose(simulate, budget, jobs=waiting)
    assert len(tried) == 1
    assert moment - began == pytest.approx(10.0)


def test_what_comes_to_the_same_plan_costs_nothing():
    """Three simulations tell of seven policies, and the best was not asked for."""
    one = selector()
    asked = []
    tells = only(np.arange(10.0)[::-1], [(0, 3, 9), (1, 4, 5)])

    def simulate(chosen):
        asked.extend(chosen.tolist())
        return tells(chosen)

    best, tried, seen = one.choose(simulate, Budget(policies=3))
    assert asked == [0, 1, 2]
    assert tried.tolist() == [0, 3, 9, 1, 4, 5, 2]
    assert best == 9
    assert np.isnan(seen[[6, 7, 8]]).all()
    assert one.smart == [9, 5, 4, 3]
    assert one.stale == [6, 7, 8]


def test_worth_weighs_by_the_totals():
    """A tenth of all charged time more costs a tenth of the utility, as does a tenth of all slowdown."""
    outcomes = Outcomes(
        charged=np.array([100.0, 0.0, 0.0, 100.0, 0.0]),
        slowdown=np.array([0.0, 5.0, 5.0, 0.0, 5.0]),
        held=np.zeros(5),
        spared_charged=np.array([0.0, 0.0, 0.0, 100.0, 0.0]),
        spared_slowdown=np.array([0.0, 0.0, 0.0, 0.0, 5.0]),
    )
    worth = Worth(charged_seconds=1000.0, slowdown_sum=50.0)
    assert worth.loss(outcomes).tolist() == [0.1, 0.1, 0.1, 0.0, 0.0]
    cost_only = Worth(charged_seconds=1000.0, slowdown_sum=50.0, beta=0.0)
    assert cost_only.loss(outcomes).tolist() == [0.1, 0, 0, 0, 0]


def test_worth_of_a_run_that_begins_is_not_all_in_its_first_seconds():
    """Ten node hours and twenty of slowdown are taken as given: another node hour costs a tenth, not all."""
    hour = Outcomes(
        **{name: np.array([0.0]) for name in Outcomes.__dataclass_fields__} | {"charged": np.array([3600.0])}
    )
    worth = Worth.so_far(0.0, 0.0, alpha=1.0, beta=1.0)
    assert worth.loss(hour).tolist() == [0.1]
    assert Worth.so_far(324_000.0, 0.0, alpha=2.0, beta=1.0).loss(hour).tolist() == [0.02]
