"""Hedged starts on a log: nothing looked ahead, nothing lost, budgets kept."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.papers.forests.distribution import ForestSettings
from advisor.papers.placement._hedge_curves import FINISHED, NOT_HEDGED, RESTARTED, STAYED, STOPPED
from advisor.papers.placement.forecast_rows import ForecastOptions, forecast_rows
from advisor.papers.placement.hedge_lives import HedgeLives, HedgeTable
from advisor.papers.placement.hedged import (
    CURVE_BUDGETS,
    hedge_curve,
    hedge_rows,
    hedge_table,
    replay_hedged,
    stop_loss_table,
)
from advisor.papers.placement.hedging import PRICES, STOPS
from tests.papers.placement.test_forecast_rows import make_log

TABLE = make_log(2_000)
FIRST = 1_000
BACK = (STOPPED, RESTARTED)


@pytest.fixture(scope="module")
def forecasts():
    options = ForecastOptions(first=200, retrain_jobs=600, forests=1, forest=ForestSettings(trees=4))
    return forecast_rows(TABLE, np.arange(len(TABLE)), options)


def test_turnarounds_follow_from_the_endings(forecasts) -> None:
    """Back on-premise nothing is won or lost; in the cloud it is the formula; a slot bounds the cost."""
    jobs = hedge_table(TABLE, forecasts, 0.1, 1.0)
    slowdown = 0.1 * TABLE.processors + 1.0
    in_cloud = (slowdown * TABLE.run)[:, None]
    gain = TABLE.wait[:, None] + TABLE.run[:, None] - in_cloud
    back = np.isin(jobs.ending, BACK)
    done = np.isin(jobs.ending, (FINISHED, STAYED))
    np.testing.assert_array_equal(jobs.saved[back], 0.0)
    np.testing.assert_allclose(jobs.saved[done], np.broadcast_to(gain, jobs.saved.shape)[done], rtol=1e-5)
    np.testing.assert_allclose(
        jobs.seconds[done], np.broadcast_to(in_cloud, jobs.saved.shape)[done], rtol=1e-5
    )
    assert np.all(jobs.seconds[back] <= np.broadcast_to(TABLE.wait[:, None], jobs.saved.shape)[back] + 1e-3)
    assert np.all(jobs.seconds[jobs.ending == NOT_HEDGED] == 0.0)
    assert np.all(jobs.ending[:, -1] == NOT_HEDGED)
    assert np.all(jobs.ending[:200] == NOT_HEDGED)  # no forecast


def test_a_higher_price_never_expects_to_spend_more(forecasts) -> None:
    jobs = hedge_table(TABLE, forecasts, 0.1, 1.0)
    assert np.all(np.diff(jobs.expected, axis=1) <= 1e-3)


def test_budgets_are_kept_and_more_buys_more(forecasts) -> None:
    found = hedge_rows(TABLE, forecasts, FIRST, 0.05, 1.0, (0.25, 0.5, 1.0, 2.0))
    shares = [one.fraction_of_optimal for one in found]
    assert shares == sorted(shares)
    for one in found:
        assert one.core_hours_vs_optimal <= one.budget
        assert one.fraction_of_optimal <= 1.0
        assert 0.0 <= one.restarted_share <= 1.0
    assert shares[2] > 0.8


def test_what_is_not_known_yet_changes_no_decision(forecasts) -> None:
    """What hedges of jobs would have cost that end after the last submission makes no difference."""
    half = 1_500
    jobs = hedge_table(TABLE, forecasts, 0.05, 1.0)
    late = TABLE.end > TABLE.submit[half - 1]
    changed = replace(jobs, seconds=np.where(late[:, None], 7.0 * jobs.seconds + 1e6, jobs.seconds))
    rows = np.arange(half)

    def cut(each: HedgeTable) -> HedgeTable:
        return replace(each, **{field.name: getattr(each, field.name)[:half] for field in fields(each)})

    assert replay_hedged(TABLE, rows, cut(jobs), FIRST, 1.0) == replay_hedged(
        TABLE, rows, cut(changed), FIRST, 1.0
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_g17_no_number_is_ever_exceeded(data: st.DataObject) -> None:
    """Jobs of any size, run beyond their limits or not, forecast rightly or not; at any price."""
    count = data.draw(st.integers(1, 40))

    def column(least: float, most: float) -> np.ndarray:
        return np.array(data.draw(st.lists(st.floats(least, most), min_size=count, max_size=count)))

    processors, slowdown, wait, run = column(1, 512), column(1, 50), column(0, 1e6), column(1, 1e6)
    stops = (count, len(STOPS))
    generator = np.random.default_rng(data.draw(st.integers(0, 1_000)))
    jobs = HedgeTable(
        saved=np.zeros((count, 1), np.float32),
        seconds=np.zeros((count, 1), np.float32),
        expected=np.zeros((count, 1), np.float32),
        ending=np.zeros((count, 1), np.int8),
        gain=generator.lognormal(8.0, 4.0, stops),
        stay_seconds=generator.lognormal(3.0, 2.0, stops),
        stays=generator.random(count) < 0.5,
        processors=processors,
        slowdown=slowdown,
        limit=run * generator.choice([0.01, 0.5, 1.0, 3.0, np.inf], count),
        wait=wait,
        run=run,
        optimal=np.zeros(count),
        optimal_saved=np.zeros(count),
    )
    number = data.draw(st.floats(0.0, 1e12))
    submit = np.cumsum(column(0, 1e5))
    lives = HedgeLives(jobs, submit, number)
    for index in range(count):
        lives.settle(float(submit[index]))
        lives.hedge(index, data.draw(st.sampled_from([1e-5, 1e-2, 1.0])))
        assert lives.budget.spent <= number
        assert lives.budget.left >= 0.0
    lives.settle(np.inf)
    assert lives.budget.spent <= number
    assert not lives.budget.keys()


def test_no_forecast_at_all_is_the_stop_loss_alone() -> None:
    jobs = stop_loss_table(TABLE, np.arange(len(TABLE)), 0.05, 1.0)
    stop = 1e5 / PRICES[40] / TABLE.processors
    np.testing.assert_allclose(
        jobs.seconds[:, 40],
        np.minimum(np.minimum((0.05 * TABLE.processors + 1.0) * TABLE.run, TABLE.wait), stop),
        rtol=1e-5,
    )
    assert np.all(jobs.saved[np.isin(jobs.ending, BACK)] == 0.0)


def test_the_curve_has_a_point_for_each_budget(forecasts) -> None:
    told: list[int] = []
    points = hedge_curve(TABLE, forecasts, FIRST, (0.05, 0.3), 1.0, told.append)
    assert [point.budget for point in points] == list(CURVE_BUDGETS)
    assert told == [1, 1]
    assert points[4].with_forecasts > points[4].without_forecasts


def test_a_cloud_nobody_would_use_costs_nothing(forecasts) -> None:
    (found,) = hedge_rows(TABLE, forecasts, FIRST, 1e6, 1.0, (1.0,))
    assert found.core_hours_vs_optimal is None or found.core_hours_vs_optimal <= 1.0
    assert found.fraction_of_optimal is None or found.fraction_of_optimal >= 0.0
