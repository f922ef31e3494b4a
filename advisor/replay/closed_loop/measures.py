"""The figures of each policy that `rehearse`, `whatif`, `recommend` and `plan` have simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.world import LoopResult

TAU_SECONDS: Final = 60.0
"""Run times below it count as so long in the bounded slowdown."""
LATER_SECONDS: Final = 60.0
LATER_SHARE: Final = 0.01
"""A job is later if it takes longer by both."""

_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """The results of one policy, the fields of ``advisor rehearse``.

    Attributes:
        mean_wait_seconds, p95_wait_seconds: A wait is the turnaround less the run time on-premise, so
            that the boot and the slower run of the cloud count as waiting.
        mean_bounded_slowdown: Mean of (wait + run) / max(run, tau) with tau = 60 s, each at least 1.
        saved_hours: Turnaround of all jobs, against all on-premise.
        budget_share_spent: Share of the budget that was spent; 0 without a budget.
        moved_jobs: Jobs that were started in the cloud at least once.
        later_share: Jobs that take more than 60 s and 1 % longer than all on-premise.
    """

    policy: str
    mean_wait_seconds: float
    mean_turnaround_seconds: float
    mean_bounded_slowdown: float
    p95_wait_seconds: float
    saved_hours: float
    cost_usd: float
    budget_share_spent: float
    moved_jobs: int
    later_share: float
    seconds: float


def measured(
    policy: str,
    jobs: LoopJobs,
    result: LoopResult,
    on_premise: LoopResult,
    *,
    budget_usd: float,
    usd_per_core_hour: float,
    seconds: float,
) -> PolicyRow:
    """Measure a policy's result against that of all on-premise."""
    turnaround = result.end - jobs.submit
    usual = on_premise.end - jobs.submit
    wait = turnaround - jobs.run
    cost_usd = float(result.cost.sum()) / _HOUR * usd_per_core_hour
    later = (turnaround - usual > LATER_SECONDS) & (turnaround > (1.0 + LATER_SHARE) * usual)
    return PolicyRow(
        policy=policy,
        mean_wait_seconds=float(wait.mean()),
        mean_turnaround_seconds=float(turnaround.mean()),
        mean_bounded_slowdown=float(_bounded_slowdowns(turnaround, jobs.run).mean()),
        p95_wait_seconds=float(np.quantile(wait, 0.95)),
        saved_hours=float((usual - turnaround).sum()) / _HOUR,
        cost_usd=cost_usd,
        budget_share_spent=cost_usd / budget_usd if budget_usd > 0.0 else 0.0,
        moved_jobs=int(result.moved.sum()),
        later_share=float(later.mean()),
        seconds=seconds,
    )


def _bounded_slowdowns(turnaround: Floats, run: Floats) -> Floats:
    """Turnaround over run time, at least 1; run times below tau count as tau."""
    return np.maximum(1.0, turnaround / np.maximum(run, TAU_SECONDS))
