"""Algorithm 1 of Deng et al.: simulate as many policies as time allows, and choose the one of least loss.

The portfolio loop and replays choose so, by :mod:`advisor.decide.portfolio.portfolio_choice`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.simulate.portfolio.online import Outcomes

SMART_SHARE: Final = 0.6
"""lambda of section 4: share of the simulated policies that become smart."""
SMART_QUOTA: Final = 0.7
STALE_QUOTA: Final = 0.15
"""Shares of the budget for smart and stale policies; poor ones get the rest. The paper counts policies."""

_FIRST_CHARGED_SECONDS: Final = 36_000.0
_FIRST_SLOWDOWN_SUM: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Weights of charged time and slowdown in the utility: the totals so far and the exponents.

    The utility (R_J / R_V)^alpha (1 / BSD)^beta of a long run loses the share ``alpha x charged / R_V`` by
    time charged and ``beta x slowdown / sum of slowdowns`` by a job's slowdown. A queue's own utility, the
    paper's score, weighs them by the queue instead, as if the log had no other jobs.

    Attributes:
        charged_seconds, slowdown_sum: R_V and the sum of bounded slowdowns so far.
    """

    charged_seconds: float
    slowdown_sum: float
    alpha: float = 1.0
    beta: float = 1.0

    @classmethod
    def so_far(cls, charged_seconds: float, slowdown_sum: float, *, alpha: float, beta: float) -> Self:
        """From totals, to which ten node hours and a few jobs are added because they may still be 0."""
        return cls(
            charged_seconds=charged_seconds + _FIRST_CHARGED_SECONDS,
            slowdown_sum=slowdown_sum + _FIRST_SLOWDOWN_SUM,
            alpha=alpha,
            beta=beta,
        )

    def loss(self, outcomes: Outcomes) -> Floats:
        """Share of the utility that each plan costs, less its savings for expected jobs; lower is better."""
        charged = outcomes.charged - outcomes.spared_charged
        slowdown = outcomes.slowdown - outcomes.spared_slowdown
        loss: Floats = self.alpha * charged / self.charged_seconds + self.beta * slowdown / self.slowdown_sum
        return loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much may be simulated for one choice: a number of policies, or a time.

    Attributes:
        policies: Number of simulations; the choice is then the same on every machine.
        seconds: Else the time by ``clock``.
        clock: Seconds, monotonic; needed where ``policies`` is not given.
    """

    policies: int | None = None
    seconds: float = 0.2
    clock: Callable[[], float] | None = None


Simulate = Callable[[Ints], Floats]
"""Simulates policies, by index, and returns the loss of every policy known by then, NaN for the others.

A policy whose plan equals that of a simulated one is known at no cost."""


@dataclass(slots=True)
class Reflections:
    """Past choices, one entry for each policy (the paper's reflection store)."""

    simulated: Ints
    chosen: Ints
    behind: Floats
    """Sum over simulations of the loss beyond the best policy's, as share of utility."""

    @classmethod
    def empty(cls, count: int) -> Reflections:
        """No choices yet."""
        return cls(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count))

    def remember(self, tried: Ints, loss: Floats, best: int) -> None:
        """Add one choice."""
        self.simulated[tried] += 1
        self.chosen[best] += 1
        self.behind[tried] += np.minimum(loss[tried] - loss[best], 1.0)


@dataclass(slots=True)
class TimeConstrainedSelector:
    """Algorithm 1: smart, stale and poor policies share the budget by ``SMART_QUOTA`` and ``STALE_QUOTA``.

    Attributes:
        kinds: ndarray of int, shape (count,): Kind of each policy. Policies of one kind make similar plans,
            so each kind of stale and poor policies is tried once before a second policy of a kind.
        generator: Draws the order of poor policies.
        smart, stale, poor: The three sets; all are smart at first.
    """

    kinds: Ints
    generator: np.random.Generator
    smart: list[int] = field(default_factory=list)
    stale: list[int] = field(default_factory=list)
    poor: list[int] = field(default_factory=list)
    reflections: Reflections = field(init=False)
    _seconds_each: float = math.inf
    _jobs: int = 1

    def __post_init__(self) -> None:
        self.smart = list(range(self.count))
        self.reflections = Reflections.empty(self.count)

    @property
    def count(self) -> int:
        """Number of policies."""
        return len(self.kinds)

    def choose(
        self, simulate: Simulate, budget: Budget, always: int | None = None, jobs: int = 1
    ) -> tuple[int, Ints, Floats]:
        """Simulate within the budget, choose, and update the three sets.

        Args:
            always: Policy that is simulated first, with which the others are compared.
            jobs: Length of the queue; a simulation's time grows at most with its square.

        Returns:
            best: Policy of least loss; among equals the one that ranked higher before.
            tried: Policies whose loss is known, in order of simulation.
            loss: ndarray of float, shape (count,): Their losses; NaN for the others.
        """
        loss = np.full(self.count, math.nan)
        if jobs > self._jobs:
            self._seconds_each *= (jobs / self._jobs) ** 2
        self._jobs = max(jobs, 1)
        tried = self._try_all(simulate, budget, loss) or self._try_some(simulate, budget, loss, always)
        ranked = sorted(tried, key=lambda policy: loss[policy])
        smart = max(1, round(SMART_SHARE * len(ranked)))
        simulated = set(tried)
        left = [policy for policy in (*self.stale, *self.smart) if policy not in simulated]
        self.poor = [policy for policy in self.poor if policy not in simulated] + ranked[smart:]
        self.stale, self.smart = left, ranked[:smart]
        indices = np.array(tried, np.int64)
        self.reflections.remember(indices, loss, ranked[0])
        return ranked[0], indices, loss

    def _try_all(self, simulate: Simulate, budget: Budget, loss: Floats) -> list[int]:
        """Simulate all policies when the budget is sure to allow it; else return none."""
        all_policies = [*self.smart, *self.stale, *self.poor]
        if budget.policies is None:
            if budget.clock is None or 4 * self.count * self._seconds_each > budget.seconds:
                return []
            began = budget.clock()
            loss[:] = simulate(np.array(all_policies, np.int64))
            self._seconds_each = (budget.clock() - began) / self.count
            return all_policies
        if budget.policies < self.count:
            return []
        loss[:] = simulate(np.array(all_policies, np.int64))
        return all_policies

    def _try_some(self, simulate: Simulate, budget: Budget, loss: Floats, always: int | None) -> list[int]:
        """Lines 1 to 19: smart and stale policies by quota, then poor ones in random order.

        The paper's quotas are numbers of policies; these are shares of the budget, and new kinds come before
        known ones (docs/designs/0011-portfolio.md).
        """
        total = budget.seconds if budget.policies is None else float(budget.policies)
        shuffled = [self.poor[at] for at in self.generator.permutation(len(self.poor))]
        tried: list[int] = []
        simulated = 0
        began = self._now(budget, simulated)
        spent = 0.0

        def try_one(policy: int) -> None:
            nonlocal simulated, spent
            found = simulate(np.array([policy], np.int64))
            loss[policy] = found[policy]
            alike = np.flatnonzero(np.isnan(loss) & ~np.isnan(found))
            loss[alike] = found[alike]
            tried.extend((policy, *alike.tolist()))
            simulated += 1
            spent = self._now(budget, simulated) - began

        if always is not None:
            try_one(always)
        shared = max(total - spent, 0.0)
        rest = [*self.stale, *self.smart]  # used where there are too few poor policies
        for group, quota in (
            (self.smart, SMART_QUOTA),
            (self._new_kinds_first(self.stale, tried), STALE_QUOTA),
            (self._new_kinds_first(shuffled, tried), 1.0),
            (self._new_kinds_first(rest, tried), 1.0),
        ):
            limit = min(spent + quota * shared, total)
            for policy in group:
                if spent >= limit:
                    break
                if math.isnan(loss[policy]):
                    try_one(policy)
        if budget.policies is None:
            self._seconds_each = spent / len(tried)
        return tried

    def _new_kinds_first(self, group: Iterable[int], tried: list[int]) -> Iterator[int]:
        """Policies of kinds not yet in ``tried`` (which grows meanwhile), then the others."""
        known = list[int]()
        for policy in group:
            if self.kinds[policy] in self.kinds[tried]:
                known.append(policy)
            else:
                yield policy
        yield from known

    @staticmethod
    def _now(budget: Budget, simulated: int) -> float:
        """Budget spent so far: simulations, or seconds."""
        if budget.policies is not None or budget.clock is None:
            return float(simulated)
        return budget.clock()
