"""The price of a core-second: what is left lasts to the end of the period."""

from __future__ import annotations

import numpy as np

from advisor.papers.placement.hedging import PRICES
from advisor.papers.placement.pacing import MIN_KNOWN, REMEMBERED, Pacer

LAST = len(PRICES) - 1


def cost_of(size: float) -> np.ndarray:
    """A job that costs less the higher the price is, and nothing at the last."""
    return size / (1.0 + PRICES)


def taught(size: float = 10.0, jobs: int = 1_000) -> Pacer:
    """A job a second."""
    pacer = Pacer()
    for second in range(jobs):
        pacer.remember(float(second), cost_of(size))
    return pacer


def test_too_few_jobs_make_no_price() -> None:
    assert taught(jobs=MIN_KNOWN - 1).level(1e3, 1e9, 1e5) is None
    assert taught(jobs=MIN_KNOWN).level(1e3, 1e9, 1e5) == 0


def test_the_lowest_price_at_which_what_is_left_lasts() -> None:
    """10 core-seconds a second at price 0; half of that is left for each second to come."""
    level = taught().level(1_000.0, 5.0 * 1e5, 1e5)
    assert level == int(np.flatnonzero(10.0 / (1.0 + PRICES) <= 5.0)[0])


def test_what_was_spent_too_fast_makes_the_rest_dearer_and_what_is_left_over_cheaper() -> None:
    pacer = taught()
    levels = [pacer.level(1_000.0, unspent, 1e5) for unspent in (1e6, 5e5, 1e5, 1e3, 0.0, -5.0)]
    assert levels == sorted(levels)
    assert levels[0] == 0
    assert levels[-2:] == [LAST, LAST]


def test_the_end_of_a_period_is_no_reason_to_spend_all_at_once() -> None:
    assert taught().level(1_000.0, 3_600.0, 1.0) == taught().level(1_000.0, 3_600.0, 3_600.0)


def test_only_the_newest_jobs_are_remembered() -> None:
    pacer = taught(1e6, 50)
    for second in range(REMEMBERED):
        pacer.remember(1e6 + second, cost_of(1.0))
    assert pacer.known == REMEMBERED
    assert pacer.level(1e6 + REMEMBERED, 1e6, 1e5) == 0
