"""`advisor plan`: how many cores a site should own; sizes and budgets for the cloud in a closed loop.

Owned cores cost their price all the time, those of the cloud while they are used. Of the pairs of a size and
a budget whose mean wait is no longer than the target, the cheapest is the answer. A job that is wider than a
size runs in the cloud at once there, on money beside the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.parallel import Tick
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.measures import measured
from advisor.replay.closed_loop.policies import ALL_ON_PREMISE, Terms
from advisor.replay.closed_loop.tasks import Task, run_tasks
from advisor.replay.closed_loop.world import LoopResult, WorldOptions

SIZES: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
"""Cores owned, as shares of the present ones."""
SHARES: Final = (0.05, 0.1, 0.2, 0.4)
"""Budgets, as shares of the window's core-hours at the on-demand price."""

_YEAR: Final = 365.25 * 86_400.0
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of the plan.

    Attributes:
        usd_per_core_hour, own_usd_per_core_hour: On-demand, and of an owned or reserved core.
        node_cores: Cores of a node: sizes are whole nodes.
        target_wait_seconds: Longest mean wait; None: that of the present size all on-premise.
        processes: Simulations at the same time.
    """

    world: WorldOptions
    terms: Terms
    usd_per_core_hour: float
    own_usd_per_core_hour: float
    node_cores: int = 1
    target_wait_seconds: float | None = None
    processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePoint:
    """One size with one budget; dollars of a year.

    Attributes:
        own_usd_a_year, cloud_usd_a_year: Cost of the owned cores, and what is spent in the cloud.
        meets_target: Whether the mean wait is no longer than the target.
    """

    nodes: int
    cores: int
    budget_usd_a_year: float
    own_usd_a_year: float
    cloud_usd_a_year: float
    cost_usd_a_year: float
    mean_wait_seconds: float
    mean_bounded_slowdown: float
    moved_jobs: int
    meets_target: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The answer.

    Attributes:
        target_wait_seconds: Longest mean wait.
        optimum: The cheapest that meets the target; None: none does.
        on_premise: The present size, all on-premise.
    """

    target_wait_seconds: float
    curve: tuple[SizePoint, ...]
    optimum: SizePoint | None
    on_premise: LoopResult


def sized(jobs: LoopJobs, plan: Plan, tick: Tick | None = None) -> Sizing:
    """Simulate the sizes and budgets.

    Args:
        jobs: The window, on the present size.
    """
    pairs = pairs_of(jobs, plan.node_cores)
    present = jobs.machine, 0.0
    cells = [present, *(pair for pair in pairs if pair != present)]
    done = run_tasks([_task(jobs, plan, *cell) for cell in cells], processes=plan.processes, tick=tick)
    here = done[0].result
    usual = measured(
        ALL_ON_PREMISE, jobs, here, here, budget_usd=0.0, usd_per_core_hour=0.0, seconds=0.0
    ).mean_wait_seconds
    target = usual if plan.target_wait_seconds is None else plan.target_wait_seconds
    curve = sorted(
        (_point(jobs, plan, cell, one.result, here, target) for cell, one in zip(cells, done, strict=True)),
        key=lambda point: (point.cores, point.budget_usd_a_year),
    )
    enough = [point for point in curve if point.meets_target]
    best = min(enough, key=lambda point: point.cost_usd_a_year, default=None)
    return Sizing(target_wait_seconds=target, curve=tuple(curve), optimum=best, on_premise=here)


def pairs_of(jobs: LoopJobs, node_cores: int) -> Sequence[tuple[int, float]]:
    """Cores and budget shares that are simulated.

    Left out are pairs whose queue would grow without end.
    """
    span = max(jobs.span, 1.0)
    sizes = {node_cores * max(1, round(share * jobs.machine / node_cores)) for share in SIZES}
    return [
        (cores, share)
        for cores in sorted({*sizes, jobs.machine})
        for share in (0.0, *SHARES)
        if cores > (narrow(jobs, cores).core_seconds - share * jobs.core_seconds) / span
    ]


def narrow(jobs: LoopJobs, cores: int) -> LoopJobs:
    """The jobs that fit so many cores, on a machine of that size, with memory and GPUs in proportion."""
    nodes = jobs.on_premise
    if nodes is None:
        fits = jobs.table.processors <= cores
    else:
        sizes = nodes.sizes * cores // jobs.machine
        fits = nodes._replace(sizes=sizes).which_fit()
    here = fits[jobs.first : jobs.first + len(jobs)]
    return replace(
        jobs,
        table=jobs.table.select(fits),
        first=int(np.count_nonzero(fits[: jobs.first])),
        submit=jobs.submit[here],
        limit=jobs.limit[here],
        run=jobs.run[here],
        processors=jobs.processors[here],
        machine=cores,
        may_move=None if jobs.may_move is None else jobs.may_move[fits],
        may_be_stopped=None if jobs.may_be_stopped is None else jobs.may_be_stopped[fits],
        on_premise=None if nodes is None else nodes._replace(sizes=sizes).of(fits),
    )


def _task(jobs: LoopJobs, plan: Plan, cores: int, share: float) -> Task:
    fitting = narrow(jobs, cores)
    share_of_fitting = share * jobs.core_seconds / fitting.core_seconds
    return Task(
        name=f"{cores:,} cores" if not share else f"{cores:,} cores and {100 * share:g} %",
        jobs=fitting,
        world=replace(plan.world, budget_share=share_of_fitting),
        terms=plan.terms if share else Terms(policy=ALL_ON_PREMISE),
    )


def _point(
    jobs: LoopJobs,
    plan: Plan,
    cell: tuple[int, float],
    result: LoopResult,
    here: LoopResult,
    target: float,
) -> SizePoint:
    cores, share = cell
    years = max(jobs.span, 1.0) / _YEAR
    budget = share * jobs.core_seconds / _HOUR * plan.usd_per_core_hour
    row = measured(
        plan.terms.policy,
        jobs,
        _of_all(jobs, plan.world, cores, result),
        here,
        budget_usd=budget,
        usd_per_core_hour=plan.usd_per_core_hour,
        seconds=0.0,
    )
    own = plan.own_usd_per_core_hour * cores * _YEAR / _HOUR
    return SizePoint(
        nodes=-(-cores // plan.node_cores),
        cores=cores,
        budget_usd_a_year=budget / years,
        own_usd_a_year=own,
        cloud_usd_a_year=row.cost_usd / years,
        cost_usd_a_year=own + row.cost_usd / years,
        mean_wait_seconds=row.mean_wait_seconds,
        mean_bounded_slowdown=row.mean_bounded_slowdown,
        moved_jobs=row.moved_jobs,
        meets_target=row.mean_wait_seconds <= target,
    )


def _of_all(jobs: LoopJobs, world: WorldOptions, cores: int, result: LoopResult) -> LoopResult:
    """A result with the jobs that are wider than the size: they ran in the cloud at once."""
    wide = jobs.processors > cores
    seconds = world.slowdown * jobs.run
    end = jobs.submit + world.boot_seconds + seconds
    cost = jobs.processors * (seconds + (world.boot_seconds if world.bills_boot else 0.0)) * wide
    moved = wide.copy()
    end[~wide], cost[~wide], moved[~wide] = result.end, result.cost, result.moved
    return LoopResult(end=end, cost=cost, moved=moved)
