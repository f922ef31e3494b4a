"""The curve of hours against dollars, the intervals and the pick, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.model import BadInput
from advisor.model.table import JobTable
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.own_jobs import that_fit, window
from advisor.replay.closed_loop.recommendation import (
    BudgetPoint,
    begin_of,
    by_week,
    curve_of,
    interval,
    pick_of,
)
from advisor.replay.closed_loop.rehearse import Rehearsal
from advisor.replay.closed_loop.world import WorldOptions
from tests.replay.closed_loop.hand_made import log

WEEK = 7 * 86_400.0


def window_of(table: JobTable, *, weeks: int, machine: int) -> LoopJobs:
    fitting = that_fit(table, machine)
    return window(fitting, since=begin_of(fitting, weeks), machine=machine)


def point(usd: float, saved: float, low: float = 1.0) -> BudgetPoint:
    return BudgetPoint(
        budget_share=0.0,
        usd=usd,
        cost_usd=usd,
        saved_hours=saved,
        saved_hours_low=low,
        saved_hours_high=saved,
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


def test_the_pick_is_the_knee() -> None:
    # the mean dollar of 100 USD saves 1 h; the steps save 4, 2, and then 0.5 h
    pick = pick_of([point(10, 40), point(20, 60), point(100, 100)])
    assert (pick.usd, pick.mean_saves, pick.next_saves) == (20, 1.0, 0.5)


def test_the_largest_budget_is_picked_where_each_dollar_saves_the_same() -> None:
    pick = pick_of([point(10, 20), point(20, 40), point(100, 200)])
    assert (pick.usd, pick.next_saves) == (100, None)


def test_nothing_is_picked_where_the_smallest_budget_may_save_nothing() -> None:
    assert pick_of([point(10, 40, low=-1.0), point(20, 60)]).usd == 0.0


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
    assert len(usd) == 6
    assert 3.0 in usd
    assert told
    assert saved[-1] > saved[0] > 0.0
    for one in curve.points:
        assert one.cost_usd <= one.usd
        assert one.saved_hours_low <= one.saved_hours <= one.saved_hours_high
        assert one.mean_wait_seconds < curve.mean_wait_seconds
