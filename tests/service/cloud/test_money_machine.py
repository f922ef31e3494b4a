"""Stories of a site's money: EC2 never charges more than the budgets, whatever happens.

All of `advisor serve` and `advisor control` runs: the price, slices, kept places, raised limits; nodes are
shared.
Other stories, and more of them: ``ADVISOR_STORIES=2000 pytest tests/service/cloud/test_money_machine.py``.
Each guard of the budgets that is taken away is noticed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, seed

from advisor.model.advice import Capacity
from advisor.model.job import payers_of
from advisor.model.periods import is_user
from advisor.service.cloud import bookkeeping
from advisor.service.cloud.bookkeeping import Bookkeeping
from advisor.service.cloud.budget_guard import BudgetGuard
from advisor.service.cloud.reckoning import Reckoning
from advisor.service.observation import advice_of_jobs
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.budget_limits import Books
from advisor.service.state.budget_records import Promise
from tests.service.cloud.test_machine import options
from tests.service.money_events import Asked
from tests.service.money_stories import WORLDS, money_stories
from tests.service.money_world import Action, tell_money

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch
STORIES = int(os.environ.get("ADVISOR_STORIES", "16"))


def test_whatever_happens_to_the_money() -> None:
    @seed(0 if "ADVISOR_STORIES" not in os.environ else int.from_bytes(os.urandom(4)))
    @options(STORIES)
    @given(story=money_stories(), world=WORLDS)
    def happens(story: list[Action], world: Mapping[str, Any]) -> None:
        tell_money(story, **world)

    happens()


def the_cap_is_not_asked_at_the_launch(patch: Patch) -> None:
    patch.setattr(BudgetGuard, "put_aside", lambda *_, **__: {})


def idle_time_is_free(patch: Patch) -> None:
    patch.setattr(Reckoning, "idle_seconds", property(lambda _self: 0.0))


def idle_nodes_are_free_once_their_jobs_have_ended(patch: Patch) -> None:
    original = bookkeeping.running_nodes

    def running_nodes(*arguments: Any, **more: Any) -> Any:
        found = original(*arguments, **more)
        return [replace(item, left_usd=item.left_usd and 0.0) if not item.shares else item for item in found]

    patch.setattr(bookkeeping, "running_nodes", running_nodes)


def jobs_that_begin_on_nodes_that_are_up_are_in_no_book_until_the_next_count(patch: Patch) -> None:
    patch.setattr(Bookkeeping, "renew", lambda _self, _listed: None)


def a_limit_counts_once_it_is_raised(patch: Patch) -> None:
    patch.setattr(advice_of_jobs, "limit_there", lambda job, _moved: job.requested_time)


def a_shared_node_is_the_largest_payer_s(patch: Patch) -> None:
    def by_payer(self: Promise) -> dict[str, float]:
        if not self.shares:
            return dict.fromkeys(payers_of(self.account, self.user), 1.0)
        kinds = [[name for name in self.shares if is_user(name) is kind] for kind in (False, True)]
        return {max(names, key=lambda name: self.shares[name]): 1.0 for names in kinds if names}

    patch.setattr(Promise, "by_payer", property(by_payer))


def a_raise_is_carried_over_as_well(patch: Patch) -> None:
    original = SpendingBudget._books

    def books(self: SpendingBudget) -> Books:
        found = original(self)
        found.given = None
        return found

    patch.setattr(SpendingBudget, "_books", books)


def waiting_jobs_that_too_little_is_left_for_may_begin(patch: Patch) -> None:
    patch.setattr(BudgetGuard, "_too_dear", lambda *_: set())


def _send(
    seconds: float,
    limit: float,
    cores: int,
    tasks: int,
    account: str = "chem",
    *,
    again: bool = True,
    given: float = 0.0,
) -> Action:
    job = Asked(seconds, limit, cores, tasks, account, may_requeue=again)
    return ("send", job, Capacity.ON_DEMAND, 0.0, given)


def _world(usd: float, *, idle: float = 60.0, shared: bool = False, **budget: Any) -> dict[str, Any]:
    whole = {"usd": usd, "period": "day", "accounts": {}, "users": {}, "carry_over": False} | budget
    return {"budget": whole, "hour": 12.0, "idle_seconds": idle, "is_shared": shared}


GUARDS: tuple[tuple[Callable[[Patch], None], list[Action], dict[str, Any]], ...] = (
    (the_cap_is_not_asked_at_the_launch, [_send(1500.0, 1500.0, 4, 3)], _world(2.0)),
    (idle_time_is_free, [_send(300.0, 300.0, 4, 4)], _world(4.0, idle=1800.0)),
    (
        idle_nodes_are_free_once_their_jobs_have_ended,
        [_send(60.0, 300.0, 4, 3), ("live", 200.0), _send(1500.0, 1500.0, 4, 12, again=False)],
        _world(11.0, idle=1800.0),
    ),
    (
        jobs_that_begin_on_nodes_that_are_up_are_in_no_book_until_the_next_count,
        [_send(60.0, 300.0, 4, 1), ("live", 200.0), _send(1500.0, 1500.0, 4, 3), ("live", 10.0)],
        _world(2.9, idle=300.0),
    ),
    (a_limit_counts_once_it_is_raised, [_send(1500.0, 300.0, 4, 3, given=1800.0)], _world(2.5)),
    (
        a_shared_node_is_the_largest_payer_s,
        [
            _send(1500.0, 1500.0, 2, 1, "bio"),
            _send(1500.0, 1500.0, 1, 1),
            ("live", 200.0),
            _send(600.0, 600.0, 4, 1),
        ],
        _world(50.0, shared=True, accounts={"chem": 1.1}) | {"is_strict": True},
    ),
    (
        a_raise_is_carried_over_as_well,
        [("turn",), ("set_budget", _world(4.0, carry_over=True)["budget"]), _send(1500.0, 1500.0, 4, 12)],
        _world(1.0, carry_over=True),
    ),
    (
        waiting_jobs_that_too_little_is_left_for_may_begin,
        [_send(60.0, 300.0, 8, 2), ("live", 60.0), _send(1500.0, 1500.0, 8, 12)],
        _world(2.6),
    ),
)


@pytest.mark.parametrize(("remove", "story", "world"), GUARDS, ids=[one.__name__ for one, *_ in GUARDS])
def test_each_guard_is_missed(
    remove: Callable[[Patch], None], story: list[Action], world: dict[str, Any], monkeypatch: Patch
) -> None:
    tell_money(story, **world)
    remove(monkeypatch)
    with pytest.raises(AssertionError, match=r"EC2 has charged|at a launch"):
        tell_money(story, **world)
