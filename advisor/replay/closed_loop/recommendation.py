"""Hours saved against dollars a month, from a site's own jobs in the closed loop, and the budget to pick.

Each budget is rehearsed once over the whole window. Its interval comes from the weeks of the window, which
are drawn again with replacement: it says how much the weeks differ, not how well the simulation fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.replay.closed_loop.fidelity import Fidelity, fidelity_of
from advisor.replay.closed_loop.log import Floats, LoopJobs
from advisor.replay.closed_loop.measures import measured
from advisor.replay.closed_loop.policies import ALL_ON_PREMISE, Terms
from advisor.replay.closed_loop.rehearse import Rehearsal
from advisor.replay.closed_loop.tasks import Task, Tick, run_tasks
from advisor.replay.closed_loop.world import Policy, World

SHARES: Final = (0.005, 0.01, 0.02, 0.05, 0.10)
"""Budgets of the curve: the on-demand price of these shares of a month's core-hours."""
MIN_WEEKS: Final = 4
MIN_JOBS: Final = 500
PRICE: Final = "price"

_WEEK: Final = 7 * 86_400.0
_MONTH: Final = 365.25 / 12 * 86_400.0
_HOUR: Final = 3600.0
_DRAWS: Final = 2_000
_SEED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPoint:
    """One budget, rehearsed; dollars and hours of a mean month.

    Attributes:
        budget_share: The budget over the on-demand price of all core-hours.
        usd: The budget.
        cost_usd: What was spent of it.
        saved_hours: Turnaround of all jobs against all on-premise, with the 5th and the 95th percentile.
        mean_wait_seconds: Of all jobs.
        later_share: Jobs that take more than 60 s and 1 % longer than all on-premise.
    """

    budget_share: float
    usd: float
    cost_usd: float
    saved_hours: float
    saved_hours_low: float
    saved_hours_high: float
    mean_wait_seconds: float
    moved_jobs: float
    later_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Budgets in ascending order, beside the same weeks all on-premise."""

    weeks: int
    core_hours: float
    mean_wait_seconds: float
    points: tuple[BudgetPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The budget to set; 0 where none is worth it.

    Attributes:
        mean_saves: Hours that a dollar of the largest budget saves on average.
        next_saves: Hours that a dollar saves in the step to the next larger budget; None without one.
    """

    usd: float
    mean_saves: float
    next_saves: float | None


def begin_of(fitting: JobTable, weeks: int) -> float:
    """When the last weeks of a history begin, in its seconds; with its first job where it is shorter.

    Args:
        fitting: In submission order; see :func:`~advisor.replay.closed_loop.own_jobs.that_fit`.
        weeks: Of the window.

    Raises:
        BadInput: Fewer than four weeks, or fewer than 500 jobs (``recommend.short``).
    """
    submit = fitting.submit
    skip = int(np.searchsorted(submit, submit[-1] - weeks * _WEEK)) if len(submit) else 0
    days = float(submit[-1] - submit[skip]) / 86_400.0 if len(submit) else 0.0
    if round(days / 7.0) < MIN_WEEKS or len(submit) - skip < MIN_JOBS:
        raise BadInput(
            f"the history has {len(submit) - skip:,} jobs of {days:.0f} days; a recommendation needs "
            f"{MIN_JOBS:,} jobs of {7 * MIN_WEEKS} days",
            where="history",
            mend="Add older jobs: `advisor ingest sacct --since 2026-01-31` (a date of yours), or wait",
            code="recommend.short",
        )
    return float(submit[skip])


def curve_of(jobs: LoopJobs, asked: Rehearsal, usd: Sequence[float], tick: Tick | None = None) -> Curve:
    """Rehearse the price with several budgets.

    Args:
        jobs: The window.
        asked: The cloud, its price, and the number of processes.
        usd: Budgets of a month beside the usual shares, whose budgets are rounded to two digits.
    """
    months = jobs.span / _MONTH
    all_usd = jobs.core_seconds / _HOUR * asked.usd_per_core_hour / months
    budgets = sorted({*usd, *(float(f"{share * all_usd:.2g}") for share in SHARES)})
    tasks = [
        Task(name=ALL_ON_PREMISE, jobs=jobs, world=asked.world, terms=Terms(policy=ALL_ON_PREMISE)),
        *(
            Task(
                name=f"{one:g} USD a month",
                jobs=jobs,
                world=replace(asked.world, budget_share=one / all_usd),
                terms=Terms(policy=PRICE),
            )
            for one in budgets
        ),
    ]
    here, *results = (done.result for done in run_tasks(tasks, processes=asked.processes, tick=tick))
    weeks = max(1, round(jobs.span / _WEEK))
    points = []
    for result, budget in zip(results, budgets, strict=True):
        row = measured(
            PRICE,
            jobs,
            result,
            here,
            budget_usd=budget * months,
            usd_per_core_hour=asked.usd_per_core_hour,
            seconds=0.0,
        )
        low, high = interval(by_week(jobs, (here.end - result.end) / _HOUR, weeks))
        points.append(
            BudgetPoint(
                budget_share=budget / all_usd,
                usd=budget,
                cost_usd=row.cost_usd / months,
                saved_hours=row.saved_hours / months,
                saved_hours_low=low * weeks / months,
                saved_hours_high=high * weeks / months,
                mean_wait_seconds=row.mean_wait_seconds,
                moved_jobs=row.moved_jobs / months,
                later_share=row.later_share,
            )
        )
    return Curve(
        weeks=weeks,
        core_hours=jobs.core_seconds / _HOUR / months,
        mean_wait_seconds=float((here.end - jobs.submit - jobs.run).mean()),
        points=tuple(points),
    )


def by_week(jobs: LoopJobs, amount: Floats, weeks: int) -> Floats:
    """Sums of an amount of each job, shape ``(n,)``, over equally long parts of the window: ``(weeks,)``."""
    week = ((jobs.submit - jobs.submit[0]) / max(jobs.span, 1.0) * weeks).astype(np.int64)
    return np.bincount(np.minimum(week, weeks - 1), weights=amount, minlength=weeks).astype(np.float64)


def interval(weekly: Floats) -> tuple[float, float]:
    """The 5th and 95th percentile of the weeks' mean, with weeks drawn again (percentile bootstrap)."""
    drawn = np.random.default_rng(_SEED).integers(len(weekly), size=(_DRAWS, len(weekly)))
    low, high = np.quantile(weekly[drawn].mean(axis=1), (0.05, 0.95))
    return float(low), float(high)


def pick_of(points: Sequence[BudgetPoint]) -> Pick:
    """The knee of the curve: from it on, a dollar saves less than the mean dollar of the largest budget.

    Args:
        points: Budgets above 0, in ascending order.
    """
    mean = points[-1].saved_hours / points[-1].usd
    if points[0].saved_hours_low <= 0.0:
        return Pick(usd=0.0, mean_saves=mean, next_saves=None)
    for one, larger in pairwise(points):
        saves = (larger.saved_hours - one.saved_hours) / (larger.usd - one.usd)
        if saves < mean:
            return Pick(usd=one.usd, mean_saves=mean, next_saves=saves)
    return Pick(usd=points[-1].usd, mean_saves=mean, next_saves=None)


def fidelity_of_site(here: LoopJobs, asked: Rehearsal) -> Fidelity:
    """Compare the simulation of the jobs that ran on-premise with what happened to them."""
    return fidelity_of(here, World(here, asked.world, Policy()).run())
