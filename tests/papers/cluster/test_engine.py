"""Schedules computed by hand; the compiled engine and the plain oracle must both give them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.papers.cluster import engine
from advisor.papers.cluster.demand import LARGE, PROBED, SMALL, check
from advisor.papers.cluster.policies import EASY_PLUS_PLUS, Backfill, Correction, Order, Policy
from tests.papers.cluster import oracle


@pytest.fixture(params=[engine.simulate, oracle.simulate], ids=["engine", "oracle"])
def simulate(request):
    return request.param


def starts(schedule):
    return schedule.start.tolist()


def test_head_waits_for_the_earliest_planned_end(simulate, by_hand):
    jobs = by_hand([(0, 10, 3), (1, 5, 2), (2, 5, 2)])
    assert starts(simulate(jobs, 4)) == [0, 10, 10]


def test_backfills_only_what_ends_by_the_shadow_time(simulate, by_hand):
    # 1 processor free until 10; row 1 is reserved at 10
    jobs = by_hand([(0, 10, 3), (1, 5, 4), (2, 8, 1), (3, 9, 1)])
    assert starts(simulate(jobs, 4)) == [0, 10, 2, 15]


def test_backfills_what_leaves_the_head_enough_processors(simulate, by_hand):
    # at 10 four processors are free and the head needs three: one is to spare, once
    jobs = by_hand([(0, 10, 2), (1, 5, 3), (2, 50, 1), (3, 50, 1)])
    assert starts(simulate(jobs, 4)) == [0, 10, 2, 15]


def test_early_end_lets_the_head_start_before_its_reservation(simulate, by_hand):
    jobs = by_hand([(0, 4, 4, 100), (1, 5, 4)])
    assert starts(simulate(jobs, 4)) == [0, 4]


def test_job_beyond_its_plan_is_expected_to_end_within_the_second(simulate, by_hand):
    # row 0 runs to 20 though planned to 10; at 12 the shadow is 13, so only row 3 is backfilled
    jobs = by_hand([(0, 20, 3, 10), (1, 5, 4), (12, 2, 1), (13, 1, 1)])
    assert starts(simulate(jobs, 4)) == [0, 20, 25, 13]


def test_ends_come_before_submissions_of_the_same_moment(simulate, by_hand):
    jobs = by_hand([(0, 10, 4), (10, 1, 4)])
    assert starts(simulate(jobs, 4)) == [0, 10]


def test_fcfs_and_spf(simulate, by_hand):
    jobs = by_hand([(0, 10, 4), (1, 7, 4), (2, 6, 4), (3, 5, 4)])
    assert starts(simulate(jobs, 4)) == [0, 10, 17, 23]
    assert starts(simulate(jobs, 4, Policy(order=Order.SPF))) == [0, 21, 15, 10]


def test_saf_serves_the_smallest_area_first(simulate, by_hand):
    jobs = by_hand([(0, 10, 4), (1, 9, 3), (2, 5, 4)])
    assert starts(simulate(jobs, 4, Policy(order=Order.SAF))) == [0, 15, 10]


def test_wfp_prefers_long_waits_for_short_requests_on_many_processors(simulate, by_hand):
    # at 10: row 1 has (9/9)^3 * 3 = 3, row 2 (8/4)^3 * 4 = 32
    jobs = by_hand([(0, 10, 4), (1, 9, 3), (2, 4, 4)])
    assert starts(simulate(jobs, 4, Policy(order=Order.WFP))) == [0, 14, 10]


def test_starved_job_goes_first(simulate, by_hand):
    # short jobs keep coming; row 1 has waited more than 15 s at 20
    jobs = by_hand([(0, 10, 4), (1, 30, 4), (2, 10, 4), (3, 10, 4), (4, 10, 4)])
    never = Policy(order=Order.SPF)
    soon = Policy(order=Order.SPF, starvation_seconds=15)
    assert starts(simulate(jobs, 4, never)) == [0, 40, 10, 20, 30]
    assert starts(simulate(jobs, 4, soon)) == [0, 20, 10, 50, 60]


def test_threshold_follows_the_load(simulate, by_hand):
    # at 20 planned work of 240 + 2 * 40 core-seconds waits for 4 processors: 80 s, so 19 s are no starvation
    jobs = by_hand([(0, 10, 4), (1, 60, 4), (2, 10, 4), (3, 10, 4), (4, 10, 4)])
    policy = Policy(order=Order.SPF, starvation_seconds=15, starvation_load_factor=1)
    assert starts(simulate(jobs, 4, policy)) == [0, 40, 10, 20, 30]


def test_small_class_goes_first_and_probed_before_large(simulate, by_hand):
    jobs = by_hand([(0, 10, 4), (1, 5, 4), (2, 5, 4), (3, 5, 4)], job_class=[LARGE, LARGE, PROBED, SMALL])
    assert starts(simulate(jobs, 4)) == [0, 20, 15, 10]


def test_false_small_is_killed_at_the_divider_and_starts_again_once(simulate, by_hand):
    jobs = by_hand(
        [(0, 10, 4), (1, 30, 4), (2, 5, 4)], job_class=[LARGE, SMALL, LARGE], limit=[math.inf, 3, math.inf]
    )
    schedule = simulate(jobs, 4)
    # killed at 13, queued again by its submission time: before row 2 among the large
    assert starts(schedule) == [0, 13, 43]
    assert schedule.attempts.tolist() == [1, 2, 1]
    assert schedule.lost.tolist() == [0, 3, 0]
    assert schedule.end.tolist() == [10, 43, 48]


def test_job_that_ends_at_its_limit_is_not_killed(simulate, by_hand):
    schedule = simulate(by_hand([(0, 10, 4)], limit=[10]), 4)
    assert schedule.attempts.tolist() == [1]


def test_shortest_first_backfilling(simulate, by_hand):
    jobs = by_hand([(0, 20, 3), (1, 5, 4), (2, 15, 1), (2, 8, 1), (2, 4, 1)])
    assert starts(simulate(jobs, 4)) == [0, 20, 2, 17 + 8, 17 + 8]
    shortest = Policy(backfill=Backfill.SHORTEST_FIRST)
    assert starts(simulate(jobs, 4, shortest)) == [0, 20, 25, 6, 2]


def test_easy_plus_plus_plans_by_the_users_last_two_jobs(simulate, by_hand):
    # two jobs of user 0 took 4 and 6 s; row 4 asks for 100 and is planned with 5, so it is backfilled
    jobs = by_hand(
        [(0, 4, 1, 50), (0, 6, 1, 50), (10, 20, 3, 20), (11, 5, 4, 5), (12, 5, 1, 100)], user=[0, 0, 1, 1, 0]
    )
    assert starts(simulate(jobs, 4)) == [0, 0, 10, 30, 35]
    assert starts(simulate(jobs, 4, EASY_PLUS_PLUS)) == [0, 0, 10, 30, 12]


def test_outlived_plan_grows_by_steps(simulate, by_hand):
    # row 0 is planned to 10 and runs to 50; at 12 its plan ends at 70, so row 2 may run to 40 beside it
    jobs = by_hand([(0, 50, 3, 500), (1, 5, 4), (12, 28, 1)], planned=[10, 5, 28])
    assert starts(simulate(jobs, 4)) == [0, 50, 55]
    assert starts(simulate(jobs, 4, Policy(correction=Correction.STEPS))) == [0, 50, 12]


def test_no_jobs_no_schedule(simulate, by_hand):
    empty = by_hand([(0, 1, 1)])
    empty = type(empty)(**{name: getattr(empty, name)[:0] for name in empty.__dataclass_fields__})
    assert starts(simulate(empty, 4)) == []


def test_job_larger_than_the_machine_is_refused(simulate, by_hand):
    with pytest.raises(BadInput, match="job 2 needs 5 processors; the machine has 4"):
        simulate(by_hand([(0, 1, 1), (0, 1, 5)]), 4)


@pytest.mark.parametrize(
    ("rows", "columns", "trouble"),
    [
        ([(5, 1, 1), (0, 1, 1)], {}, "submission order"),
        ([(0, 0, 1, 1)], {}, "no run time"),
        ([(0, math.nan, 1, 1)], {}, "no run time"),
        ([(0, 1, 0)], {}, "no processors"),
        ([(0, 1, 1, 0)], {}, "not above 0"),
        ([(0, 1, 1)], {"planned": [math.nan]}, "not above 0"),
        ([(0, 1, 1)], {"limit": [0]}, "limit"),
        ([(0, 1, 1)], {"job_class": [0]}, "class"),
        ([(0, 1, 1)], {"user": [-1]}, "user"),
        ([(0, 1, 1)], {"user": [0, 1]}, "length"),
    ],
)
def test_demand_no_cluster_could_run_is_refused(by_hand, rows, columns, trouble):
    with pytest.raises(BadInput, match=trouble):
        check(by_hand(rows, **columns))


def test_stopping_and_going_on_changes_nothing(monkeypatch, by_hand):
    generator = np.random.default_rng(5)
    jobs = by_hand(
        [(at, *generator.integers(1, 9, 2)) for at in range(60)], limit=generator.integers(1, 9, 60).tolist()
    )
    whole = engine.simulate(jobs, 8)
    monkeypatch.setattr(engine, "_EVENTS_PER_CALL", 1)
    assert starts(engine.simulate(jobs, 8)) == starts(whole)
