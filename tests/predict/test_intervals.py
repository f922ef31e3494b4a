"""Intervals that learn to cover nine tenths of the truths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec import structs
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.model.estimate import NO_ESTIMATE, Estimate, holds
from advisor.predict.intervals import Intervals

HOUR = 3600.0


def covered_share(intervals: Intervals, planned: NDArray[np.float64], waited: NDArray[np.float64]) -> float:
    """Share of waits within their intervals, each learned after the next fifty are asked for."""
    given = []
    inside = 0
    for row, (plan, truth) in enumerate(zip(planned.tolist(), waited.tolist(), strict=True)):
        given.append(intervals.wait(plan))
        inside += holds(given[-1].lower, truth, given[-1].upper)
        if row >= 50:
            intervals.learn_wait(given[row - 50], float(waited[row - 50]))
    return inside / len(given)


def test_before_any_wait_is_known_it_lies_between_0_and_the_plan() -> None:
    given = Intervals().wait(2 * HOUR)
    assert (given.seconds, given.lower) == (2 * HOUR, pytest.approx(73.0, abs=5.0))
    assert given.upper == pytest.approx(2 * HOUR)
    assert given.deviation == pytest.approx(2 * HOUR / math.sqrt(12.0), rel=0.02)


@pytest.mark.parametrize("mean_share", [0.4, 0.8, 1.1])
def test_nine_tenths_of_the_waits_lie_within_their_intervals(mean_share: float) -> None:
    generator = np.random.default_rng(1)
    intervals = Intervals()
    planned = generator.uniform(10.0, 50 * HOUR, 6000)
    waited = planned * mean_share * generator.lognormal(0.0, 0.5, 6000)
    covered_share(intervals, planned[:2000], waited[:2000])
    assert 0.88 < covered_share(intervals, planned[2000:], waited[2000:]) < 0.92
    given = intervals.wait(10 * HOUR)
    truth = 10 * HOUR * mean_share * generator.lognormal(0.0, 0.5, 2000)
    assert given.deviation == pytest.approx(float(truth.std()), rel=0.3)


def test_the_upper_bound_stays_near_the_plan_where_all_waits_are_far_shorter() -> None:
    """The long waits may be those that are not known yet."""
    intervals = Intervals()
    covered_share(intervals, np.full(3000, HOUR), np.full(3000, 0.1 * HOUR))
    assert 0.7 * HOUR < intervals.wait(HOUR).upper <= HOUR


def test_intervals_follow_a_site_that_changes() -> None:
    generator = np.random.default_rng(2)
    intervals = Intervals()
    planned = np.full(3000, 5 * HOUR)
    covered_share(intervals, planned, planned * generator.uniform(0.8, 1.0, 3000))
    waited = planned * generator.uniform(0.0, 0.3, 3000)
    assert covered_share(intervals, planned, waited) > 0.85
    assert covered_share(intervals, planned, waited) > 0.88
    assert intervals.wait(5 * HOUR).lower < 0.05 * 5 * HOUR


def test_a_job_that_starts_at_once_has_a_narrow_interval_until_such_jobs_wait() -> None:
    intervals = Intervals()
    at_once = intervals.wait(0.0)
    assert (at_once.lower, at_once.upper, at_once.variance) == (0.0, 0.0, 0.0)
    for _ in range(1000):
        intervals.learn_wait(intervals.wait(0.0), 25.0)
    given = intervals.wait(0.0)
    assert (given.lower, given.seconds) == (0.0, 0.0)
    assert 20.0 < given.upper < 60.0


def test_many_late_truths_at_once_move_no_bound_further_than_truths_have_been() -> None:
    intervals = Intervals()
    given = structs.replace(intervals.wait(HOUR), upper=0.5 * HOUR)
    for _ in range(5000):
        intervals.learn_wait(given, HOUR)
    assert intervals.wait(HOUR).upper < 1.6 * HOUR


def test_nine_tenths_of_the_run_times_lie_within_their_intervals_and_none_beyond_the_limit() -> None:
    generator = np.random.default_rng(3)
    intervals = Intervals()
    forecast = Estimate(seconds=HOUR, variance=0.0, lower=0.8 * HOUR, upper=1.2 * HOUR)
    inside = []
    for _ in range(4000):
        limit = float(generator.choice([1.5 * HOUR, 24 * HOUR]))
        given = intervals.run(forecast, limit)
        assert 0.0 <= given.lower <= given.upper <= limit
        truth = min(limit, HOUR * float(generator.lognormal(0.0, 1.0)))
        inside.append(holds(given.lower, truth, given.upper))
        intervals.learn_run(given, truth)
    assert 0.87 < np.mean(inside[500:]) < 0.93


def test_an_estimate_without_an_interval_teaches_nothing() -> None:
    intervals = Intervals()
    before = intervals.to_array()
    for given in (NO_ESTIMATE, Estimate(seconds=10.0, variance=1.0)):
        intervals.learn_wait(given, 5.0)
        intervals.learn_run(given, 5.0)
    assert np.array_equal(intervals.to_array(), before)


def test_what_was_learned_can_be_saved_and_loaded() -> None:
    intervals = Intervals()
    covered_share(intervals, np.full(500, HOUR), np.linspace(0.0, 2 * HOUR, 500))
    again = Intervals.from_array(intervals.to_array())
    assert again.wait(HOUR) == intervals.wait(HOUR) != Intervals().wait(HOUR)


@pytest.mark.parametrize("array", [np.empty(0), np.zeros((5, 5)), np.full((5, 6), np.nan)])
def test_a_damaged_array_is_refused(array: NDArray[np.float64]) -> None:
    with pytest.raises(BadInput, match="damaged"):
        Intervals.from_array(array)
