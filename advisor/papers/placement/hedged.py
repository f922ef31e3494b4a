"""Hedged starts of a log's jobs: the price learned from jobs that had ended, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Bools, Floats
from advisor.compiled import compiled
from advisor.model.table import JobTable
from advisor.papers.forests.distribution import EDGES
from advisor.papers.placement._hedge_curves import at_prices, expected_curves, stays
from advisor.papers.placement.forecast_rows import ForecastColumns
from advisor.papers.placement.hedge_lives import STOP_AT_ONE, HedgeLives, HedgeTable
from advisor.papers.placement.hedging import PRICES, STOPS
from advisor.papers.placement.pacing import Pacer
from advisor.predict.knn.known import Target

Rows = NDArray[np.int64]

BUDGETS: Final = (0.5, 1.0, 1.5, 2.0)
"""Multiples of the clairvoyant's core-seconds."""
_TIMES: Final[Floats] = np.concatenate([[0.0, 5.0], (EDGES[2:-1] + EDGES[3:]) / 2.0])
"""Seconds that stand for the bins of a distribution: a job that starts within a second does not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgeOutcome:
    """What hedging with one budget did for one overhead.

    Attributes:
        budget: Multiple of the clairvoyant's core-seconds that might be spent.
        fraction_of_optimal: Saved turnaround as a share of the clairvoyant's.
        saved_seconds, lost_seconds: Sum over the jobs, and the part of those that ended later than if they
            had waited.
        cloud_core_hours: Spent.
        core_hours_vs_optimal: As a multiple of the clairvoyant's.
        hedged_jobs: Jobs that started in the cloud.
        restarted_share: Share of them that ran on-premise in the end.
    """

    budget: float
    fraction_of_optimal: float | None
    saved_seconds: float
    lost_seconds: float
    cloud_core_hours: float
    core_hours_vs_optimal: float | None
    hedged_jobs: int
    restarted_share: float


def hedge_table(
    table: JobTable, forecasts: dict[Target, ForecastColumns], factor: float, baseline: float
) -> HedgeTable:
    """Work out every forecast row at every price (`PRICES`), on the truth of the log.

    Rows without a forecast are never hedged. What a job would have cost at other prices is known only when it
    has ended; :func:`replay_hedged` sees to that.
    """
    rows = forecasts["wait"].rows
    jobs = _without_forecast(table, rows, factor, baseline)
    jobs = replace(
        jobs,
        limit=np.where(np.isnan(table.requested_time[rows]), np.inf, table.requested_time[rows]),
        seconds=np.zeros((len(rows), len(PRICES)), np.float32),
        gain=np.full((len(rows), len(STOPS)), np.nan),
        stay_seconds=np.full((len(rows), len(STOPS)), np.nan),
    )
    _fill(
        forecasts["wait"].mass,
        forecasts["run"].mass,
        jobs.limit,
        jobs.slowdown,
        jobs.processors,
        jobs.wait,
        jobs.run,
        jobs.seconds,
        jobs.gain,
        jobs.stay_seconds,
        jobs.stays,
    )
    return jobs


@compiled
def _fill(  # noqa: PLR0917 (compiled functions take positions only)
    wait_mass: Floats,
    run_mass: Floats,
    limit: Floats,
    slowdown: Floats,
    processors: Floats,
    wait: Floats,
    run: Floats,
    seconds: NDArray[np.float32],
    gain: Floats,
    stay_seconds: Floats,
    stay: Bools,
) -> None:
    for n in range(len(wait)):
        if np.isnan(wait_mass[n, 0]) or np.isnan(run_mass[n, 0]):
            continue
        runs = np.minimum(_TIMES, limit[n])
        expected_curves(wait_mass[n], _TIMES, run_mass[n], runs, slowdown[n], STOPS, gain[n], stay_seconds[n])
        stay[n] = stays(run_mass[n], runs, slowdown[n], wait[n])
        at_prices(
            gain[n],
            stay_seconds[n],
            slowdown[n],
            processors[n],
            wait[n],
            run[n],
            stay[n],
            STOPS,
            PRICES,
            seconds[n],
        )


def stop_loss_table(table: JobTable, rows: Rows, factor: float, baseline: float) -> HedgeTable:
    """Work out the same without any forecast: one stop-loss in core-seconds for all jobs.

    A price stands for a stop-loss of ``1e5 / price`` core-seconds; a job whose slot comes is always
    restarted, since nobody says how long it still takes. Forecasts have to beat this.
    """
    jobs = _without_forecast(table, rows, factor, baseline)
    stop = (STOP_AT_ONE / PRICES)[None, :] / jobs.processors[:, None]
    longest = np.minimum(jobs.slowdown * jobs.run, jobs.wait)[:, None]
    return replace(jobs, seconds=np.minimum(longest, stop).astype(np.float32))


def _without_forecast(table: JobTable, rows: Rows, factor: float, baseline: float) -> HedgeTable:
    """The truth of the rows, and what the clairvoyant does; nothing is forecast, and no limit known."""
    processors = table.processors[rows].astype(np.float64)
    wait, run = np.maximum(table.wait[rows], 0.0), table.run[rows].astype(np.float64)
    slowdown = factor * processors + baseline
    won = wait + run - slowdown * run
    nothing = np.empty((len(rows), 0))
    return HedgeTable(
        seconds=np.empty((len(rows), 0), np.float32),
        gain=nothing,
        stay_seconds=nothing,
        stays=np.zeros(len(rows), np.bool_),
        processors=processors,
        slowdown=slowdown,
        limit=np.full(len(rows), np.inf),
        wait=wait,
        run=run,
        optimal=np.where(won > 0, processors * slowdown * run, 0.0),
        optimal_saved=np.maximum(won, 0.0),
    )


def replay_hedged(table: JobTable, rows: Rows, jobs: HedgeTable, first: int, budget: float) -> HedgeOutcome:
    """Hedge the jobs from `first` on for a number of core-seconds given in advance, which is never exceeded.

    Args:
        table: The whole log.
        rows: int64, shape (jobs,): Rows of `jobs`, in submission order.
        jobs: Of those rows.
        first: Index into `rows` of the first job of the budget's period; it ends with the last one's
            submission.
        budget: The number, as a multiple of the clairvoyant's core-seconds in the period.
    """
    submit = table.submit[rows]
    end = submit + jobs.wait + jobs.run
    allowed = budget * float(jobs.optimal[first:].sum())
    lives = HedgeLives(jobs, submit, allowed)
    pacer = Pacer()
    ended = iter(np.argsort(end, kind="stable").tolist())
    upcoming = next(ended, None)
    cost = jobs.seconds * jobs.processors[:, None]
    for index in range(first, len(rows)):
        now = float(submit[index])
        lives.settle(now)
        while upcoming is not None and end[upcoming] < now:
            pacer.remember(float(submit[upcoming]), cost[upcoming])
            upcoming = next(ended, None)
        level = pacer.level(now, lives.budget.unspent, float(submit[-1]) - now)
        if level is not None:
            lives.hedge(index, float(PRICES[level]))
    lives.settle(np.inf)
    optimum = float(jobs.optimal_saved[first:].sum())
    optimal = float(jobs.optimal[first:].sum())
    spent = lives.budget.spent
    return HedgeOutcome(
        budget=budget,
        fraction_of_optimal=lives.saved / optimum if optimum > 0 else None,
        saved_seconds=lives.saved,
        lost_seconds=lives.lost,
        cloud_core_hours=spent / 3600.0,
        core_hours_vs_optimal=spent / optimal if optimal > 0 else None,
        hedged_jobs=lives.hedged,
        restarted_share=lives.restarted / lives.hedged if lives.hedged else 0.0,
    )


def hedge_rows(
    table: JobTable,
    forecasts: dict[Target, ForecastColumns],
    first: int,
    factor: float,
    baseline: float,
    budgets: tuple[float, ...],
) -> tuple[HedgeOutcome, ...]:
    """Replay one overhead with each budget."""
    jobs = hedge_table(table, forecasts, factor, baseline)
    rows = forecasts["wait"].rows
    return tuple(replay_hedged(table, rows, jobs, first, budget) for budget in budgets)


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgePoint:
    """Mean over the overheads of what a budget buys, with and without forecasts."""

    budget: float
    with_forecasts: float
    core_hours_with_forecasts: float
    without_forecasts: float
    core_hours_without_forecasts: float


CURVE_BUDGETS: Final = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


def hedge_curve(
    table: JobTable,
    forecasts: dict[Target, ForecastColumns],
    first: int,
    factors: tuple[float, ...],
    baseline: float,
    tick: Callable[[int], None],
) -> tuple[HedgePoint, ...]:
    """Time saved against core-hours, from a tenth to four times the clairvoyant's."""
    rows = forecasts["wait"].rows
    found = np.zeros((len(CURVE_BUDGETS), 2, 2))
    for factor in factors:
        pair = (
            hedge_table(table, forecasts, factor, baseline),
            stop_loss_table(table, rows, factor, baseline),
        )
        for way, jobs in enumerate(pair):
            for number, budget in enumerate(CURVE_BUDGETS):
                one = replay_hedged(table, rows, jobs, first, budget)
                found[number, way] += one.fraction_of_optimal or 0.0, one.core_hours_vs_optimal or 0.0
        tick(1)
    found /= len(factors)
    return tuple(
        HedgePoint(
            budget=budget,
            with_forecasts=float(each[0, 0]),
            core_hours_with_forecasts=float(each[0, 1]),
            without_forecasts=float(each[1, 0]),
            core_hours_without_forecasts=float(each[1, 1]),
        )
        for budget, each in zip(CURVE_BUDGETS, found, strict=True)
    )
