"""One choice of a policy by simulation: Algorithm 1 on the present queue, compared with the champion.

The replay of a log and the live loop both use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.decide.portfolio.portfolio import Budget, TimeConstrainedSelector, Worth
from advisor.simulate.portfolio.online import OnlineSimulator, Situation
from advisor.simulate.portfolio.policies import NodeChoice, RentingPolicy
from advisor.simulate.portfolio.state import Rules


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """The result of a choice; policies by index.

    Attributes:
        loss: Share of the utility that each plan costs; NaN where not simulated.
    """

    applied: int
    best: int
    tried: NDArray[np.int64]
    loss: Floats


@dataclass(slots=True, kw_only=True)
class AdaptivePeriod:
    """How long a choice holds while the workload does not change (the paper's future work).

    The period doubles when the same policy is chosen again and falls back to ``min_seconds`` when another is.
    The cluster chooses earlier when a tenth of the queue has changed.
    """

    min_seconds: float = 20.0
    max_seconds: float = 320.0
    _seconds: float = 20.0
    _last: int = -1

    def after(self, chosen: int) -> float:
        """Seconds until the next choice."""
        self._seconds = min(2 * self._seconds, self.max_seconds) if chosen == self._last else self.min_seconds
        self._last = chosen
        return self._seconds


def unless_champion(loss: Floats, best: int, champion: int, margin: float) -> int:
    """The best policy, or the champion where it is hardly worse.

    Args:
        loss: Loss of each policy when the champion follows it.
        margin: Share of the champion's loss that must be saved. The simulation knows neither later arrivals
            nor, in most cases, true run times, so smaller savings are not trusted.
    """
    saved = loss[champion] - loss[best]
    return best if saved > margin * abs(loss[champion]) else champion


class Chooser:
    """Chooses by simulating policies on a situation.

    Args:
        margin: Share of the champion's loss that must be saved; see :func:`unless_champion`.
        hold_seconds: Each policy is judged by following it for so long, and the champion afterwards.
    """

    def __init__(
        self,
        policies: Sequence[RentingPolicy],
        rules: Rules,
        *,
        margin: float,
        hold_seconds: float,
        seed: int,
    ) -> None:
        self.margin = margin
        self._hold_seconds = hold_seconds
        self._simulator = OnlineSimulator(policies, rules)
        self._selector = TimeConstrainedSelector(kinds_of(policies), np.random.default_rng(seed))

    def choose(self, situation: Situation, worth: Worth, budget: Budget, champion: int) -> Choice:
        """Simulate within the budget, and compare with the champion."""
        everyone = np.arange(self._selector.count)

        def simulate(chosen: NDArray[np.int64]) -> Floats:
            outcomes = self._simulator.simulate(situation, chosen, champion, self._hold_seconds)
            if len(chosen) == len(everyone):
                return worth.loss(outcomes)
            outcomes, known = self._simulator.same_plan()
            return np.where(known | np.isin(everyone, chosen), worth.loss(outcomes), np.nan)

        best, tried, loss = self._selector.choose(simulate, budget, champion, jobs=len(situation.jobs))
        return Choice(
            applied=unless_champion(loss, best, champion, self.margin), best=best, tried=tried, loss=loss
        )

    def as_plain(self) -> dict[str, Any]:
        """Past choices, for the state file."""
        selector = self._selector
        reflections = selector.reflections
        return {
            **{name: list(getattr(selector, name)) for name in _SETS},
            **{name: getattr(reflections, name).tolist() for name in _SUMS},
        }

    def remember(self, plain: Mapping[str, Any]) -> bool:
        """Restore past choices; False, with nothing changed, where they are of another portfolio."""
        selector = self._selector
        places = [place for name in _SETS for place in plain.get(name, ())]
        lengths = {len(plain.get(name, ())) for name in _SUMS}
        if sorted(places) != list(range(selector.count)) or lengths != {selector.count}:
            return False
        for name in _SETS:
            setattr(selector, name, list(plain[name]))
        for name in _SUMS:
            getattr(selector.reflections, name)[:] = plain[name]
        return True


def kinds_of(policies: Sequence[RentingPolicy]) -> NDArray[np.int64]:
    """Kind of each policy, shape (n,): policies of one kind differ only in the choice of nodes."""
    kinds = [replace(policy, choice=NodeChoice.FIRST) for policy in policies]
    return np.array([kinds.index(kind) for kind in kinds], np.int64)


_SETS = ("smart", "stale", "poor")
_SUMS = ("simulated", "chosen", "behind")
