"""The past as the size classifier needs it: what counts, what was known when, which divider was in force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.model.job import Job, JobOutcome, family
from advisor.predict.size.size_history import WEEK_SECONDS, SizeHistory, WeeklyDividers
from tests.predict.size_logs import jobs_of, random_table, table_of


def test_dividers_are_medians_of_what_had_finished_by_then():
    rows = [
        (0.0, 0.0, 10.0, 1, 60.0, 1),
        (1.0, 0.0, 30.0, 1, 60.0, 1),
        (2.0, 0.0, WEEK_SECONDS, 1, 60.0, 1),  # ends in week 1
        (WEEK_SECONDS + 5, 0.0, 50.0, 1, 60.0, 1),
        (2 * WEEK_SECONDS + 1, 0.0, 1.0, 1, 60.0, 1),
    ]
    dividers = WeeklyDividers.of(SizeHistory.from_table(table_of(rows)))
    assert math.isnan(dividers.seconds[0])
    assert dividers.seconds[1] == 20.0
    assert dividers.seconds[2] == 40.0
    assert dividers.at(np.array([WEEK_SECONDS - 1, WEEK_SECONDS])).tolist()[1] == 20.0


def test_outcomes_give_the_same_history_as_their_table():
    table = random_table(5)
    outcomes = [
        JobOutcome(job=job, start_time=float(table.start[i]), end_time=float(table.end[i]))
        for i, job in enumerate(jobs_of(table))
    ]
    clock = {"start_of_log": table.start_of_log, "utc_offset_seconds": table.utc_offset_seconds}
    ours, theirs = SizeHistory.from_outcomes(reversed(outcomes), **clock), SizeHistory.from_table(table)
    order = np.lexsort((ours.run, ours.start, ours.submit))
    expected = np.lexsort((theirs.run, theirs.start, theirs.submit))
    for column in ("submit", "start", "end", "request", "names", "local"):
        np.testing.assert_array_equal(getattr(ours, column)[order], getattr(theirs, column)[expected])


def test_jobs_that_never_ran_teach_nothing():
    job = Job(job_id=1, submit_time=100.0, processors=2, user="ana", requested_time=60.0)
    history = SizeHistory.from_outcomes(
        [
            JobOutcome(job=job, start_time=130.0, end_time=130.0),
            JobOutcome(job=job, start_time=130.0, end_time=190.0),
        ]
    )
    assert len(history) == 1
    assert history.run.tolist() == [60.0]
    assert history.numbers().tolist() == [[60.0, 2.0, 60.0, 0.0]]  # request, processors, run, no label


def test_nothing_starts_before_it_was_submitted():
    """A log's negative wait, and a record whose start lies before its submission."""
    table = table_of([(100.0, -30.0, 5.0, 1, 60.0, 1)])
    assert SizeHistory.from_table(table).start.tolist() == [100.0]
    job = Job(job_id=1, submit_time=100.0, processors=1)
    outcome = JobOutcome(job=job, start_time=70.0, end_time=75.0)
    history = SizeHistory.from_outcomes([outcome])
    assert (history.start.tolist(), history.end.tolist()) == ([100.0], [105.0])


def test_until_knows_no_start_and_no_end_to_come():
    rows = [
        (0.0, 0.0, 10.0, 1, 60.0, 1),  # has ended
        (1.0, 4.0, 95.0, 1, 60.0, 1),  # ends at that very moment
        (2.0, 98.0, 1.0, 1, 60.0, 1),  # starts at that very moment
        (100.0, 0.0, 1.0, 1, 60.0, 1),  # not yet submitted
    ]
    known = SizeHistory.from_table(table_of(rows)).until(100.0)
    assert known.submit.tolist() == [0.0, 1.0, 2.0]
    assert known.start.tolist() == [0.0, 5.0, math.inf]
    assert known.end.tolist() == [10.0, math.inf, math.inf]
    assert known.ran.tolist() == [True, False, False]
    np.testing.assert_array_equal(known.run, [10.0, math.nan, math.nan])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("run_017", "run_#"), ("fold1_of_10", "fold#_of_#"), ("relax", "relax"), ("17", "17"), (None, None)],
)
def test_family_is_the_name_without_its_counters(name, expected):
    """A name that is a number says nothing else, and is kept: logs give each program one."""
    assert family(name) == expected
