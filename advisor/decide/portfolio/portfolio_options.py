"""How a portfolio is run, and what of it is usual for what is known of run times and how nodes are paid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from advisor.decide.portfolio.portfolio import Budget
from advisor.decide.portfolio.portfolio_evidence import DAY_SECONDS
from advisor.simulate.portfolio.cluster import Cloud, Runtimes
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED, Release, RentingPolicy

PRIOR_JOBS: Final = 500.0
"""Every policy's score begins with what it makes of synthetic workloads, counted as so many jobs: a quiet
first week would else put a policy in charge that the first burst refutes dearly."""
PRIOR_JOBS_EXACT: Final = 150.0
"""The same where run times are known: no policy is led astray by wrong ones, and a log soon tells more."""
PRIOR_JOBS_WARM: Final = 100.0
"""The same among policies that differ by how many nodes they keep warm alone: a matter of degree, in which
no burst refutes a neighbour dearly."""
EVIDENCE: Final = 2.0
"""So many standard errors the days of a selection, or of another order of jobs, must be better, where run
times are guessed. One burst decides totals, and who was better in the last one is not in the next; days tell
sooner."""
CHAMPION: Final = -1
"""Leader's index that stands for the champion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a portfolio is run, on a log or on the jobs of a live site.

    Attributes
    ----------
    policies : tuple of RentingPolicy
        The portfolio; the published sixty come first.
    cloud : Cloud
        What is rented and how it is charged.
    runtimes : Runtimes
        Which run times are known.
    budget : Budget
        What may be simulated for one choice.
    alpha, beta : float
        Of the utility.
    lookahead_seconds : float
        Arrivals of so long ago are expected once more; 0 for none.
    expects_jobs : bool
        Whether plans are credited with what their idle nodes spare jobs that may come.
    hold_seconds : float
        A policy is judged by following it for so long and the champion afterwards.
    margins : sequence of float
        Selections that run alongside, by how much of the champion's loss a policy must save to be preferred.
    hurdle : float
        A selection leads only while its utility is better than the champion's by this share, and the leader's
        loyalty.
    evidence : float
        And only where its days are better than the champion's by so many standard errors (`Days.evidence`);
        the same for a champion of another order of jobs.
    first_leader : int
        Index of the selection that leads until another contender has the better days (`REFUTED`), or
        ``CHAMPION``.
    day_seconds : float
        Evidence counts spans of so long, each once.
    checkpoint_seconds : float
        The leader is looked for so often.
    seed : int
        Of the draws among poor policies.
    """

    policies: tuple[RentingPolicy, ...] = PUBLISHED
    cloud: Cloud = field(default_factory=Cloud)
    runtimes: Runtimes = Runtimes.ACTUAL
    budget: Budget = field(default_factory=lambda: Budget(policies=len(PUBLISHED) + len(BEYOND)))
    alpha: float = 1.0
    beta: float = 1.0
    lookahead_seconds: float = 0.0
    expects_jobs: bool = True
    hold_seconds: float = 300.0
    margins: tuple[float, ...] = (0.0, 0.05)
    hurdle: float = 0.0
    evidence: float = 0.0
    first_leader: int = CHAMPION
    day_seconds: float = DAY_SECONDS
    checkpoint_seconds: float = 3600.0
    seed: int = 1


def usual_policies(release: Release) -> tuple[RentingPolicy, ...]:
    """The paper's sixty and ours; without warm nodes where idle nodes are given back at once."""
    return PUBLISHED + tuple(
        policy for policy in BEYOND if release is not Release.HOUR or policy.headroom == 0
    )


def usual_margins(runtimes: Runtimes) -> tuple[float, ...]:
    """Selections that may lead: where run times are guessed only the one that is hard to persuade."""
    return (0.0, 0.05) if runtimes is Runtimes.ACTUAL else (0.05,)


def usual_evidence(runtimes: Runtimes) -> float:
    """How surely another order of jobs must be better, in standard errors of its days.

    With exact run times its total says enough.
    """
    return 0.0 if runtimes is Runtimes.ACTUAL else EVIDENCE


def usual_first_leader(runtimes: Runtimes, release: Release) -> int:
    """Who leads until days tell: the selection where run times are exact and no nodes are kept warm.

    There it is a third better than the champion on the prior's synthetic workloads, on every one of them. A
    champion that keeps nodes warm is harder to beat, and totals decide.
    """
    return 0 if runtimes is Runtimes.ACTUAL and release is Release.HOUR else CHAMPION


def prior_jobs(options: Options) -> float:
    """As so many jobs the prior counts, the synthetic workloads every score begins with."""
    return PRIOR_JOBS_EXACT if options.runtimes is Runtimes.ACTUAL else PRIOR_JOBS
