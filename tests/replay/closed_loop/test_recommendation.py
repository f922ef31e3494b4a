"""The curve of hours against dollars, the intervals and the pick, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.replay.closed_loop import recommendation
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.own_jobs import that_fit, window
from advisor.replay.closed_loop.recommendation import (
    BudgetPoint,
    begin_of,
    by_week,
    curve_of,
    interval,
    pick_of,
    step_usd,
    worth_of_hour,
)
from advisor.replay.closed_loop.rehearse import Rehearsal
from advisor.replay.closed_loop.world import WorldOptions
from tests.replay.closed_loop.hand_made import log

WEEK = 7 * 86_400.0


def window_of(table: JobTable, *, weeks: int | None, machine: int) -> LoopJobs:
    fitting = that_fit(table, machine)
    return window(fitting, since=begin_of(fitting, weeks), machine=machine)


def point(usd: float, saved: float, weekly: Sequence[float] | None = None) -> BudgetPoint:
    """A budget that is spent, with hours in each of four weeks."""
    by_week = [saved / 4.0] * 4 if weekly is None else weekly
    return BudgetPoint(
        budget_share=0.0,
        usd=usd,
        cost_usd=usd,
        saved_hours=saved,
        saved_hours_low=0.0,
        saved_hours_high=saved,
        saved_hours_by_week=tuple(by_week),
        mean_wait_seconds=0.0,
        moved_jobs=1.0,
        later_share=0.0,
    )


def queue(weeks: int, jobs: int = 100) -> JobTable:
    """Every week two jobs at a time on one processor; the second one waits an hour."""
    return log(
        [(week * WEEK + pair * 3 * 3600.0, 1, 3600.0) for week in range(weeks) for pair in range(jobs // 2)
         for _ in range(2)],
        machine=1,
    )  # fmt: skip


CURVE = [point(10, 40), point(20, 60), point(100, 100)]  # a step's hour costs 0.25, 0.50 and 2 USD


@pytest.mark.parametrize(
    ("worth", "usd", "step", "next_step"),
    [(0.2, 0, None, 0.25), (0.3, 10, 0.25, 0.5), (1.9, 20, 0.5, 2.0), (2.1, 100, 2.0, None)],
)
def test_the_pick_is_the_last_step_whose_hours_are_worth_their_money(
    worth: float, usd: float, step: float | None, next_step: float | None
) -> None:
    pick = pick_of(CURVE, worth)
    assert (pick.usd, pick.step_usd, pick.next_step_usd) == (usd, step, next_step)
    assert (pick.next_usd is None) == (usd == 100)


def test_the_pick_depends_on_no_end_of_the_curve() -> None:
    assert pick_of(CURVE, 1.0).usd == pick_of(CURVE[:2], 1.0).usd == 20
    assert pick_of([point(5, 30), *CURVE], 1.0).usd == 20


def test_a_step_whose_hours_come_from_one_week_is_not_sure() -> None:
    """Its 5 hours a dollar are those of a single week, which three of ten draws do not have."""
    unsure = point(20, 140, [10.0, 10.0, 10.0, 110.0])
    assert step_usd(CURVE[0], unsure) == (pytest.approx(0.1), None)
    assert pick_of([CURVE[0], unsure], 1.0).usd == 10


def test_nothing_is_picked_where_the_smallest_budget_may_save_nothing() -> None:
    assert pick_of([point(10, 40, [-20.0, 50.0, -30.0, 40.0]), point(20, 60)], 1e9).usd == 0.0


def test_money_that_is_not_spent_makes_no_step() -> None:
    idle = replace(point(100, 60), cost_usd=20.0)
    assert step_usd(CURVE[1], idle) == (None, None)
    assert pick_of([*CURVE[:2], idle], 1e9).usd == 20


def test_an_hour_is_worth_what_the_mean_job_costs_in_the_cloud() -> None:
    jobs = window_of(queue(6), weeks=12, machine=1)
    assert worth_of_hour(jobs, 0.25) == 0.25


def test_the_interval_of_equal_weeks_is_a_point_and_widens_with_their_difference() -> None:
    assert interval(np.full(8, 5.0)) == (5.0, 5.0)
    low, high = interval(np.array([0.0, 10.0] * 6))
    assert 1.0 < low < 5.0 < high < 9.0
    assert low + high == pytest.approx(10.0, abs=0.2)


def test_savings_are_summed_by_week() -> None:
    jobs = window_of(queue(6), weeks=12, machine=1)
    assert by_week(jobs, np.ones(len(jobs)), 6).sum() == 600
    assert by_week(jobs, np.arange(600.0), 2).tolist() == [sum(range(300)), sum(range(300, 600))]


def test_the_window_is_the_last_weeks_of_what_ran_and_fits() -> None:
    table = queue(8)
    table.run[-1] = np.nan
    table.processors[-2] = 64
    jobs = window_of(table, weeks=6, machine=1)
    assert (jobs.machine, jobs.first + len(jobs)) == (1, 798)
    assert 5.5 * WEEK < jobs.span <= 6 * WEEK


def test_where_there_are_too_many_jobs_only_the_newest_are_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommendation, "MAX_JOBS", 550)
    jobs = window_of(queue(8), weeks=None, machine=1)
    assert (jobs.first, len(jobs)) == (250, 550)
    assert len(window_of(queue(8), weeks=7, machine=1)) > 550


def test_a_window_of_days_has_four_parts_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommendation, "MAX_JOBS", 50)
    jobs = window_of(queue(8), weeks=None, machine=1)
    asked = Rehearsal(policies=("price",), world=WorldOptions(budget_share=0.0), usd_per_core_hour=0.05)
    curve = curve_of(jobs, asked, (1.0,))
    assert curve.weeks == 1
    assert {len(point.saved_hours_by_week) for point in curve.points} == {4}


@pytest.mark.parametrize(
    "table",
    [
        log([(60.0 * row, 1, 10.0) for row in range(600)], machine=1),
        queue(8, 20),
        queue(8).select(slice(0, 0)),
    ],
)
def test_too_little_history_is_refused(table: JobTable) -> None:
    with pytest.raises(BadInput, match="500 jobs of 28 days") as caught:
        window_of(table, weeks=12, machine=1)
    assert "advisor ingest" in caught.value.mend
    assert caught.value.code == "recommend.short"


def test_more_money_saves_more_and_none_is_overspent() -> None:
    runs = np.random.default_rng(5).choice([300.0, 1800.0, 9000.0], size=1200)
    table = log([(row * 3600.0, 1, run, 14_400.0) for row, run in enumerate(runs)], machine=1)
    jobs = window_of(table, weeks=6, machine=1)
    asked = Rehearsal(policies=("price",), world=WorldOptions(), usd_per_core_hour=0.1)
    told: list[int] = []
    curve = curve_of(jobs, asked, [3.0], lambda _what, done, _total: told.append(done))
    usd = [one.usd for one in curve.points]
    saved = [one.saved_hours for one in curve.points]
    assert usd == sorted(usd)
    assert len(usd) == 7
    assert 3.0 in usd
    assert told
    assert saved[-1] > saved[0] > 0.0
    for one in curve.points:
        assert one.cost_usd <= one.usd
        assert one.saved_hours_low <= one.saved_hours <= one.saved_hours_high
        assert one.mean_wait_seconds < curve.mean_wait_seconds
