"""The pool under the rules of Slurm: reservations, the backfill scheduler's own cycle, how deep it looks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from advisor.simulate.pool.pool import Pool
from advisor.simulate.pool.rules import Rules

Row = tuple[float, int, float, float]
"""Submission, processors, limit, run time."""


def plain(**changes: float) -> Rules:
    """Rules without a cycle of their own and without windows."""
    return Rules(**({"cycle_seconds": 0.0, "window_seconds": 0.0} | changes))  # type: ignore[arg-type]


def starts(
    rows: Sequence[Row], *, processors: int, rules: Rules | None = None, other_ends: Sequence[float] = ()
) -> list[float]:
    """When each job starts; ``other_ends``: planned ends of running jobs of other partitions."""
    pool = Pool(processors, len(rows), 0.0, rules)
    pool.set_other_ends(other_ends)
    found = [math.nan] * len(rows)

    def go(until: float) -> None:
        for event in pool.advance(until):
            if event.has_started:
                found[event.row] = event.time

    for number, (submit, size, limit, run) in enumerate(rows):
        go(submit)
        pool.add(number, processors=size, limit=limit, run=run, order=submit)
    go(math.inf)
    return found


# the second waits for 100, the third until 150; the fourth fits beside the second, not before the third
ROWS = [
    (0.0, 3, 100.0, 100.0),
    (1.0, 2, 50.0, 50.0),
    (2.0, 4, 50.0, 50.0),
    (3.0, 1, 160.0, 160.0),
]


def test_under_easy_a_job_may_delay_the_second_in_the_queue_but_not_the_head() -> None:
    assert starts(ROWS, processors=4) == [0.0, 100.0, 163.0, 3.0]


def test_where_all_jobs_get_a_reservation_no_job_delays_an_earlier_one() -> None:
    assert starts(ROWS, processors=4, rules=plain()) == [0.0, 100.0, 150.0, 200.0]


# the third needs two of three nodes, and the fourth would hold the free one until 113
MERGED = [(0.0, 1, 100.0, 100.0), (1.0, 1, 124.0, 124.0), (2.0, 2, 50.0, 50.0), (3.0, 1, 110.0, 110.0)]
APART = [(0.0, 1, 100.0, 100.0), (1.0, 1, 199.0, 199.0), (2.0, 2, 50.0, 50.0), (3.0, 1, 110.0, 110.0)]


def test_planned_ends_in_one_window_count_as_one() -> None:
    assert starts(MERGED, processors=3, rules=plain())[3] > 100.0
    assert starts(MERGED, processors=3, rules=plain(window_seconds=30.0))[3] == 3.0
    assert starts(APART, processors=3, rules=plain(window_seconds=30.0))[3] > 100.0


def test_a_job_of_another_partition_that_ends_in_the_window_stretches_it() -> None:
    rules = plain(window_seconds=30.0)
    assert starts(APART, processors=3, rules=rules, other_ends=[130.0])[3] == 3.0
    assert starts(APART, processors=3, rules=rules, other_ends=[160.0])[3] > 100.0


def test_with_one_reservation_a_later_job_may_delay_the_second_in_the_queue() -> None:
    assert starts(ROWS, processors=4, rules=plain(reservations=1))[3] == 3.0


def test_the_head_starts_at_once_and_others_in_the_next_cycle() -> None:
    rows = [(0.0, 2, 90.0, 90.0), (1.0, 4, 90.0, 90.0), (5.0, 1, 20.0, 20.0)]
    assert starts(rows, processors=4) == [0.0, 90.0, 5.0]
    cycles = plain(cycle_seconds=30.0)
    # the head's coming was looked at 1 s after its submission; the next cycle is 30 s later
    assert starts(rows, processors=4, rules=cycles) == [0.0, 90.0, 31.0]


def test_jobs_deeper_than_the_cycle_looks_are_not_backfilled() -> None:
    rows = [(0.0, 2, 90.0, 90.0), (1.0, 4, 90.0, 90.0), (2.0, 4, 90.0, 90.0), (5.0, 1, 20.0, 20.0)]
    assert starts(rows, processors=4, rules=plain(depth=3))[3] == 5.0
    assert starts(rows, processors=4, rules=plain(depth=2))[3] >= 90.0


DAY = 86_400.0


def test_a_job_that_would_start_beyond_bf_window_gets_no_reservation() -> None:
    # as slurmctld 22.05 did it on two nodes: the third started at once by default, not with bf_window=4320
    rows = [(0.0, 1, 2 * DAY, 2 * DAY), (1.0, 2, 3600.0, 3600.0), (2.0, 1, 3 * DAY, 3 * DAY)]
    assert starts(rows, processors=2, rules=plain())[2] == 2.0
    assert starts(rows, processors=2, rules=plain(horizon_seconds=3 * DAY))[1:] == [2 * DAY, 2 * DAY + 3600.0]


def test_the_forecast_looks_as_far_ahead_as_the_pool() -> None:
    pool = Pool(2, 3, 0.0, plain())
    for row, (processors, limit) in enumerate(((1, 2 * DAY), (2, 3600.0))):
        pool.add(row, processors=processors, limit=limit, run=limit, order=float(row))
    pool.advance(1.0)
    pool.add(2, processors=1, limit=3 * DAY, run=3 * DAY, order=2.0)
    assert pool.forecast(np.array([2 * DAY, 3600.0, 3 * DAY]))[2] == 1.0


def test_jobs_that_all_come_at_once_all_start() -> None:
    rows = [(0.0, 1, 10.0, 10.0)] * 300
    assert not np.isnan(starts(rows, processors=3)).any()
    assert not np.isnan(starts(rows, processors=3, rules=Rules())).any()


@pytest.mark.parametrize(
    ("parameters", "cycle", "reservations", "depth"),
    [
        ("", 30.0, 1 << 40, 500),
        ("bf_interval=60,bf_max_job_test=1000, bf_job_part_count_reserve=1,defer", 60.0, 1, 1000),
        ("BF_Interval=60", 60.0, 1 << 40, 500),
        ("bf_interval=-1", 30.0, 1 << 40, 0),  # slurmctld 22.05 then backfills nothing
        ("bf_interval=0,bf_max_job_test=0,bf_window=x", 30.0, 1 << 40, 500),  # out of range: the defaults
    ],
)
def test_the_rules_are_read_from_slurm_conf(
    parameters: str, cycle: float, reservations: int, depth: int
) -> None:
    found = Rules.of_slurm(parameters)
    assert (found.cycle_seconds, found.reservations, found.depth) == (cycle, reservations, depth)


def test_how_far_ahead_slurm_reserves_is_read_in_minutes() -> None:
    assert Rules.of_slurm("").horizon_seconds == DAY
    assert Rules.of_slurm("bf_window=4320").horizon_seconds == 3 * DAY
