"""Spot pools for a run: by what it costs with the work that it is likely to lose there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from advisor.decide.explanation.wording import explanation
from advisor.decide.spot.pools import DEARER, LOST, NEAR, lives_of, pools_for_run, rounds_for_run
from advisor.model.advice import Capacity
from advisor.model.node_classes import NodeClassState
from advisor.model.site import CloudState
from advisor.model.spot_pools import LASTS_HOURS, SpotPool
from tests.decide.cases import ask, make_cloud, make_estimates, make_job, make_settings

HOUR = 3600.0


def pool(key: str, usd: float, mean_hours: float, **rest: object) -> SpotPool:
    """A pool whose instances are taken at a constant rate."""
    lasts = tuple(math.exp(-hours / mean_hours) for hours in LASTS_HOURS)
    return SpotPool(key=key, usd_per_hour=usd, lasts=lasts, **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize("hours", [0.1, 0.25, 1.0, 3.0, 24.0, 100.0, 1000.0])
@pytest.mark.parametrize("mean", [0.5, 6.0, 500.0])
def test_the_outlook_is_that_of_the_rate(hours: float, mean: float) -> None:
    stays, lived = pool("a", 1.0, mean).outlook(hours * HOUR)
    assert stays == pytest.approx(math.exp(-hours / mean), abs=1e-9)
    assert lived == pytest.approx(-math.expm1(-hours / mean) * mean / hours, rel=1e-5)


@given(
    shares=st.lists(st.floats(0.0, 1.0), min_size=len(LASTS_HOURS), max_size=len(LASTS_HOURS)),
    run=st.floats(0.0, 1e7),
)
def test_any_curve_has_an_outlook(shares: list[float], run: float) -> None:
    stays, lived = SpotPool(key="a", usd_per_hour=1.0, lasts=tuple(shares)).outlook(run)
    assert 0.0 <= stays <= lived + 1e-9 <= 1.0 + 2e-9


def test_lives_are_those_of_the_pool_that_is_taken_first() -> None:
    seconds = np.geomspace(1.0, 1000.0 * HOUR, 40)
    early, late = pool("a", 1.0, 3.0), pool("b", 1.0, 300.0)
    stays = [early.outlook(each)[0] for each in seconds]
    assert lives_of((early, late), seconds) == pytest.approx(stays, abs=1e-9)
    assert lives_of((late,), seconds) == pytest.approx(np.exp(-seconds / HOUR / 300.0), abs=1e-9)
    crossing = SpotPool(key="c", usd_per_hour=1.0, lasts=(0.5,) * len(LASTS_HOURS))
    least = np.minimum(lives_of((late,), seconds), lives_of((crossing,), seconds))
    assert lives_of((late, crossing), seconds) == pytest.approx(least)


def test_one_try_costs_what_a_simulation_says() -> None:
    """The expected cost in the rule, against lives drawn at random."""
    run, mean, usd, on_demand = 4.0, 30.0, 0.5, 1.0
    lives = np.random.default_rng(1).exponential(mean, 200_000)
    taken = lives < run
    cost = np.where(taken, lives * usd + LOST * on_demand * lives + on_demand * run, run * usd).mean() / run
    flaky = pool("flaky", usd, mean)
    # beside a pool that is never taken, whose cost and money are its price
    for factor, best in ((1.06, "flaky"), (0.94, "steady")):
        steady = pool("steady", factor * cost, 1e9)
        assert [found.key for found in pools_for_run([flaky, steady], run * HOUR, on_demand, 1)] == [best]


@pytest.mark.parametrize("at_risk", [0.2, 1.0, 3.0])
def test_one_try_with_checkpoints_costs_what_a_simulation_says(at_risk: float) -> None:
    """Work is kept up to the last checkpoint, so that little more than the rest is done on-demand."""
    run, mean, usd, on_demand = 4.0, 30.0, 0.5, 1.0
    lives = np.random.default_rng(1).exponential(mean, 200_000)
    lost = np.minimum(lives, at_risk)
    after = on_demand * (run - lives + lost) + LOST * on_demand * lost
    cost = np.where(lives < run, lives * usd + after, run * usd).mean() / run
    flaky = pool("flaky", usd, mean)
    # beside a pool that is never taken, whose cost is its price
    for factor, best in ((1.06, "flaky"), (0.94, "steady")):
        steady = pool("steady", factor * cost, 1e9)
        chosen = pools_for_run([flaky, steady], run * HOUR, on_demand, 1, at_risk * HOUR)
        assert [found.key for found in chosen] == [best]


def test_a_long_run_with_checkpoints_goes_where_one_without_would_not() -> None:
    flaky = pool("a", 0.3, 3.0)
    assert pools_for_run([flaky], 48 * HOUR, 1.0, 20) == ()
    assert pools_for_run([flaky], 48 * HOUR, 1.0, 20, 0.2 * HOUR) == (flaky,)
    assert rounds_for_run([flaky], 48 * HOUR, 1.0, 20, 0.2 * HOUR) == ((flaky,),)
    assert pools_for_run([flaky], 48 * HOUR, 1.0, 20, 3.0 * HOUR) == ()  # none is written in time
    assert pools_for_run([flaky], 0.1 * HOUR, 1.0, 2, 5.0 * HOUR) == pools_for_run(
        [flaky], 0.1 * HOUR, 1.0, 2
    )


def test_no_choice_is_much_dearer_than_the_lowest_price() -> None:
    """The expected money in the rule, against lives drawn at random, where lost work alone would decide."""
    run, mean, usd, on_demand = 4.0, 6.0, 0.2, 1.0
    lives = np.random.default_rng(1).exponential(mean, 200_000)
    money = np.where(lives < run, lives * usd + on_demand * run, run * usd).mean() / run
    flaky = pool("flaky", usd, mean)
    for factor, best in ((0.99, "steady"), (1.01, "flaky")):
        steady = pool("steady", factor * (1.0 + DEARER) * money, 1e9)
        assert [found.key for found in pools_for_run([flaky, steady], run * HOUR, on_demand, 1)] == [best]


def test_short_runs_go_where_it_is_cheap_and_long_ones_where_it_lasts() -> None:
    cheap, lasting = pool("cheap", 0.20, 12.0), pool("lasting", 0.30, 500.0)
    both = [cheap, lasting]
    assert pools_for_run(both, 0.5 * HOUR, 1.0, 2)[0].key == "cheap"
    assert [found.key for found in pools_for_run(both, 12 * HOUR, 1.0, 2)] == ["lasting"]


def test_what_is_likely_to_be_lost_goes_on_demand_and_so_does_the_last_try() -> None:
    flaky = pool("a", 0.3, 3.0)
    assert pools_for_run([flaky], 0.5 * HOUR, 1.0, 2) == (flaky,)
    assert pools_for_run([flaky], 12 * HOUR, 1.0, 2) == ()
    assert pools_for_run([pool("a", 0.3, 6.0)], 6 * HOUR, 1.0, 2)  # on-demand would be too dear
    assert pools_for_run([flaky], 0.5 * HOUR, 1.0, 0) == ()
    assert pools_for_run([], HOUR, 1.0, 2) == ()
    assert pools_for_run([pool("a", 1.0, 1e6)], HOUR, 1.0, 2) == ()  # no cheaper than on-demand


def test_of_pools_with_the_same_price_the_one_that_lasts_is_the_measure_of_too_dear() -> None:
    """By the other one, on-demand would not be too dear, and a run that costs half on spot would go there."""
    lasting, flaky = pool("a", 0.5, 6.0), pool("b", 0.5, 1.0)
    for offers in ([lasting, flaky], [flaky, lasting]):
        assert pools_for_run(offers, 3.0 * HOUR, 1.0, 1) == pools_for_run([lasting], 3.0 * HOUR, 1.0, 1)
    assert pools_for_run([lasting], 3.0 * HOUR, 1.0, 1) == (lasting,)


def test_the_next_round_is_what_is_chosen_where_those_before_have_no_room() -> None:
    best, near, dear, too_dear = (pool(str(usd), usd, 500.0) for usd in (0.2, 0.205, 0.5, 2.0))
    every = [dear, too_dear, near, best]
    assert rounds_for_run(every, HOUR, 1.0, 2) == ((best, near), (dear,))
    assert rounds_for_run([dear], HOUR, 1.0, 2) == (pools_for_run([dear], HOUR, 1.0, 2),)
    assert rounds_for_run(every, HOUR, 1.0, 0) == ()
    closed = structs.replace(best, is_open=False)
    assert rounds_for_run([dear, closed, near], HOUR, 1.0, 2) == ((near,), (dear,))


@given(
    pools=st.lists(st.tuples(st.floats(0.01, 2.0), st.floats(0.2, 1000.0)), min_size=1, max_size=8),
    hours=st.floats(0.1, 48.0),
    tries=st.integers(1, 3),
)
def test_all_that_are_as_good_are_found_best_first(
    pools: list[tuple[float, float]], hours: float, tries: int
) -> None:
    offers = [pool(str(number), *each) for number, each in enumerate(pools)]

    lowest = min(offers, key=lambda offer: (offer.usd_per_hour, -offer.outlook(hours * HOUR)[0]))

    def money(offer: SpotPool, after: float) -> float:
        stays, lived = offer.outlook(hours * HOUR)
        return offer.usd_per_hour * lived + (1.0 - stays) * after

    def most(left: int) -> float:
        return (1.0 + DEARER) * low(left)

    def low(left: int) -> float:
        return money(lowest, low(left - 1)) if left else 1.0

    def choice(offer: SpotPool, left: int) -> tuple[float, float]:
        stays, lived = offer.outlook(hours * HOUR)
        cost, after = best(left - 1)
        work = offer.usd_per_hour * lived + LOST * (lived - stays)
        return work + (1.0 - stays) * cost, money(offer, after)

    def best(left: int) -> tuple[float, float]:
        every = [(1.0, 1.0), *(choice(offer, left) for offer in offers)] if left else [(1.0, 1.0)]
        return min(each for each in every if not left or each[1] <= most(left) * (1.0 + 1e-12))

    found = [choice(offer, tries) for offer in pools_for_run(offers, hours * HOUR, 1.0, tries)]
    assert found == sorted(found)
    assert all(usd <= most(tries) + 1e-9 for _, usd in found)
    cost, usd = best(tries)
    if (cost, usd) == (1.0, 1.0):
        assert not found
    else:
        assert found[0] == pytest.approx((cost, usd))
        assert all(each <= (1.0 + NEAR) * cost + 1e-9 for each, _ in found)
        assert most(tries) < 1.0 or all(each <= 1.0 for each, _ in found)


def advised(run: float, *pools: SpotPool, **capacity: object) -> tuple[Capacity | None, str]:
    cloud = make_cloud(
        processors_per_node=4,
        nodes_total=9,
        on_demand_usd_per_core_hour=0.25,
        spot_usd_per_core_hour=0.1,
        spot_pools=pools,
    )
    advice = ask(
        make_job(),
        make_estimates(wait=1e6, run=run),
        settings=make_settings(capacity=capacity),
        cloud=cloud,
    )
    return advice.capacity, explanation(advice)


def test_question_four_goes_by_survival_once_it_is_known() -> None:
    lasting, flaky = pool("a", 0.4, 400.0), pool("b", 0.4, 4.0)
    assert advised(10 * HOUR)[0] is Capacity.ON_DEMAND  # a fixed limit: nothing is known
    assert advised(10 * HOUR, lasting)[0] is Capacity.SPOT
    assert advised(10 * HOUR, lasting, spot_by_survival=False)[0] is Capacity.ON_DEMAND
    assert advised(HOUR, flaky)[0] is Capacity.SPOT
    capacity, why = advised(10 * HOUR, flaky)
    assert capacity is Capacity.ON_DEMAND
    assert "because spot would cost more with what it is likely to lose" in why


def test_a_job_is_judged_by_the_pools_of_its_class() -> None:
    def kind(name: str, cores: int) -> NodeClassState:
        return NodeClassState(
            name=name,
            nodes_total=4,
            processors_per_node=cores,
            memory_mb_per_node=4000,
            spot_usd_per_hour=0.1,
            on_demand_usd_per_hour=0.1 * cores,
        )

    mid, big = pool("m", 0.1, 4.0, classes=("", "mid")), pool("b", 0.1, 4.0, classes=("big",))
    cloud = CloudState(classes=(kind("mid", 4), kind("big", 32)), spot_pools=(mid, big))
    assert cloud.for_job(make_job(processors=2)).spot_pools == (mid,)
    assert cloud.for_job(make_job(processors=32)).spot_pools == (big,)
