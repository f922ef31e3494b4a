"""The price of time follows demand and money."""

from __future__ import annotations

import pytest

from advisor.decide.price.demand_price import DemandPrice, Pace
from advisor.decide.price.tokens import DAY, Tokens

PACE = Pace(reserve_days=2.0, window_days=10.0, hours=1.0)
PER_DAY = 100.0
RESERVE = PACE.reserve_days * PER_DAY


def of_days(days: int) -> DemandPrice:
    """Each day brings slices of 50 core-seconds that save 1, 2, 4 and 8 seconds a core-second."""
    price = DemandPrice(PACE, 0.0)
    for day in range(days):
        for index in (1.0, 2.0, 4.0, 8.0):
            price.note((day, index), index=index, cost=50.0, now=(day + 0.5) * DAY)
    return price


def test_the_price_lets_through_what_accrues() -> None:
    held = PACE.reserve_days * PER_DAY
    assert of_days(10).price(10.0 * DAY, held=held, reserve=RESERVE, per_day=PER_DAY) in {2.0, 4.0}


def test_more_money_lowers_the_price_and_less_raises_it() -> None:
    def price(held: float) -> float:
        return of_days(10).price(10.0 * DAY, held=held, reserve=RESERVE, per_day=PER_DAY)

    assert price(0.0) >= price(200.0) >= price(1_500.0)
    assert price(1_500.0) < price(0.0)


def test_without_enough_demand_even_the_least_slice_is_bought() -> None:
    assert of_days(10).price(10.0 * DAY, held=1e9, reserve=RESERVE, per_day=PER_DAY) < 1.0


def test_the_reading_holds_until_the_next_one() -> None:
    price, held = of_days(10), PACE.reserve_days * PER_DAY
    first = price.price(10.0 * DAY, held=held, reserve=RESERVE, per_day=PER_DAY)
    price.note("new", index=16.0, cost=5_000.0, now=10.0 * DAY)
    assert price.price(10.0 * DAY + 1_800.0, held=held, reserve=RESERVE, per_day=PER_DAY) == first
    assert price.price(10.0 * DAY + 3_700.0, held=held, reserve=RESERVE, per_day=PER_DAY) == 16.0


def test_the_price_follows_the_tokens_at_once() -> None:
    price, reserve = of_days(10), PACE.reserve_days * PER_DAY
    first = price.price(10.0 * DAY, held=reserve, reserve=RESERVE, per_day=PER_DAY)
    later = 10.0 * DAY + 60.0
    assert price.price(later, held=reserve / 4.0, reserve=RESERVE, per_day=PER_DAY) == 4.0 * first
    assert price.price(later, held=4.0 * reserve, reserve=RESERVE, per_day=PER_DAY) == first / 4.0
    nothing_held = price.price(later, held=-5.0, reserve=RESERVE, per_day=PER_DAY)
    assert nothing_held == price.price(later, held=0.0, reserve=RESERVE, per_day=PER_DAY) == 20.0 * first


def test_the_price_compares_what_is_held_with_what_should_be() -> None:
    price, reserve = of_days(10), PACE.reserve_days * PER_DAY
    first = price.price(10.0 * DAY, held=reserve, reserve=RESERVE, per_day=PER_DAY)
    assert price.price(10.0 * DAY, held=reserve + 500.0, reserve=reserve + 500.0, per_day=PER_DAY) == first
    assert price.price(10.0 * DAY, held=reserve, reserve=4.0 * reserve, per_day=PER_DAY) == 4.0 * first


def test_old_demand_is_forgotten() -> None:
    price = of_days(1)
    price.note("new", index=16.0, cost=50.0, now=40.0 * DAY)
    held = PACE.reserve_days * PER_DAY
    assert (
        price.price(40.0 * DAY, held=held, reserve=RESERVE, per_day=PER_DAY) == 0.04
    )  # a 400th of the only slice left


def test_a_slice_counts_once_at_its_best_moment() -> None:
    price = DemandPrice(PACE, 0.0)
    for index in (1.0, 3.0, 2.0):
        price.note("job", index=index, cost=1_000.0, now=DAY)
    assert price.price(DAY, held=PACE.reserve_days * PER_DAY, reserve=RESERVE, per_day=PER_DAY) == 3.0


def test_before_any_demand_the_first_price_holds() -> None:
    price = DemandPrice(PACE, 0.0)
    assert price.price(0.0, held=2.0, reserve=2.0, per_day=1.0) == PACE.first_price


def test_a_kept_price_goes_on() -> None:
    price = of_days(5)
    price.price(5.0 * DAY, held=0.0, reserve=RESERVE, per_day=PER_DAY)
    again = DemandPrice(PACE, 0.0)
    again.take_up(price.kept())
    later = 5.0 * DAY + 7_200.0
    tokens = {"held": 10.0, "reserve": RESERVE, "per_day": PER_DAY}
    assert again.price(later, **tokens) == price.price(later, **tokens)


def test_tokens_accrue_are_committed_and_settled() -> None:
    tokens = Tokens(1.0, time=0.0, until=100.0, max_days=1.0)
    assert not tokens.commit("a", 1.0)
    tokens.accrue(50.0)
    assert tokens.commit("a", 40.0)
    assert (tokens.held, tokens.committed) == (10.0, 40.0)
    tokens.settle("a", 15.0)
    assert (tokens.held, tokens.spent, tokens.committed) == (35.0, 15.0, 0.0)
    tokens.accrue(1e6)
    assert tokens.held == 85.0  # nothing accrues after 100


def test_tokens_lapse_beyond_what_may_be_kept() -> None:
    tokens = Tokens(1.0, time=0.0, max_days=2.0)
    tokens.accrue(30.0 * DAY)
    assert tokens.held == 2.0 * DAY


def test_tokens_are_there_ahead_and_all_that_is_spent_stays_within_the_budget() -> None:
    tokens = Tokens(1.0, time=0.0, until=4.0 * DAY)
    tokens.lend(3.0)
    assert tokens.held == tokens.ahead == 3.0 * DAY
    assert tokens.commit("a", 3.0 * DAY)
    tokens.settle("a", 3.0 * DAY)
    tokens.accrue(DAY)
    assert tokens.held == DAY
    assert tokens.commit("b", DAY)
    tokens.settle("b", DAY)
    tokens.accrue(4.0 * DAY)
    assert (tokens.held, tokens.ahead, tokens.spent) == (0.0, 0.0, 4.0 * DAY)


def test_tokens_that_are_no_longer_ahead_are_repaid_first() -> None:
    tokens = Tokens(1.0, time=0.0)
    tokens.lend(2.0)
    assert tokens.commit("a", DAY)
    tokens.settle("a", DAY)
    tokens.lend(0.0)
    assert tokens.held == -DAY
    assert not tokens.commit("b", 1.0)
    tokens.accrue(2.0 * DAY)
    assert tokens.held == DAY


def test_no_more_days_are_there_ahead_than_demand_is_known_for_and_none_where_money_is_plenty() -> None:
    price = of_days(3)
    assert price.days_ahead(3.0 * DAY, 30.0) == 0.0  # nothing is read yet
    price.price(3.0 * DAY, held=0.0, reserve=RESERVE, per_day=PER_DAY)
    assert price.days_ahead(3.0 * DAY, 30.0) == 3.0
    assert price.days_ahead(20.0 * DAY, 30.0) == 10.0
    assert price.days_ahead(20.0 * DAY, 7.0) == pytest.approx(7.0 / 3.0)
    again = DemandPrice(PACE, 0.0)
    again.take_up(price.kept())
    assert again.days_ahead(20.0 * DAY, 30.0) == 10.0
    price.price(4.0 * DAY, held=0.0, reserve=RESERVE, per_day=1_000.0)
    assert price.days_ahead(20.0 * DAY, 30.0) == 0.0
