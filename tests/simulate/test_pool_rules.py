"""The pool under the rules of Slurm: reservations, the backfill scheduler's own cycle, how deep it looks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from advisor.simulate.pool.pool import Pool
from advisor.simulate.pool.rules import EASY, Rules

ALL = 10**6
Row = tuple[float, int, float, float]
"""Submission, processors, limit, run time."""


def starts(rows: Sequence[Row], *, processors: int, rules: Rules = EASY) -> list[float]:
    """When each job starts."""
    pool = Pool(processors, len(rows), 0.0, rules)
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
    assert starts(ROWS, processors=4, rules=Rules(reservations=ALL)) == [0.0, 100.0, 150.0, 200.0]


def test_the_head_starts_at_once_and_others_in_the_next_cycle() -> None:
    rows = [(0.0, 2, 90.0, 90.0), (1.0, 4, 90.0, 90.0), (5.0, 1, 20.0, 20.0)]
    assert starts(rows, processors=4) == [0.0, 90.0, 5.0]
    cycles = Rules(cycle_seconds=30.0, reservations=ALL)
    # the head's coming was looked at 1 s after its submission; the next cycle is 30 s later
    assert starts(rows, processors=4, rules=cycles) == [0.0, 90.0, 31.0]


def test_jobs_deeper_than_the_cycle_looks_are_not_backfilled() -> None:
    rows = [(0.0, 2, 90.0, 90.0), (1.0, 4, 90.0, 90.0), (2.0, 4, 90.0, 90.0), (5.0, 1, 20.0, 20.0)]
    assert starts(rows, processors=4, rules=Rules(depth=3, reservations=ALL))[3] == 5.0
    assert starts(rows, processors=4, rules=Rules(depth=2, reservations=ALL))[3] >= 90.0


def test_jobs_that_all_come_at_once_all_start() -> None:
    rows = [(0.0, 1, 10.0, 10.0)] * 300
    assert not np.isnan(starts(rows, processors=3)).any()


@pytest.mark.parametrize(
    ("parameters", "cycle", "reservations", "depth"),
    [
        ("", 30.0, 1 << 40, 500),
        ("bf_interval=60,bf_max_job_test=1000, bf_job_part_count_reserve=1,defer", 60.0, 1, 1000),
        ("bf_interval=-1", 30.0, 1 << 40, 500),
    ],
)
def test_the_rules_are_read_from_slurm_conf(
    parameters: str, cycle: float, reservations: int, depth: int
) -> None:
    found = Rules.of_slurm(parameters)
    assert (found.cycle_seconds, found.reservations, found.depth) == (cycle, reservations, depth)
