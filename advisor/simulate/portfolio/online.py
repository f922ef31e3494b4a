"""The online simulator: what each policy would make of the queue as it is now (Deng et al., section 3.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.simulate.portfolio import _online
from advisor.simulate.portfolio._shared import room_to_know
from advisor.simulate.portfolio.arrivals import NOTHING
from advisor.simulate.portfolio.policies import RentingPolicy, as_records
from advisor.simulate.portfolio.state import (
    CLUSTER,
    JOB,
    NODE,
    WAITING,
    Flags,
    Floats,
    OnlineState,
    Readiness,
    Rules,
)
from advisor.simulate.state import Records


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Situation:
    """What a choice is made from.

    Attributes
    ----------
    now : float
        Seconds.
    profile : ndarray of NODE
        Rented nodes; ``ready``: when each is expected to be idle.
    jobs : ndarray of JOB
        Waiting jobs in submission order, then those expected later by their submission; read are ``submit``,
        ``estimate`` (what policies know), ``run`` (what happens) and ``processors``.
    present : int
        How many of them wait now.
    ready : Readiness
        What idle nodes are worth to jobs that may come; nothing by default.
    """

    now: float
    profile: Records
    jobs: Records
    present: int
    ready: Readiness = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcomes:
    """What simulated policies would make of a situation; NaN for policies that were not simulated.

    Attributes
    ----------
    charged : float64, shape (n,)
        Node-seconds charged beyond what is charged already; infinite where a job would never start.
    slowdown : float64, shape (n,)
        Sum of the bounded slowdowns of the waiting jobs.
    later_slowdown : float64, shape (n,)
        The same of the jobs expected later.
    held : float64, shape (n,)
        Node-seconds charged for the time from now on: ``charged`` and the rest of hours already paid.
    spared_charged, spared_slowdown : float64, shape (n,)
        What idle nodes spare the jobs that may come before the plan ends; see ``arrivals``.
    """

    charged: Floats
    slowdown: Floats
    later_slowdown: Floats
    held: Floats
    spared_charged: Floats
    spared_slowdown: Floats

    def utility(self, situation: Situation, *, alpha: float = 1.0, beta: float = 1.0) -> Floats:
        """Utility of the queue taken by itself, the paper's score: R_J and BSD of its jobs, R_V ``held``."""
        jobs = situation.jobs
        work = float(jobs["run"] @ jobs["processors"])
        mean = (self.slowdown + self.later_slowdown) / max(len(jobs), 1)
        utility: Floats = 100.0 * (work / self.held) ** alpha * mean**-beta
        return utility


class OnlineSimulator:
    """Simulates policies one after the other in the same room.

    Parameters
    ----------
    policies : sequence of RentingPolicy
        All that may be asked for.
    rules : Rules
        Of the cluster that is looked at.
    """

    def __init__(self, policies: Sequence[RentingPolicy], rules: Rules) -> None:
        self._policies = as_records(policies)
        self._rules = rules
        self._outcome = np.zeros((len(policies), _online.COLUMNS))
        self._is_known = np.zeros(len(policies), np.bool_)
        self._about: tuple[Situation, int | None, float] | None = None
        self._room = 0
        self._make_room(256)

    def _make_room(self, jobs: int) -> None:
        self._room = jobs
        self._known = room_to_know(len(self._policies), self._rules.max_nodes, jobs)
        self._state = OnlineState(
            node=np.zeros(self._rules.max_nodes, NODE),
            waiting=np.zeros(jobs + 1, WAITING),
            cluster=np.zeros(1, CLUSTER),
            start=np.zeros(jobs),
            scratch=np.zeros(self._rules.max_nodes),
            soon=np.zeros((2, self._rules.max_nodes + 1)),
        )

    def simulate(
        self,
        situation: Situation,
        chosen: NDArray[np.int64],
        base: int | None = None,
        hold_seconds: float = math.inf,
    ) -> Outcomes:
        """Let each chosen policy (indices) run the situation's jobs to the last start.

        With ``base``, that policy takes over after ``hold_seconds``: the outcome is what deviating from it
        for so long would bring. What plans share is remembered while calls are about the same situation,
        whose arrays must not change meanwhile.

        The arrays handed out are overwritten by the next call; rows not chosen keep what they had.
        """
        if len(situation.jobs) > self._room:
            self._make_room(2 * len(situation.jobs))
        about = (situation, base, hold_seconds)
        if self._about is None or self._about[0] is not situation or self._about[1:] != about[1:]:
            self._known.size[:] = 0
            self._about = about
        _online.simulate_policies(
            situation.profile,
            situation.jobs,
            situation.present,
            situation.now,
            -1 if base is None else base,
            hold_seconds,
            self._policies,
            chosen,
            self._rules,
            self._state,
            self._known,
            situation.ready,
            self._outcome,
        )
        return self._outcomes()

    def alike(self) -> tuple[Outcomes, Flags]:
        """Outcomes of all policies whose plan is that of one simulated on the last situation, and whose.

        Nothing is simulated for it. The arrays handed out are overwritten by the next call.
        """
        _online.take_alike(self._policies, self._known, self._outcome, self._is_known)
        return self._outcomes(), self._is_known

    def _outcomes(self) -> Outcomes:
        charged, slowdown, later, held, spared_charged, spared_slowdown = self._outcome.T
        return Outcomes(
            charged=charged,
            slowdown=slowdown,
            later_slowdown=later,
            held=held,
            spared_charged=spared_charged,
            spared_slowdown=spared_slowdown,
        )


def empty_jobs(count: int) -> Records:
    """Room for jobs of a situation, to be filled in."""
    return np.zeros(count, JOB)
