"""Options of a portfolio, of the live judge's or a replay's; defaults by known run times and billing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from advisor.decide.portfolio.portfolio import Budget
from advisor.decide.portfolio.portfolio_evidence import DAY_SECONDS
from advisor.simulate.portfolio.cluster import Cloud, Runtimes
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED, RentingPolicy

PRIOR_JOBS: Final = 500.0
"""Weight of the prior (utility on synthetic workloads), in jobs.

Without it a quiet first week selects a policy that fails in the first burst."""
PRIOR_JOBS_EXACT: Final = 150.0
"""The same where run times are exact: a log soon tells more than the prior."""
PRIOR_JOBS_WARM: Final = 100.0
"""The same among policies that differ only in the number of warm nodes, whose results are close."""
EVIDENCE: Final = 2.0
"""Standard errors by which the days of a selection, or of another order of jobs, must be better where run
times are predicted. One burst decides totals and says little about the next; days tell sooner."""
CHAMPION: Final = -1
"""Leader's index that stands for the champion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a portfolio, on a log or on a live site.

    Attributes:
        policies: The portfolio; the published sixty come first.
        runtimes: Which run times are known.
        hold_seconds: A policy is simulated for this time, the champion afterwards.
        margins: One selection for each: share of the champion's loss that a policy must save to be chosen.
        evidence: Standard errors by which its days must also be better (`Days.evidence`); the same for a
            champion of another order of jobs.
        first_leader: Index of the selection that leads until another contender has the better days
            (`REFUTED`), or ``CHAMPION``.
        day_seconds: Length of a day of evidence.
        checkpoint_seconds: Time between checkpoints, at which the leader is determined.
        seed: Seed of the draws among poor policies.
    """

    policies: tuple[RentingPolicy, ...] = PUBLISHED
    cloud: Cloud = field(default_factory=Cloud)
    runtimes: Runtimes = Runtimes.ACTUAL
    budget: Budget = field(default_factory=lambda: Budget(policies=len(PUBLISHED) + len(BEYOND)))
    alpha: float = 1.0
    beta: float = 1.0
    hold_seconds: float = 300.0
    margins: tuple[float, ...] = (0.0, 0.05)
    evidence: float = 0.0
    first_leader: int = CHAMPION
    day_seconds: float = DAY_SECONDS
    checkpoint_seconds: float = 3600.0
    seed: int = 1


def usual_margins(runtimes: Runtimes) -> tuple[float, ...]:
    """Margins of the selections; only the larger one where run times are predicted."""
    return (0.0, 0.05) if runtimes is Runtimes.ACTUAL else (0.05,)


def usual_evidence(runtimes: Runtimes) -> float:
    """Evidence needed for another order of jobs; none with exact run times, where totals suffice."""
    return 0.0 if runtimes is Runtimes.ACTUAL else EVIDENCE


def prior_jobs(options: Options) -> float:
    """Weight of the prior, in jobs."""
    return PRIOR_JOBS_EXACT if options.runtimes is Runtimes.ACTUAL else PRIOR_JOBS
