"""The price of a core-second: kept budgets, by hand and on drifting loads."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.decide.hedging import PRICES
from advisor.decide.pacing import REMEMBERED, REVIEWED, Pacer

LAST = len(PRICES) - 1


def cost_of(size: float) -> np.ndarray:
    """A job that costs less the higher the price is, and nothing at the last."""
    return size / (1.0 + PRICES)


def test_without_history_nobody_is_hedged() -> None:
    assert Pacer(1.0).level() == LAST


def test_the_lowest_price_at_which_the_past_would_have_kept_to_the_budget() -> None:
    pacer = Pacer(0.5)
    for _ in range(REVIEWED):
        pacer.remember(cost_of(10.0), 10.0, 10.0)
    assert pacer.level() == int(np.flatnonzero(1.0 / (1.0 + PRICES) <= 0.5)[0])


def test_spending_too_much_raises_the_price_and_leftovers_lower_it_a_little() -> None:
    pacer = Pacer(1.0)
    for _ in range(REVIEWED):
        pacer.remember(cost_of(20.0), 10.0, 10.0)
    calm = pacer.level()
    pacer.spend(40.0)
    assert pacer.overspent == pytest.approx(40.0 / (10.0 * REVIEWED))
    assert pacer.level() > calm
    pacer.spend(-1e6)
    cheap = pacer.level()
    assert 0 <= calm - cheap <= 6  # exp(-0.5) is between five and six steps of a tenth of a decade... at most


def test_the_budget_grows_with_forecasts_and_then_with_truth() -> None:
    pacer = Pacer(2.0)
    for _ in range(REVIEWED):
        pacer.remember(cost_of(1.0), 10.0, 5.0)  # forecasts are half of the truth: they count double
    pacer.level()
    pacer.submitted("a", 3.0)
    pacer.spend(12.0)
    assert pacer.overspent == pytest.approx(0.0)
    pacer.ended("a", 4.0)
    assert pacer.overspent == pytest.approx((12.0 - 2 * 4.0) / (2 * 10.0 * REVIEWED))


def test_only_the_newest_jobs_are_remembered() -> None:
    pacer = Pacer(1.0)
    for _ in range(50):
        pacer.remember(cost_of(1e6), 0.0, 0.0)
    for _ in range(REMEMBERED):
        pacer.remember(cost_of(1.0), 1.0, 1.0)
    assert PRICES[pacer.level()] < 1e-4


@pytest.mark.parametrize("drift", [0.2, 1.0, 5.0])
def test_the_budget_is_kept_when_hedges_suddenly_cost_more_or_less(drift: float) -> None:
    generator = np.random.default_rng(3)
    pacer, spent, allowed = Pacer(1.0), 0.0, 0.0
    for job in range(9_000):
        size = float(generator.lognormal(0.0, 1.0))
        cost = cost_of(2.0 * size * (drift if job >= 5_000 else 1.0))
        if job >= 5_000:
            pacer.submitted(job, size)
            paid = float(cost[pacer.level()])
            pacer.spend(paid)
            spent, allowed = spent + paid, allowed + size
            pacer.ended(job, size)
        pacer.remember(cost, size, size)
    assert spent <= 1.1 * allowed
    if drift >= 1.0:
        assert spent >= 0.85 * allowed


def test_what_was_remembered_is_taken_up_again() -> None:
    pacer = Pacer(0.5)
    for size in range(1, 2 * REVIEWED):
        pacer.remember(cost_of(float(size)), 10.0, 7.0)
    again = Pacer(0.5)
    again.take_up(pacer.to_arrays())
    assert (again.level(), again.known) == (pacer.level(), pacer.known)
    assert Pacer(0.5).to_arrays()["cost"].shape == (0, len(PRICES))


@pytest.mark.parametrize("damage", ["cost", "optimal"])
def test_what_is_damaged_is_not_taken_up(damage: str) -> None:
    pacer = Pacer(0.5)
    pacer.remember(cost_of(1.0), 1.0, 1.0)
    arrays = pacer.to_arrays()
    for wrong in (arrays[damage][:, :1], np.full_like(arrays[damage], np.nan)):
        with pytest.raises(ValueError, match=r"its arrays|numbers"):
            Pacer(0.5).take_up(arrays | {damage: wrong})


def test_who_is_gone_leaves_the_budget() -> None:
    pacer = Pacer(1.0)
    pacer.remember(cost_of(1.0), 10.0, 10.0)
    pacer.submitted("a", 4.0)
    pacer.withdrawn("a")
    pacer.withdrawn("a")
    assert pacer.overspent == 0.0
