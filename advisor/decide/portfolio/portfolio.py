"""Algorithm 1 of Deng et al.: policies simulated within a budget, and what a plan costs the utility."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from advisor.simulate.portfolio.online import Outcomes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SMART_SHARE: Final = 0.6
"""lambda of section 4: this share of the simulated policies is smart."""
SMART_QUOTA: Final = 0.7
STALE_QUOTA: Final = 0.15
"""Shares of the budget for those that were good the last time, and for those not tried then.

The rest is for the poor. The paper shares by number."""

_FIRST_CHARGED_SECONDS: Final = 36_000.0
_FIRST_SLOWDOWN_SUM: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What charged time and slowdown are worth against each other: the totals they add to.

    The utility (R_J / R_V)^alpha (1 / BSD)^beta of a long run loses the share ``alpha x charged / R_V`` by
    time charged and ``beta x slowdown / sum of slowdowns`` by a job's slowdown. A queue's own utility, the
    paper's score, weighs them by the queue instead, as if the log had no other jobs.

    Attributes
    ----------
    charged_seconds, slowdown_sum : float
        R_V and the sum of bounded slowdowns so far.
    alpha, beta : float
        Of the utility.
    """

    charged_seconds: float
    slowdown_sum: float
    alpha: float = 1.0
    beta: float = 1.0

    @classmethod
    def so_far(cls, charged_seconds: float, slowdown_sum: float, *, alpha: float, beta: float) -> Self:
        """From a run's totals, which may still be 0: ten node hours and a few jobs are added to them."""
        return cls(
            charged_seconds=charged_seconds + _FIRST_CHARGED_SECONDS,
            slowdown_sum=slowdown_sum + _FIRST_SLOWDOWN_SUM,
            alpha=alpha,
            beta=beta,
        )

    def loss(self, outcomes: Outcomes) -> Floats:
        """Share of the utility each plan costs, less what it spares jobs to come; lower is better."""
        charged = outcomes.charged - outcomes.spared_charged
        slowdown = outcomes.slowdown + outcomes.later_slowdown - outcomes.spared_slowdown
        loss: Floats = self.alpha * charged / self.charged_seconds + self.beta * slowdown / self.slowdown_sum
        return loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much may be simulated for one choice.

    Attributes
    ----------
    policies : int, optional
        So many simulations (the same choice on every machine).
    seconds : float
        Else so long by ``clock``.
    clock : callable, optional
        Seconds, monotonic; needed where ``policies`` is not given.
    """

    policies: int | None = None
    seconds: float = 0.2
    clock: Callable[[], float] | None = None


Simulate = Callable[[Ints], Floats]
"""Simulates policies by their indices, and gives the loss of each policy that is known by then, NaN for the
others. Those whose plan is that of one simulated before are known, too, and have cost nothing."""


@dataclass(slots=True)
class Reflections:
    """What is remembered of past choices, one entry a policy (the paper's reflection store)."""

    simulated: Ints
    chosen: Ints
    behind: Floats
    """Sum over simulations of how much worse than the best of that choice it was, as share of utility."""

    @classmethod
    def empty(cls, count: int) -> Reflections:
        """Nothing seen yet."""
        return cls(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count))

    def remember(self, tried: Ints, loss: Floats, best: int) -> None:
        """Take in one choice."""
        self.simulated[tried] += 1
        self.chosen[best] += 1
        self.behind[tried] += np.minimum(loss[tried] - loss[best], 1.0)


@dataclass(slots=True)
class TimeConstrainedSelector:
    """Algorithm 1: smart, stale and poor policies share the budget, by quotas of ours (``SMART_QUOTA``).

    Attributes
    ----------
    kinds : ndarray of int, shape (count,)
        Of each policy of the portfolio. Those of the same kind come to much the same plans: of the stale and
        of the poor each kind is tried once before another of a kind that is known.
    generator : numpy Generator
        Draws among the poor.
    smart, stale, poor : list of int
        The three sets; all are smart at first.
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
        """Policies of the portfolio."""
        return len(self.kinds)

    def choose(
        self, simulate: Simulate, budget: Budget, always: int | None = None, jobs: int = 1
    ) -> tuple[int, Ints, Floats]:
        """Simulate within the budget and rearrange the sets.

        Parameters
        ----------
        simulate : callable
            The online simulator.
        budget : Budget
            What it may spend.
        always : int, optional
            This policy is simulated first, whichever set it is in: the others are compared with it.
        jobs : int
            Length of the queue: a simulation takes the square of it at worst.

        Returns
        -------
        best : int
            Policy of least loss; of equals the one that was better before.
        tried : ndarray of int
            Policies whose loss is known: simulated, or with the plan of one that was; in that order.
        loss : ndarray of float, shape (count,)
            Theirs; NaN for the others.
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
        """All policies at once when the budget surely allows it: then the quotas do not matter."""
        everyone = [*self.smart, *self.stale, *self.poor]
        if budget.policies is None:
            if budget.clock is None or 4 * self.count * self._seconds_each > budget.seconds:
                return []
            began = budget.clock()
            loss[:] = simulate(np.array(everyone, np.int64))
            self._seconds_each = (budget.clock() - began) / self.count
            return everyone
        if budget.policies < self.count:
            return []
        loss[:] = simulate(np.array(everyone, np.int64))
        return everyone

    def _try_some(self, simulate: Simulate, budget: Budget, loss: Floats, always: int | None) -> list[int]:
        """Lines 1 to 19: by quota from the smart and the stale, then what is left of it at random.

        The paper's quotas go by number, so that of twelve smart policies four are tried; here all of them
        are, when twenty of sixty may be, and new kinds come before known ones
        (docs/designs/0011-portfolio.md).
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
        rest = [*self.stale, *self.smart]  # where there are too few poor
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
        """Those of a kind of which none is in ``tried``, which grows meanwhile; then the others."""
        known = list[int]()
        for policy in group:
            if self.kinds[policy] in self.kinds[tried]:
                known.append(policy)
            else:
                yield policy
        yield from known

    @staticmethod
    def _now(budget: Budget, simulated: int) -> float:
        """What is spent: simulations, or seconds."""
        if budget.policies is not None or budget.clock is None:
            return float(simulated)
        return budget.clock()
