"""What may happen to the money of a site, for hypothesis to choose from."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from advisor.model.advice import Capacity
from tests.service.money_events import Asked
from tests.service.money_world import Action


def _action(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Action]:
    return st.tuples(st.just(name), *arguments)


def _one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


_SHORT = (60.0, 300.0)
_LONG = (1500.0, 1500.0)
_RAISED = (1500.0, 300.0)
"""Seconds a job runs, and its limit: it needs the limit that its advice gives it in the cloud."""


def _job(*seconds: tuple[float, float], requeue: tuple[bool, ...] = (True, True, False)) -> Any:
    parts = (
        _one_of(1, 2, 4, 4, 8),
        _one_of(1, 1, 2, 3, 12),
        _one_of("chem", "chem", "bio"),
        _one_of("ann", "bob"),
        _one_of(*requeue),
    )
    return st.builds(lambda both, *rest: Asked(*both, *rest), _one_of(*seconds), *parts)


def _send(
    *seconds: tuple[float, float], requeue: tuple[bool, ...] = (True, True, False), given: float = 0.0
) -> st.SearchStrategy[Action]:
    return _action(
        "send",
        _job(*seconds, requeue=requeue),
        _one_of(Capacity.SPOT, Capacity.ON_DEMAND),
        _one_of(0.0, 0.0, 0.0, 300.0),
        st.just(given),
    )


SUBMIT = _action("submit", _job(_SHORT, _LONG, (600.0, 600.0), (900.0, 1800.0)))
SEND = _send(_SHORT, (300.0, 300.0), (600.0, 600.0), _LONG, (120.0, 1800.0))
SEND_SHORT = _send(_SHORT)
SEND_LONG = _send(_LONG)
SEND_ONCE = _send(_LONG, requeue=(False,))
SEND_RAISED = _send(_RAISED, given=1800.0)
LIVE = _action("live", _one_of(5.0, 10.0, 60.0, 200.0, 200.0, 600.0, 1200.0))
RAISE = _action("raise_limit", st.integers(0, 3), _one_of(300.0, 1200.0))
REQUEUE = _action("requeue", st.integers(0, 3))
CANCEL = _action("cancel", st.integers(0, 3))
RECLAIM = _action("reclaim", st.integers(0, 3), _one_of(0.0, 120.0))
CRASH = _action("crash", st.integers(1, 30))
RESTART = _action("restart")
TURN = _action("turn")

_USD = st.integers(4, 50).map(lambda tenths: tenths / 10.0)


def _budgets_of(*names: tuple[str, ...]) -> st.SearchStrategy[dict[str, float]]:
    return st.one_of(*(st.fixed_dictionaries(dict.fromkeys(each, _USD)) for each in names))


BUDGETS = st.fixed_dictionaries(
    {
        "usd": _USD,
        "period": st.just("day"),
        "accounts": _budgets_of((), ("chem",), ("chem", "*")),
        "users": _budgets_of((), ("*",), ("ann",)),
        "carry_over": st.booleans(),
    }
)
SET_BUDGET = _action("set_budget", BUDGETS)

_WEIGHTS = (
    (SUBMIT, 3), (SEND, 3), (SEND_SHORT, 2), (SEND_LONG, 2), (SEND_ONCE, 1), (SEND_RAISED, 1), (LIVE, 9),
    (RAISE, 1), (REQUEUE, 1), (CANCEL, 1), (RECLAIM, 1), (CRASH, 1), (RESTART, 1), (TURN, 1), (SET_BUDGET, 1),
)  # fmt: skip
EVERYTHING = tuple(kind for kind, weight in _WEIGHTS for _ in range(weight))

WORLDS = st.fixed_dictionaries(
    {
        "budget": BUDGETS,
        "hour": _one_of(0.01, 12.0, 23.7),
        "idle_seconds": _one_of(60.0, 600.0, 1800.0),
        "is_shared": st.booleans(),
    }
)


def money_stories(*kinds: st.SearchStrategy[Action]) -> st.SearchStrategy[list[Action]]:
    """Lists of actions of some kinds, or of all."""
    # one_of would count a kind once, however often it is named
    action = st.sampled_from(kinds or EVERYTHING).flatmap(lambda kind: kind)
    return st.lists(action, min_size=4, max_size=16)
