"""One choice by simulation, and what is remembered of it."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.decide.portfolio.portfolio import Budget, Worth
from advisor.decide.portfolio.portfolio_choice import AdaptivePeriod, Chooser, kinds_of, unless_champion
from advisor.simulate.portfolio.online import Situation, empty_jobs
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED
from advisor.simulate.portfolio.state import NODE, Rules

RULES = Rules(max_nodes=4, boot=60.0, tick=20.0, release=1, runtimes=1, checkpoint=3600.0)
POLICIES = PUBLISHED[:24]
BUDGET = Budget(policies=6)
WORTH = Worth(charged_seconds=36_000.0, slowdown_sum=20.0)


def queue(runs: list[float]) -> Situation:
    jobs = empty_jobs(len(runs))
    jobs["submit"], jobs["processors"] = -10.0, 1
    jobs["run"] = jobs["estimate"] = runs
    return Situation(now=0.0, profile=np.zeros(0, NODE), jobs=jobs)


def chooser(margin: float = 0.0) -> Chooser:
    return Chooser(POLICIES, RULES, margin=margin, hold_seconds=3600.0, seed=1)


def test_a_restart_goes_on_where_it_was() -> None:
    first = chooser()
    for runs in ([60.0] * 8, [7200.0] * 3, [60.0, 7200.0]):
        first.choose(queue(runs), WORTH, BUDGET, 0)
    second = chooser()
    assert second.remember(first.as_plain())
    assert second.as_plain() == first.as_plain()
    assert sum(first.as_plain()["chosen"]) == 3


@pytest.mark.parametrize(
    "spoilt",
    [
        {},
        {"smart": [0, 1], "stale": [], "poor": []},
        {"simulated": [0.0]},
    ],
)
def test_what_does_not_fit_is_not_believed(spoilt: dict[str, object]) -> None:
    fresh = chooser()
    before = fresh.as_plain()
    assert not fresh.remember({**before, **spoilt} if spoilt else {})
    assert fresh.as_plain() == before


def test_the_champion_stays_unless_enough_is_saved() -> None:
    situation = queue([60.0] * 8)
    free = chooser(0.0).choose(situation, WORTH, Budget(policies=24), 0)
    assert free.loss[free.applied] <= free.loss[0]
    bound = chooser(1.0).choose(situation, WORTH, Budget(policies=24), 0)
    assert bound.applied == 0
    assert set(bound.tried.tolist()) == set(range(24))


def test_the_sixty_are_twenty_kinds_of_three() -> None:
    """Renting and order make a kind; so do backfilling and warm nodes, of ours."""
    kinds = kinds_of(PUBLISHED + BEYOND)
    assert sorted(np.bincount(kinds[:60])[np.unique(kinds[:60])].tolist()) == [3] * 20
    pairs = {(policy.provisioning, policy.order) for policy in PUBLISHED}
    assert len(pairs) == len(set(kinds[:60].tolist())) == 20
    assert len(set(kinds.tolist())) == 20 + len(BEYOND)


@pytest.mark.parametrize(("margin", "applied"), [(0.0, 1), (0.05, 1), (0.2, 0)])
def test_champion_stays_unless_enough_is_saved(margin, applied):
    """Ten per cent saved."""
    assert unless_champion(np.array([1.0, 0.9]), 1, 0, margin) == applied


def test_equal_losses_leave_the_champion():
    assert unless_champion(np.array([1.0, 1.0]), 0, 1, 0.0) == 1


def test_period_doubles_while_nothing_changes():
    period = AdaptivePeriod()
    assert [period.after(policy) for policy in (3, 3, 3, 3, 3, 3, 7, 7)] == [
        20,
        40,
        80,
        160,
        320,
        320,
        20,
        40,
    ]
