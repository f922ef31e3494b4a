"""The results of each policy, and of each selection among them, on rented nodes; they determine the leader.

The live judge and a replay of a log (Deng et al., section 6) both ask for it. The portfolio knows what a
scheduler would know at that moment: what waits and runs, what arrived, what finished, and what each single
policy would have made of the log so far. The last is simulated alongside, and so are clusters that always
take a selection's choice. The contender with the best utility so far leads: the champion among the policies
while selection does not pay, else selection (``portfolio_lead``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.decide.portfolio.portfolio import Worth
from advisor.decide.portfolio.portfolio_choice import AdaptivePeriod, Choice, Chooser
from advisor.decide.portfolio.portfolio_lead import champions_of, leaders_of, rows_of, utility_of
from advisor.decide.portfolio.portfolio_options import CHAMPION, Options
from advisor.decide.portfolio.replay_knowledge import Expected, Knowledge, Leadership
from advisor.model.table import JobTable
from advisor.simulate.portfolio.cluster import RentedCluster, Totals, replay_policy
from advisor.simulate.portfolio.policies import RentingPolicy

LONG_QUEUE: Final = 100
"""From this number of waiting jobs on, choices are made more rarely: a simulation's time grows with its
square."""


class Watcher:
    """Follows how a log is gone through; this one only calls a function, which may end it by an exception."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def policies(self, done: int, count: int) -> None:  # noqa: ARG002
        """So many policies of all have passed through the log."""
        self._call()

    def passed(self, at: int, jobs: int, count: int) -> None:  # noqa: ARG002
        """Pass ``at`` with choices has processed so many jobs of all."""
        self._call()

    def chose(self, at: int, cluster: RentedCluster, chosen: int, simulated: Simulated | None) -> None:
        """In pass ``at`` a policy was chosen, by simulation or as the champion."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulated:
    """A choice by simulation, and how long it took."""

    choice: Choice
    seconds: float


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

    def choose(self, cluster: RentedCluster, champion: int) -> Simulated:
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
        simulated = Simulated(choice=choice, seconds=time.perf_counter() - began)
        rest = cluster.cloud.tick_seconds * (waiting / LONG_QUEUE) ** 2
        cluster.apply(choice.applied, self._period.after(choice.applied), rest)
        return simulated


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


def standing(known: JobTable, options: Options, watcher: Watcher, before: Floats) -> Standing:
    """Judge each policy and each selection on a log; ``before``: the policies' priors (`prior_of`)."""
    policies = options.policies
    shadows = []
    earliest = np.full(len(known), np.inf)
    for done, policy in enumerate(policies):
        watcher.policies(done, len(policies))
        alone, checkpoints, start = replay_policy(
            known, options.cloud, options.runtimes, policy, options.checkpoint_seconds
        )
        shadows.append((alone, checkpoints))
        np.minimum(earliest, start, out=earliest)
    watcher.policies(len(policies), len(policies))
    champions = champions_of([checkpoints for _, checkpoints in shadows], before, options)
    selections = [
        run_led(known, options, Leadership(champions, [at]), earliest, watcher, at)
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One pass through the log with choices."""

    totals: Totals
    checkpoints: Floats
    start: Floats


def run_led(
    jobs: JobTable, options: Options, led: Leadership, earliest: Floats, watcher: Watcher, at: int
) -> Run:
    """Go through the log under the policy that leads by what is known.

    ``earliest``: when each job first started in any of the clusters alongside; ``at``: which pass it is.
    """
    policies = options.policies
    cluster = RentedCluster(jobs, options.cloud, options.runtimes, policies, options.checkpoint_seconds)
    selections = [Selection(policies, options, cluster, margin) for margin in options.margins]
    known = Knowledge(jobs, options, earliest)
    told = 0
    while not cluster.advance(chooses=True):
        champion, leader = led.after(known.checkpoints(cluster))
        told += 1
        if told % 50 == 0:
            watcher.passed(at, min(cluster.arrived, len(jobs) - 1), len(jobs))
        if leader == CHAMPION:
            cluster.apply(champion, options.checkpoint_seconds)
            watcher.chose(at, cluster, champion, None)
        else:
            simulated = selections[leader].choose(cluster, champion)
            watcher.chose(at, cluster, simulated.choice.applied, simulated)
    watcher.passed(at, len(jobs), len(jobs))
    state = cluster.state
    return Run(totals=cluster.totals(), checkpoints=state.checkpoints, start=state.job["start"].copy())
