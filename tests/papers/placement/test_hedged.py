"""Hedged starts on a log: nothing looked ahead, nothing lost, budgets kept."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.papers.forests.distribution import ForestSettings
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


@pytest.fixture(scope="module")
def forecasts():
    options = ForecastOptions(first=200, retrain_jobs=600, forests=1, forest=ForestSettings(trees=4))
    return forecast_rows(TABLE, np.arange(len(TABLE)), options)


def test_a_hedge_ends_in_the_cloud_or_on_its_slot_at_the_latest(forecasts) -> None:
    jobs = hedge_table(TABLE, forecasts, 0.1, 1.0)
    in_cloud = (0.1 * TABLE.processors + 1.0) * TABLE.run
    longest = np.maximum(in_cloud, TABLE.wait)[:, None]
    assert np.all(jobs.seconds <= longest * (1.0 + 1e-6))
    ends_there = np.isclose(jobs.seconds, in_cloud[:, None], rtol=1e-6)
    back = jobs.seconds <= TABLE.wait[:, None] * (1.0 + 1e-6)
    assert np.all(ends_there | back)
    assert np.all(jobs.seconds[:, -1] == 0.0)
    assert np.all(jobs.seconds[:200] == 0.0)  # no forecast


@pytest.mark.parametrize(
    ("wait", "stop", "stays", "saved", "seconds", "restarted"),
    [
        (1000.0, 200.0, False, 900.0, 200.0, 0),  # it has ended
        (1000.0, 100.0, False, 0.0, None, 1),  # stopped
        (150.0, 500.0, False, 0.0, 150.0, 1),  # restarted on its slot
        (150.0, 500.0, True, 50.0, 200.0, 0),  # it stays
        (50.0, 500.0, True, -50.0, 200.0, 0),
    ],
)
def test_a_life_by_hand(wait, stop, stays, saved, seconds, restarted) -> None:
    """100 s of work on 3 processors that take 200 s in the cloud."""
    best = int(np.searchsorted(STOPS, stop))
    gain = np.zeros((1, len(STOPS)))
    gain[0, best] = 1.0
    one = np.ones(1)
    jobs = HedgeTable(
        seconds=np.zeros((1, 1), np.float32),
        gain=gain,
        stay_seconds=np.zeros((1, len(STOPS))),
        stays=np.array([stays]),
        processors=3.0 * one,
        slowdown=2.0 * one,
        limit=1e6 * one,
        wait=wait * one,
        run=100.0 * one,
        optimal=one,
        optimal_saved=one,
    )
    lives = HedgeLives(jobs, np.zeros(1), 1e9)
    lives.hedge(0, 1e-6)
    lives.settle(np.inf)
    used = float(STOPS[best]) if seconds is None else seconds
    assert (lives.saved, lives.lost) == (saved, max(0.0, -saved))
    assert lives.budget.spent == pytest.approx(3.0 * used)
    assert (lives.hedged, lives.restarted) == (1, restarted)
    assert lives.budget.left == pytest.approx(1e9 - 3.0 * used)


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
        seconds=np.zeros((count, 1), np.float32),
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
    assert lives.budget.left == lives.budget.unspent


def test_no_forecast_at_all_is_the_stop_loss_alone() -> None:
    jobs = stop_loss_table(TABLE, np.arange(len(TABLE)), 0.05, 1.0)
    stop = 1e5 / PRICES[40] / TABLE.processors
    np.testing.assert_allclose(
        jobs.seconds[:, 40],
        np.minimum(np.minimum((0.05 * TABLE.processors + 1.0) * TABLE.run, TABLE.wait), stop),
        rtol=1e-5,
    )


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
