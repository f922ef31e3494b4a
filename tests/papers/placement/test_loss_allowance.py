"""G18: what moved jobs may lose in all, whatever they were forecast and however many lose at once."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.papers.placement.record import LossAllowance, RuleTerms

SHARE = 0.01


def test_g18_a_job_that_still_waits_here_has_won_the_time_since_it_was_moved() -> None:
    allowance = LossAllowance(SHARE)
    assert allowance.left(0.0) == 0.0
    allowance.could_save(10_000.0)
    allowance.could_save(-5_000.0)
    assert allowance.left(0.0) == pytest.approx(100.0)
    allowance.moved("a", 50.0, 80.0)
    assert allowance.left(50.0) == pytest.approx(20.0)
    assert allowance.left(60.0) == pytest.approx(30.0)
    allowance.waited("a", 15.0)
    assert allowance.left(1e6) == pytest.approx(35.0)
    allowance.ran("a", 30.0)
    assert allowance.left(1e6) == pytest.approx(85.0), "100 and the 15 less 30 that the move brought"


class _Life(NamedTuple):
    """A job: seconds since the last submission, wait, run as a share of its limit, limit, slowdown less 1."""

    gap: float
    wait: float
    share: float
    limit: float
    slower: float


LIVES = st.lists(
    st.builds(
        _Life,
        gap=st.floats(0.0, 1e5),
        wait=st.one_of(st.just(0.0), st.floats(0.0, 1e6)),
        share=st.floats(0.01, 1.0),
        limit=st.floats(1.0, 1e5),
        slower=st.floats(0.0, 50.0),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(LIVES)
def test_g18_moves_never_cost_more_than_the_share_of_the_optimum(lives: list[_Life]) -> None:
    """Every job that may be staked is moved: the greediest rule there is, at every moment of every life."""
    allowance, now, saved, optimum = LossAllowance(SHARE), 0.0, 0.0, 0.0
    known: list[tuple[float, int, str, float]] = []
    for key, job in enumerate(lives):
        now += job.gap
        while known and known[0][0] <= now:
            _, who, what, seconds = heapq.heappop(known)
            if what == "waited":
                allowance.waited(who, seconds)
            elif what == "ran":
                allowance.ran(who, seconds)
            else:
                allowance.could_save(seconds)
        run = job.share * job.limit
        gain = job.wait - job.slower * run
        optimum += max(0.0, gain)
        heapq.heappush(known, (now + job.wait + run, key, "ended", gain))
        worst = job.slower * job.limit
        if worst <= allowance.left(now):
            saved += gain
            allowance.moved(key, now, worst)
            heapq.heappush(known, (now + job.wait, key, "waited", job.wait))
            heapq.heappush(known, (now + (1.0 + job.slower) * run, key, "ran", job.slower * run))
        assert saved >= -SHARE * optimum - 1e-6 * (1.0 + optimum + now)


def test_the_default_is_a_hundredth() -> None:
    assert RuleTerms().loss_share == SHARE
