"""`advisor recommend`: hours saved against dollars a month, from the site's own jobs, and a budget to pick.

Each budget is rehearsed once over the whole window. Its interval comes from the weeks of the window, which
are drawn again with replacement: it says how much the weeks differ, not how well the simulation fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.parallel import Tick
from advisor.replay.closed_loop.fidelity import Fidelity, fidelity_of
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.measures import measured
from advisor.replay.closed_loop.policies import ALL_ON_PREMISE, Terms
from advisor.replay.closed_loop.rehearse import Rehearsal
from advisor.replay.closed_loop.tasks import Task, run_tasks
from advisor.replay.closed_loop.world import LoopResult, Policy, World, WorldOptions

SHARES: Final = (0.005, 0.01, 0.02, 0.05, 0.10, 0.20)
"""Budgets of the curve: the on-demand price of these shares of a month's core-hours."""
WEEKS: Final = 12
MIN_WEEKS: Final = 4
MIN_JOBS: Final = 500
MAX_JOBS: Final = 500_000
"""Seven simulations of so many jobs take one core about three quarters of an hour. The weekly timer makes 35,
and ends after four hours."""
PRICE: Final = Terms(policy="price")

_WEEK: Final = 7 * 86_400.0
_MONTH: Final = 365.25 / 12 * 86_400.0
_HOUR: Final = 3600.0
_NO_STEP: Final[tuple[float | None, float | None]] = (None, None)
_DRAWS: Final = 2_000
_SEED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPoint:
    """One budget, rehearsed; dollars and hours of a mean month.

    Attributes:
        budget_share: The budget over the on-demand price of all core-hours.
        saved_hours: Turnaround of all jobs against all on-premise, with the 5th and the 95th percentile.
        saved_hours_by_week: The same in each of the window's equally long parts, at least four, of about a
            week; not by month.
        later_share: Jobs that take more than 60 s and 1 % longer than all on-premise.
    """

    budget_share: float
    usd: float
    cost_usd: float
    saved_hours: float
    saved_hours_low: float
    saved_hours_high: float
    saved_hours_by_week: tuple[float, ...]
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
        worth_usd: What an hour saved is worth, US dollars.
        step_usd, step_usd_high: What an hour costs that the last step up to the budget saves, and its 95th
            percentile over the weeks; None: no step, or it may save nothing.
        next_usd: The next larger budget of the curve; None without one.
        next_step_usd, next_step_usd_high: The same of the step to it.
    """

    usd: float
    worth_usd: float
    step_usd: float | None = None
    step_usd_high: float | None = None
    next_usd: float | None = None
    next_step_usd: float | None = None
    next_step_usd_high: float | None = None


def begin_of(fitting: JobTable, weeks: int | None) -> float:
    """When the last weeks of a history begin, in its seconds; with its first job where it is shorter.

    Args:
        fitting: The jobs in submission order; see :func:`~advisor.replay.closed_loop.own_jobs.that_fit`.
        weeks: None: `WEEKS`, or as many of them, to their end, as have no more than `MAX_JOBS` jobs.

    Raises:
        BadInput: Fewer than four weeks, or fewer than 500 jobs (``recommend.short``).
    """
    submit, most = fitting.submit, len(fitting)
    if weeks is None:
        weeks, most = WEEKS, MAX_JOBS
    skip = int(np.searchsorted(submit, submit[-1] - weeks * _WEEK)) if len(submit) else 0
    days = float(submit[-1] - submit[skip]) / 86_400.0 if len(submit) else 0.0
    if round(days / 7.0) < MIN_WEEKS or len(submit) - skip < MIN_JOBS:
        raise BadInput(
            f"the history's last {weeks} weeks have {len(submit) - skip:,} jobs of {days:.0f} days; a "
            f"recommendation needs {MIN_JOBS:,} jobs of {7 * MIN_WEEKS} days, and older ones do not count",
            where="history",
            mend="`advisor ingest sacct` (LSF: `advisor ingest lsb.acct FOLDER`) adds what the accounting "
            "has of these weeks; else wait",
            code="recommend.short",
        )
    return float(submit[max(skip, len(submit) - most)])


def curve_of(
    jobs: LoopJobs,
    asked: Rehearsal,
    usd: Sequence[float],
    tick: Tick | None = None,
    terms: Terms = PRICE,
) -> Curve:
    """Rehearse the price with several budgets.

    Args:
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
                terms=terms,
            )
            for one in budgets
        ),
    ]
    here, *results = (done.result for done in run_tasks(tasks, processes=asked.processes, tick=tick))
    return Curve(
        weeks=_weeks(jobs),
        core_hours=jobs.core_seconds / _HOUR / months,
        mean_wait_seconds=float((here.end - jobs.submit - jobs.run).mean()),
        points=tuple(
            _point(jobs, result, here, budget, budget / all_usd, asked.usd_per_core_hour)
            for result, budget in zip(results, budgets, strict=True)
        ),
    )


def _weeks(jobs: LoopJobs) -> int:
    return max(1, round(jobs.span / _WEEK))


def _point(
    jobs: LoopJobs, result: LoopResult, here: LoopResult, usd: float, share: float, usd_per_core_hour: float
) -> BudgetPoint:
    """A budget's result (``usd`` a month, as a ``share`` of all core-hours) beside all on-premise."""
    months, weeks = jobs.span / _MONTH, max(MIN_WEEKS, _weeks(jobs))
    row = measured(
        PRICE.policy,
        jobs,
        result,
        here,
        budget_usd=usd * months,
        usd_per_core_hour=usd_per_core_hour,
        seconds=0.0,
    )
    weekly = by_week(jobs, (here.end - result.end) / _HOUR, weeks)
    low, high = interval(weekly)
    return BudgetPoint(
        budget_share=share,
        usd=usd,
        cost_usd=row.cost_usd / months,
        saved_hours=row.saved_hours / months,
        saved_hours_low=low * weeks / months,
        saved_hours_high=high * weeks / months,
        saved_hours_by_week=tuple(weekly.tolist()),
        mean_wait_seconds=row.mean_wait_seconds,
        moved_jobs=row.moved_jobs / months,
        later_share=row.later_share,
    )


def by_week(jobs: LoopJobs, amount: Floats, weeks: int) -> Floats:
    """Sums of an amount of each job, shape ``(n,)``, over equally long parts of the window: ``(weeks,)``."""
    week = ((jobs.submit - jobs.submit[0]) / max(jobs.span, 1.0) * weeks).astype(np.int64)
    return np.bincount(np.minimum(week, weeks - 1), weights=amount, minlength=weeks).astype(np.float64)


def interval(weekly: Floats) -> tuple[float, float]:
    """The 5th and the 95th percentile of the weekly mean, with weeks drawn again (percentile bootstrap)."""
    drawn = np.random.default_rng(_SEED).integers(len(weekly), size=(_DRAWS, len(weekly)))
    low, high = np.quantile(weekly[drawn].mean(axis=1), (0.05, 0.95))
    return float(low), float(high)


def pick_of(points: Sequence[BudgetPoint], worth_usd: float) -> Pick:
    """The largest budget up to which every step saves hours that surely cost no more than they are worth.

    Dollars are those spent; the hours of a step are those of the 5th percentile over the weeks, which are
    drawn together for both of its budgets: what a busy week does to one it does to the other. The curve has
    no knee of its own (KTH, HPC2N, CTC: from 0.5 to 10 % twice the money saves 15 to 70 % more hours at each
    point), so that a rule without a worth of an hour picks an end of the curve or a share of it.

    Args:
        points: Budgets above 0, in ascending order.
        worth_usd: What an hour saved is worth, US dollars.
    """
    usd, step = 0.0, _NO_STEP
    before: BudgetPoint | None = None
    for point in points:
        expected, high = step_usd(before, point)
        if high is None or high > worth_usd:
            return Pick(
                usd=usd,
                worth_usd=worth_usd,
                step_usd=step[0],
                step_usd_high=step[1],
                next_usd=point.usd,
                next_step_usd=expected,
                next_step_usd_high=high,
            )
        usd, step, before = point.usd, (expected, high), point
    return Pick(usd=usd, worth_usd=worth_usd, step_usd=step[0], step_usd_high=step[1])


def step_usd(one: BudgetPoint | None, larger: BudgetPoint) -> tuple[float | None, float | None]:
    """US dollars spent for an hour that a step saves, and their 95th percentile; None: it saves nothing.

    Args:
        one: The smaller budget; None for no budget.
        larger: The larger one.
    """
    spent = larger.cost_usd - (one.cost_usd if one else 0.0)
    if spent <= 0.0:
        return None, None
    weekly = np.array(larger.saved_hours_by_week)
    if one:
        weekly = weekly - np.array(one.saved_hours_by_week)
    saved = larger.saved_hours - (one.saved_hours if one else 0.0)
    if not weekly.sum() > 0.0:
        return None, None
    low = saved * interval(weekly)[0] / float(weekly.mean())
    return spent / saved, spent / low if low > 0.0 else None


def worth_of_hour(jobs: LoopJobs, usd_per_core_hour: float) -> float:
    """The default worth of an hour of a job: the cost of an hour of the mean job in the cloud, US dollars."""
    return float(jobs.processors.mean()) * usd_per_core_hour


def fidelity_of_site(here: LoopJobs, world: WorldOptions) -> Fidelity:
    """Compare the simulation of the jobs that ran on-premise with what happened to them."""
    return fidelity_of(here, World(here, world, Policy()).run())
