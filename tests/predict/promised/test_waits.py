"""Waits around their plan, learned from jobs that started and from some that left before."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.predict.promised.waits import PlannedWaits, Plans


def mean(waits: PlannedWaits, planned: float | Plans) -> float:
    plans = planned if isinstance(planned, Plans) else Plans(planned, planned)
    seconds, shares = waits.spread(plans)
    assert shares.sum() == pytest.approx(1.0)
    assert np.all(shares >= 0.0)
    assert np.all(np.diff(seconds) >= 0.0)
    return float(seconds @ shares)


def test_any_wait_up_to_the_plan_is_likely_at_first() -> None:
    assert mean(PlannedWaits(), 10_000.0) == pytest.approx(5_000.0, rel=0.1)


def test_what_jobs_have_waited_is_learned_for_their_class() -> None:
    waits, draw = PlannedWaits(), np.random.default_rng(1)
    for _ in range(2_000):
        planned = draw.uniform(4_000.0, 80_000.0)
        waits.learn(Plans(planned, planned), 0.2 * planned * draw.uniform(0.5, 1.5), has_started=True)
    assert mean(waits, 20_000.0) == pytest.approx(4_000.0, rel=0.1)
    assert mean(waits, 600.0) == pytest.approx(300.0, rel=0.15)  # shorter plans are another class


def test_jobs_that_left_before_their_start_do_not_make_waits_short() -> None:
    """Half of the jobs leave after a tenth of their plan; without them the estimate stays as it is."""
    all_seen, censored, draw = PlannedWaits(), PlannedWaits(), np.random.default_rng(2)
    for turn in range(4_000):
        waited = draw.uniform(0.0, 30_000.0)
        all_seen.learn(Plans(30_000.0, 30_000.0), waited, has_started=True)
        leaves = turn % 2 and waited > 3_000.0
        censored.learn(
            Plans(30_000.0, 30_000.0), min(waited, 3_000.0) if leaves else waited, has_started=not leaves
        )
    assert mean(censored, 30_000.0) == pytest.approx(mean(all_seen, 30_000.0), rel=0.12)


def test_a_wait_may_be_learned_in_two_parts() -> None:
    whole, parts = PlannedWaits(), PlannedWaits()
    for _ in range(50):
        whole.learn(Plans(10_000.0, 10_000.0), 8_000.0, has_started=True)
        parts.learn(Plans(10_000.0, 10_000.0), 2_000.0, has_started=False)
        parts.learn(Plans(10_000.0, 10_000.0), 8_000.0, has_started=True, since=2_000.0)
    assert mean(parts, 10_000.0) == pytest.approx(mean(whole, 10_000.0), rel=0.05)


@pytest.mark.parametrize("useful", [0, 1])
def test_the_plan_that_tells_more_of_the_waits_is_followed(useful: int) -> None:
    """Jobs wait for half of one plan; the other one is the same for all."""
    waits, draw = PlannedWaits(), np.random.default_rng(3)
    for _ in range(1_000):
        told = draw.uniform(4_000.0, 80_000.0)
        waits.learn(plans(told, useful), 0.5 * told * draw.uniform(0.8, 1.2), has_started=True)
    for told in (8_000.0, 60_000.0):
        assert mean(waits, plans(told, useful)) == pytest.approx(0.5 * told, rel=0.1)


def plans(told: float, useful: int) -> Plans:
    return Plans(told, 40_000.0) if useful == 0 else Plans(40_000.0, told)


def test_what_was_learned_outlives_a_process_and_damage_is_left_out() -> None:
    known, again = PlannedWaits(), PlannedWaits()
    for told in (5_000.0, 50_000.0):
        known.learn(plans(told, 0), 0.5 * told, has_started=True)
    again.take(known.to_array())
    before = [values.tolist() for values in again.spread(plans(9_000.0, 0))]
    assert before == [values.tolist() for values in known.spread(plans(9_000.0, 0))]
    for damaged in (known.to_array()[1:], np.zeros_like(known.to_array()), -known.to_array()):
        again.take(damaged)
    assert before == [values.tolist() for values in again.spread(plans(9_000.0, 0))]
