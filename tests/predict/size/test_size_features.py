"""Features of the size classifier: by hand, job by job equal to all at once, and never from the future."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from advisor.model.errors import BadInput
from advisor.model.job import Job
from advisor.model.table import JobTable
from advisor.papers.classify import published
from advisor.papers.classify.published import PAPER_NAMES, paper_rows
from advisor.predict.size import _size_rows, _size_state
from advisor.predict.size.size_features import FEATURE_NAMES, NO_DIVIDER, replay_features
from advisor.predict.size.size_history import WEEK_SECONDS, SizeHistory, WeeklyDividers
from advisor.predict.size.size_model import LiveFeatures
from tests.predict.size_logs import jobs_of, random_table, table_of

DAY = 86400.0
NAMES = {"paper": PAPER_NAMES, "advisor": FEATURE_NAMES}


def features_of(table: JobTable, flavour: str = "advisor") -> np.ndarray:
    history = SizeHistory.from_table(table)
    dividers = WeeklyDividers.of(history)
    rows = paper_rows(history, dividers) if flavour == "paper" else replay_features(history, dividers).rows
    back = np.empty(len(table), np.int64)
    back[np.argsort(table.submit, kind="stable")] = np.arange(len(table))
    return rows[back]


def named(row: np.ndarray, flavour: str = "advisor") -> dict[str, float]:
    return dict(zip(NAMES[flavour], row.tolist(), strict=True))


def test_paper_features_by_hand():
    """Table 4 for the last of six jobs: week 0 has runs 10, 20, 30, 1000, 40, so week 1's divider is 30."""
    rows = [
        (0.0, 0.0, 10.0, 4, 3600.0, 7),
        (DAY, 0.0, 20.0, 4, 3600.0, 7),
        (2 * DAY, 0.0, 1000.0, 4, 600.0, 7),
        (3 * DAY, 0.0, 30.0, 8, 3600.0, 7),
        (4 * DAY, 0.0, 40.0, 4, 3600.0, 8),
        (7 * DAY + 3600.0, 0.0, 5.0, 4, 3600.0, 7),
    ]
    # 1996-01-01 was a Monday
    start = np.datetime64("1996-01-01T00:00:00").astype(np.int64)
    got = named(features_of(table_of(rows, start_of_log=float(start)), "paper")[-1], "paper")
    assert got["requested_seconds"] == 3600.0
    assert got["processors"] == 4.0
    expected = {"hour": 1, "day_of_week": 0, "day_of_month": 8, "month": 1, "week": 2, "quarter": 1}
    assert {name: got[name] for name in expected} == expected
    # (u, requested): 30 is not below 30, then 20 and 10; shares use the divider in force when they were known
    assert [got[f"user_request.class_{lag}"] for lag in (1, 2, 3)] == [0.0, 1.0, 1.0]
    assert got["user_request.small_share"] == pytest.approx(2 / 3)
    assert [got[f"user_processors.class_{lag}"] for lag in (1, 2, 3)] == [0.0, 1.0, 1.0]
    assert got["user_processors.small_share"] == pytest.approx(2 / 3)
    assert got["user_day.class_1"] == 1.0  # the first Monday's
    assert math.isnan(got["user_day.class_2"])
    assert got["user_day.small_share"] == 1.0


def test_paper_features_know_nothing_of_their_own_week():
    rows = [(0.0, 0.0, 10.0, 1, 60.0, 1), (8 * DAY, 0.0, 10.0, 1, 60.0, 1), (9 * DAY, 0.0, 10.0, 1, 60.0, 1)]
    first, second, third = (named(row, "paper") for row in features_of(table_of(rows), "paper"))
    assert math.isnan(first["user_request.class_1"])
    for row in (second, third):
        assert row["user_request.class_1"] == 0.0  # 10 is not below the divider 10
        assert math.isnan(row["user_request.class_2"])


def test_advisor_features_by_hand():
    week = WEEK_SECONDS
    rows = [
        (0.0, 0.0, 100.0, 4, 1000.0, 7),
        (week, 0.0, 50.0, 4, 1000.0, 7),
        (week + 30.0, 10.0, 5000.0, 8, 2000.0, 7),
        (week + 60.0, 5000.0, 1.0, 4, 1000.0, 7),
        (week + 240.0, 0.0, 1.0, 4, 1000.0, 7),
    ]
    got = named(features_of(table_of(rows))[-1])
    assert got["log_requested"] == pytest.approx(math.log(1000))
    assert got["log_requested_to_divider"] == pytest.approx(math.log(1000 / 100))
    assert got["log_requested_to_previous"] == pytest.approx(0.0)
    assert got["log_processors_to_previous"] == pytest.approx(0.0)
    assert got["user_burst"] == 3.0
    # shares of the request 0.1 then 0.05 at forgetting 0.2: 0.09
    assert got["log_expected_to_divider"] == pytest.approx(math.log(1000 * 0.09 / 100))
    assert got["user.finished"] == 2.0
    assert got["user.log_run_1"] == pytest.approx(math.log(50))
    assert got["user.log_run_2"] == pytest.approx(math.log(100))
    assert got["user.recent_small_share"] == 0.5  # 50 < 100, 100 is not
    # the first ended in week 0, before there was a divider: it counted as small then
    assert got["user.small_share"] == 1.0
    assert got["user.log_since_end"] == pytest.approx(math.log1p(240 - 50))
    assert got["user.live"] == 2.0
    assert got["user.newest"] == -100.0  # the one before waits
    # of the user's four, two finished (one below the divider); the third has run 200 s >= 100 and is large
    assert got["user.newest_small_share"] == pytest.approx(1 / 3)
    assert got["user_shape.live"] == 1.0
    assert got["user_shape.newest_small_share"] == 0.5
    assert math.isnan(got["user_work.finished"])  # neither queue nor name


def test_a_job_ending_in_the_second_of_a_submission_is_not_yet_known():
    ended_before = features_of(table_of([(0, 0, 99, 1, 200, 1), (100, 0, 1, 1, 200, 1)]))[1]
    ending_now = features_of(table_of([(0, 0, 100, 1, 200, 1), (100, 0, 1, 1, 200, 1)]))[1]
    assert named(ended_before)["user.finished"] == 1.0
    assert named(ending_now)["user.finished"] == 0.0


@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(1, 59), flavour=st.sampled_from(["paper", "advisor"]))
@settings(max_examples=30, deadline=None)
def test_no_feature_and_no_divider_changes_with_the_future(seed, cut, flavour):
    table = random_table(seed)
    now = float(table.submit[cut])
    generator = np.random.default_rng(seed + 1)
    open_end = table.end >= now
    changed = replace(
        table,
        run=np.where(open_end & (table.start < now), table.run + generator.integers(0, 9999, 60), table.run),
        wait=np.where(table.start >= now, table.wait + generator.integers(0, 9999, 60), table.wait),
        user=np.where(table.submit > now, 0, table.user),
    )
    known = table.submit <= now
    np.testing.assert_array_equal(features_of(changed, flavour)[known], features_of(table, flavour)[known])
    ours, theirs = (WeeklyDividers.of(SizeHistory.from_table(one)) for one in (table, changed))
    np.testing.assert_array_equal(ours.at(table.submit[known]), theirs.at(table.submit[known]))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_job_by_job_equals_all_at_once(seed):
    table = random_table(seed)
    dividers = WeeklyDividers.of(SizeHistory.from_table(table))
    live = LiveFeatures(start_of_log=table.start_of_log, utc_offset_seconds=table.utc_offset_seconds)
    jobs, numbers, rows = jobs_of(table), {}, {}
    events = [
        *((time, 0, i) for i, time in enumerate(table.submit)),
        *((time, 1, i) for i, time in enumerate(table.start)),
        *((time, 2, i) for i, time in enumerate(table.end)),
    ]
    for time, what, i in sorted(events):
        divider = float(np.nan_to_num(dividers.at(np.array([time]))[0], nan=NO_DIVIDER))
        if what == 0:
            rows[i] = live.row(jobs[i], divider)
            numbers[i] = live.submit(jobs[i])
        elif what == 1:
            live.start(numbers[i], time)
        else:
            live.end(numbers[i], time, float(table.run[i]), divider)
            live = LiveFeatures.from_arrays(live.to_arrays()) if i % 20 == 0 else live
    np.testing.assert_array_equal(np.array([rows[i] for i in range(len(table))]), features_of(table))


def test_names_that_differ_in_a_counter_are_one_family():
    live = LiveFeatures()
    for number, name in enumerate(("fold_01", "fold_02", "fold_03")):
        job = Job(job_id=number + 1, submit_time=10.0 * number, processors=1, user="ana", name=name)
        live.end(live.submit(job), 10.0 * number + 5, 5.0, 100.0)
    again = Job(job_id=0, submit_time=99.0, processors=64, user="ana", name="fold_04")
    other = Job(job_id=0, submit_time=99.0, processors=64, user="ana", name="relax")
    assert named(live.row(again, 100.0))["user_work.finished"] == 3.0
    assert math.isnan(named(live.row(other, 100.0))["user_work.finished"])


def test_live_jobs_are_kept_in_a_ring():
    """A job older than the circle is forgotten, not confused with the one in its place."""
    live = LiveFeatures(_size_state.empty_state(submissions=4))
    numbers = [
        live.submit(Job(job_id=i + 1, submit_time=100.0 * i, processors=1, user="ana")) for i in range(6)
    ]
    live.end(numbers[0], 700.0, 650.0, 10.0)
    row = named(live.row(Job(job_id=0, submit_time=800.0, processors=1, user="ana"), 10.0))
    assert row["user.finished"] == 0.0
    live.end(numbers[5], 900.0, 400.0, 10.0)
    live.end(numbers[5], 900.0, 400.0, 10.0)  # told twice: counted once
    row = named(live.row(Job(job_id=0, submit_time=1000.0, processors=1, user="ana"), 10.0))
    assert row["user.finished"] == 1.0


def test_a_job_that_never_ran_teaches_nothing_but_is_no_longer_live():
    live = LiveFeatures()
    number = live.submit(Job(job_id=1, submit_time=0.0, processors=1, user="ana"))
    live.end(number, 50.0, -1.0, 10.0)
    row = named(live.row(Job(job_id=0, submit_time=60.0, processors=1, user="ana"), 10.0))
    assert row["user.finished"] == 0.0
    assert row["user.live"] == 0.0
    assert math.isnan(row["user.newest_small_share"])
    assert math.isnan(row["user.newest"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays: arrays.pop("slots"),
        lambda arrays: arrays.update(counters=np.array([6, 1])),
        lambda arrays: arrays.update(index_rows=arrays["index_rows"] + 5),
        lambda arrays: arrays.update(index_keys=arrays["index_keys"][:-1]),
        lambda arrays: arrays["slots"].fill(10**6),
    ],
)
def test_damaged_arrays_are_refused(damage):
    live = LiveFeatures()
    live.submit(Job(job_id=1, submit_time=0.0, processors=1, user="ana"))
    arrays = {name: array.copy() for name, array in live.to_arrays().items()}
    damage(arrays)
    with pytest.raises(BadInput, match="damaged"):
        LiveFeatures.from_arrays(arrays)


@pytest.mark.parametrize("flavour", ["paper", "advisor"])
def test_compiled_features_equal_their_python(flavour, interpreted):
    table = random_table(8)
    compiled = features_of(table, flavour)
    interpreted(_size_state)
    interpreted(_size_rows)
    interpreted(published)
    with np.errstate(over="ignore"):  # the hash wraps around
        np.testing.assert_allclose(features_of(table, flavour), compiled, rtol=1e-6)


def test_an_index_of_a_replayed_log_is_stored_smaller_and_finds_the_same():
    table = random_table(11)
    history = SizeHistory.from_table(table)
    replayed = replay_features(history, WeeklyDividers.of(history))
    live = LiveFeatures(
        replayed.state, start_of_log=table.start_of_log, utc_offset_seconds=table.utc_offset_seconds
    )
    loaded = LiveFeatures.from_arrays(live.to_arrays())
    assert len(loaded.to_arrays()["index_keys"]) == 2048 < len(live.to_arrays()["index_keys"])
    for job in jobs_of(table):
        np.testing.assert_array_equal(loaded.row(job, 300.0), live.row(job, 300.0))
        assert loaded.submit(job) == live.submit(job)


def test_features_are_right_after_the_arrays_have_grown():
    """The arrays move when they grow: the next question finds them."""
    live, one_by_one = LiveFeatures(_size_state.empty_state(categories=2)), LiveFeatures()
    for number in range(60):
        job = Job(
            job_id=1,
            submit_time=60.0 * number,
            processors=1 + number % 3,
            user=f"u{number}",
            requested_time=9.0,
        )
        for features in (live, one_by_one):
            features.start(features.submit(job), job.submit_time + 1.0)
        again = structs.replace(job, submit_time=job.submit_time + 30.0)
        np.testing.assert_array_equal(live.row(again, 20.0), one_by_one.row(again, 20.0))
    assert named(live.row(again, 20.0))["user.live"] == 1.0
