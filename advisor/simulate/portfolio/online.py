"""The online simulator: what each policy would make of the present queue (Deng et al., section 3.3).

Algorithm 1 (`advisor.decide.portfolio.portfolio`) calls it, in the portfolio loop and in replays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Bools, Floats
from advisor.simulate.heap import Records
from advisor.simulate.portfolio import _online
from advisor.simulate.portfolio._shared import empty_shared_plans
from advisor.simulate.portfolio.arrivals import NOTHING
from advisor.simulate.portfolio.policies import RentingPolicy, as_records
from advisor.simulate.portfolio.state import CLUSTER, JOB, NODE, WAITING, OnlineState, Readiness, Rules


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Situation:
    """The input of a choice.

    Attributes:
        now: Seconds.
        profile: Rented nodes; ``ready``: when each is expected to be idle.
        jobs: Waiting jobs in submission order; used are ``submit``, ``estimate`` (known to policies), ``run``
            (what happens) and ``processors``.
        ready: Value of idle nodes for jobs that may come.
    """

    now: float
    profile: Records
    jobs: Records
    ready: Readiness = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcomes:
    """Results of the simulated policies; NaN for policies that were not simulated.

    Attributes:
        charged: float64, shape (n,): Node-seconds charged beyond those already charged; infinite where a job
            would never start.
        slowdown: float64, shape (n,): Sum of the bounded slowdowns of the waiting jobs.
        held: float64, shape (n,): Node-seconds charged for the time from now on: ``charged`` and the rest of
            hours already paid.
        spared_charged, spared_slowdown: float64, shape (n,): What idle nodes save the jobs that may come
            before the plan ends; see ``arrivals``.
    """

    charged: Floats
    slowdown: Floats
    held: Floats
    spared_charged: Floats
    spared_slowdown: Floats

    def utility(self, situation: Situation, *, alpha: float = 1.0, beta: float = 1.0) -> Floats:
        """Utility of the queue alone, the paper's score: R_J and BSD of its jobs, R_V ``held``."""
        jobs = situation.jobs
        work = float(jobs["run"] @ jobs["processors"])
        mean = self.slowdown / max(len(jobs), 1)
        utility: Floats = 100.0 * (work / self.held) ** alpha * mean**-beta
        return utility


class OnlineSimulator:
    """Simulates policies one after the other in the same arrays.

    ``rules`` are those of the cluster that is simulated.
    """

    def __init__(self, policies: Sequence[RentingPolicy], rules: Rules) -> None:
        self._policies = as_records(policies)
        self._rules = rules
        self._outcome = np.zeros((len(policies), _online.COLUMNS))
        self._is_shared = np.zeros(len(policies), np.bool_)
        self._question: tuple[Situation, int | None, float] | None = None
        self._room = 0
        self._make_room(256)

    def _make_room(self, jobs: int) -> None:
        self._room = jobs
        self._shared_plans = empty_shared_plans(len(self._policies), self._rules.max_nodes, jobs)
        self._state = OnlineState(
            node=np.zeros(self._rules.max_nodes, NODE),
            waiting=np.zeros(jobs + 1, WAITING),
            scalars=np.zeros(1, CLUSTER),
            start=np.zeros(jobs),
            scratch=np.zeros(self._rules.max_nodes),
            idle_times=np.zeros((2, self._rules.max_nodes + 1)),
        )

    def simulate(
        self,
        situation: Situation,
        chosen: NDArray[np.int64],
        base: int | None = None,
        hold_seconds: float = math.inf,
    ) -> Outcomes:
        """Run the situation's jobs under each chosen policy (indices) to the last start.

        With ``base``, that policy takes over after ``hold_seconds``: the outcome is that of deviating from it
        for so long. Calls for the same situation share parts of plans, so its arrays must not change between
        them.

        The returned arrays are overwritten by the next call; rows not chosen keep their values.
        """
        if len(situation.jobs) > self._room:
            self._make_room(2 * len(situation.jobs))
        question = (situation, base, hold_seconds)
        if self._question is None or self._question[0] is not situation or self._question[1:] != question[1:]:
            self._shared_plans.size[:] = 0
            self._question = question
        _online.simulate_policies(
            situation.profile,
            situation.jobs,
            situation.now,
            -1 if base is None else base,
            hold_seconds,
            self._policies,
            chosen,
            self._rules,
            self._state,
            self._shared_plans,
            situation.ready,
            self._outcome,
        )
        return self._outcomes()

    def same_plan(self) -> tuple[Outcomes, Bools]:
        """Outcomes of all policies whose plan was simulated for the last situation, and which these are.

        Nothing is simulated. The returned arrays are overwritten by the next call.
        """
        _online.copy_shared_outcomes(self._policies, self._shared_plans, self._outcome, self._is_shared)
        return self._outcomes(), self._is_shared

    def _outcomes(self) -> Outcomes:
        charged, slowdown, held, spared_charged, spared_slowdown = self._outcome.T
        return Outcomes(
            charged=charged,
            slowdown=slowdown,
            held=held,
            spared_charged=spared_charged,
            spared_slowdown=spared_slowdown,
        )


def empty_jobs(count: int) -> Records:
    """Zeroed jobs of a situation, shape (count,)."""
    return np.zeros(count, JOB)
