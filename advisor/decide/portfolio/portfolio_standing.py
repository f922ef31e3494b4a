"""The results of each policy, and of each selection among them, on rented nodes; they determine the leader.

The live judge and a replay of a log (Deng et al., section 6) both ask for it. The portfolio knows what a
scheduler would know at that moment: what waits and runs, what arrived, what finished, and what each single
policy would have made of the log so far. The last is simulated alongside, and so are clusters that always
take a selection's choice. The contender with the best utility so far leads: the champion among the policies
while selection does not pay, else selection (``portfolio_lead``).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.decide.portfolio.portfolio import Worth
from advisor.decide.portfolio.portfolio_choice import AdaptivePeriod, Chooser
from advisor.decide.portfolio.portfolio_lead import champions_of, leaders_of, rows_of, utility_of
from advisor.decide.portfolio.portfolio_options import CHAMPION, Options
from advisor.decide.portfolio.replay_knowledge import Expected, Knowledge, Leadership
from advisor.decide.portfolio.replay_progress import Progress, Steps
from advisor.model.table import JobTable
from advisor.simulate.portfolio.cluster import RentedCluster, Totals, replay_policy
from advisor.simulate.portfolio.policies import RentingPolicy

LONG_QUEUE: Final = 100
"""From this number of waiting jobs on, choices are made more rarely: a simulation's time grows with its
square."""


@dataclass(slots=True)
class PolicyUse:
    """The policies that were chosen, with the times of the choices and the time that they took."""

    chosen: Counter[int] = field(default_factory=Counter)
    moments: list[float] = field(default_factory=list)
    policies: list[int] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    simulations: int = 0
    cut: int = 0
    """Choices by simulation, and those among them in which the budget did not allow every policy."""

    def add(self, moment: float, policy: int, waiting: int, milliseconds: float) -> None:
        """Record one choice."""
        self.chosen[policy] += 1
        self.moments.append(moment)
        self.policies.append(policy)
        self.queue.append(waiting)
        self.milliseconds.append(milliseconds)

    def take(self, other: PolicyUse) -> None:
        """Add what another wrote down, in the order of time."""
        self.chosen += other.chosen
        self.simulations += other.simulations
        self.cut += other.cut
        for name in ("moments", "policies", "milliseconds", "queue"):
            getattr(self, name).extend(getattr(other, name))
        order = np.argsort(self.moments, kind="stable")
        for name in ("moments", "policies", "milliseconds", "queue"):
            values = getattr(self, name)
            setattr(self, name, [values[at] for at in order])


class Selection:
    """Chooses by simulating the policies on the queue as it is (:class:`Chooser`)."""

    def __init__(
        self, policies: Sequence[RentingPolicy], options: Options, cluster: RentedCluster, margin: float
    ) -> None:
        self._options = options
        self._chooser = Chooser(
            policies, cluster.rules, margin=margin, hold_seconds=options.hold_seconds, seed=options.seed
        )
        self._period = AdaptivePeriod()
        self._expected = Expected(options)
        self.use = PolicyUse()

    def choose(self, cluster: RentedCluster, champion: int) -> None:
        """Choose a policy and let it lead."""
        options = self._options
        situation = replace(cluster.situation(), ready=self._expected.ready(cluster))
        waiting = len(situation.jobs)
        totals = cluster.totals()
        worth = Worth.so_far(
            totals.charged_seconds, totals.slowdown_sum, alpha=options.alpha, beta=options.beta
        )
        began = time.perf_counter()
        choice = self._chooser.choose(situation, worth, options.budget, champion)
        applied = choice.applied
        self.use.add(cluster.now, applied, waiting, 1000 * (time.perf_counter() - began))
        self.use.simulations += 1
        self.use.cut += int(len(choice.tried) < len(options.policies))
        rest = cluster.cloud.tick_seconds * (waiting / LONG_QUEUE) ** 2
        cluster.apply(applied, self._period.after(applied), rest)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """The results of every contender on a log, and the leader at each checkpoint.

    Attributes:
        scores: Each policy's utility at the end, its prior included.
        champions, leaders: Champion, and leading selection or ``CHAMPION``, when 0, 1, ... checkpoints were
            known.
        earliest: When each job first started under any of the contenders.
    """

    alone: list[Totals]
    selections: list[Run]
    scores: Floats
    champions: NDArray[np.int64]
    leaders: NDArray[np.int64]
    earliest: Floats


def standing(known: JobTable, options: Options, steps: Steps, before: Floats) -> Standing:
    """Judge each policy and each selection on a log; ``before``: the policies' priors (`prior_of`)."""
    policies = options.policies
    shadows = []
    earliest = np.full(len(known), np.inf)
    for done, policy in enumerate(policies):
        steps.policies(done, len(policies))
        alone, checkpoints, start = replay_policy(
            known, options.cloud, options.runtimes, policy, options.checkpoint_seconds
        )
        shadows.append((alone, checkpoints))
        np.minimum(earliest, start, out=earliest)
    steps.policies(len(policies), len(policies))
    champions = champions_of([checkpoints for _, checkpoints in shadows], before, options)
    selections = [
        run_led(known, options, Leadership(champions, [at]), earliest, steps, at)
        for at in range(len(options.margins))
    ]
    for run in selections:
        np.minimum(earliest, run.start, out=earliest)
    leaders = np.full(len(champions), CHAMPION, np.int64)
    if selections:
        leaders = leaders_of(
            [checkpoints for _, checkpoints in shadows],
            champions,
            [run.checkpoints for run in selections],
            before[champions[0]],
            options,
        )
    totals = [totals for totals, _ in shadows]
    return Standing(
        alone=totals,
        selections=selections,
        scores=utility_of(before + rows_of(totals), options),
        champions=champions,
        leaders=leaders,
        earliest=earliest,
    )


def steps_of(options: Options, tell: Progress) -> Steps:
    """Progress through each policy, each selection and the portfolio."""
    names = [f"selection, margin {100 * margin:g} %" for margin in options.margins]
    return Steps(tell, (*names, "portfolio"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One pass through the log with choices."""

    totals: Totals
    checkpoints: Floats
    start: Floats
    use: PolicyUse


def run_led(
    jobs: JobTable, options: Options, led: Leadership, earliest: Floats, steps: Steps, at: int
) -> Run:
    """Go through the log under the policy that leads by what is known.

    ``earliest``: when each job first started in any of the clusters alongside; ``at``: which pass it is.
    """
    policies = options.policies
    cluster = RentedCluster(jobs, options.cloud, options.runtimes, policies, options.checkpoint_seconds)
    selections = [Selection(policies, options, cluster, margin) for margin in options.margins]
    known = Knowledge(jobs, options, earliest)
    use = PolicyUse()
    told = 0
    while not cluster.advance(chooses=True):
        champion, leader = led.after(known.checkpoints(cluster))
        told += 1
        if told % 50 == 0:
            steps.passed(at, min(cluster.arrived, len(jobs) - 1), len(jobs))
            steps.cut(sum(one.use.cut for one in selections), told)
        if leader == CHAMPION:
            use.add(cluster.now, champion, int(cluster.state.scalars["waiting"][0]), float("nan"))
            cluster.apply(champion, options.checkpoint_seconds)
        else:
            selections[leader].choose(cluster, champion)
    steps.passed(at, len(jobs), len(jobs))
    for selection in selections:
        use.take(selection.use)
    state = cluster.state
    return Run(
        totals=cluster.totals(), checkpoints=state.checkpoints, start=state.job["start"].copy(), use=use
    )
