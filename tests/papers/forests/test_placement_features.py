"""Features for the placement forests: by hand, and never from the future."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.model.table import JobTable
from advisor.papers.forests import placement_features, submission_features
from advisor.papers.forests.placement_features import EventKind, PlacementFeatures
from advisor.papers.forests.placement_replay import features_of
from advisor.papers.forests.submission_features import FEATURES, Submission
from advisor.predict.knn.known import Known


def submission(time: float, processors: int = 4, request: float = 600.0, user: int = 1, queue: int = 0):
    return Submission(time, processors, request, user, group=0, queue=queue, executable=7)


def named(features: np.ndarray) -> dict[str, float]:
    return dict(zip(FEATURES, features.tolist(), strict=True))


@pytest.fixture(params=["compiled", "as Python"])
def both_ways(request: pytest.FixtureRequest, interpreted: Callable[[ModuleType], None]) -> None:
    if request.param == "as Python":
        interpreted(submission_features)
        interpreted(placement_features)


@pytest.mark.usefixtures("both_ways")
def test_a_small_site_by_hand() -> None:
    site = PlacementFeatures(16, clock_offset_seconds=3600.0)
    site.submit("a", submission(0.0, processors=8, request=1000.0))
    site.start("a", 0.0)
    site.submit("b", submission(100.0, processors=4, request=500.0, user=2))
    site.start("b", 150.0)
    site.submit("c", submission(160.0, processors=8, request=300.0))
    site.submit("d", submission(170.0, processors=2, request=900.0, user=2, queue=1))
    found = named(site.submit("e", submission(200.0, processors=8, request=300.0)))
    assert found["free_processors"] == 4
    assert found["fits"] == 0
    assert found["slack_processors"] == 4 - 8 - 10
    assert found["waiting_jobs"] == 2
    assert found["waiting_work"] == 8 * 300 + 2 * 900
    assert found["waiting_age_max"] == 40
    assert found["waiting_age_mean"] == 35
    assert found["same_queue_jobs"] == 1
    assert found["same_user_jobs"] == 1
    assert found["same_user_age_max"] == 40
    assert found["similar_age_max"] == 40
    assert found["not_larger_jobs"] == 2
    assert found["not_larger_nor_longer_jobs"] == 1
    assert found["running_jobs"] == 2
    assert found["running_work"] == 8 * 800 + 4 * 450
    assert found["running_age_mean"] == 125
    assert found["same_user_running_jobs"] == 1
    assert found["same_user_running_processors"] == 8
    assert found["drain_time"] == pytest.approx((2 * 900 + 8 * 300 + 8 * 800 + 4 * 450) / 16)
    assert found["room_for_job_in"] == 450  # when b has ended 8 are free
    assert found["time_of_day"] == 3800
    assert found["recent_wait_mean_5"] == 25
    assert found["queue_wait_1"] == 50
    assert found["user_wait_1"] == 0
    assert found["user_run_1"] == -1
    assert found["last_is_similar"] == 1
    assert found["last_state"] == 3
    assert found["last_elapsed"] == 0
    assert found["since_last_submission"] == 40


def test_run_times_are_known_when_jobs_have_ended() -> None:
    site = PlacementFeatures(16)
    for key, ends in (("a", 50.0), ("b", 130.0)):
        site.submit(key, submission(0.0))
        site.start(key, 10.0)
        site.finish(key, ends)
    site.finish("a", 400.0)  # told twice
    site.finish("unheard of", 1.0)
    site.start("unheard of", 1.0)
    found = named(site.submit("c", submission(200.0)))
    assert [found[f"user_run_{lag}"] for lag in (1, 2, 3)] == [120, 40, -1]
    assert found["user_run_max"] == 120
    assert found["similar_run_mean"] == found["user_run_median"] == 80
    assert found["similar_runs"] == 2
    assert found["last_state"] == 1
    assert found["last_elapsed"] == 120
    assert found["running_jobs"] == found["waiting_jobs"] == 0


def test_a_job_cancelled_while_it_waits_teaches_no_run_time() -> None:
    site = PlacementFeatures(16)
    site.submit("a", submission(0.0))
    site.finish("a", 50.0)
    found = named(site.submit("b", submission(60.0)))
    assert found["user_run_1"] == -1
    assert found["waiting_jobs"] == 0


def test_no_time_limit_counts_as_a_day() -> None:
    site = PlacementFeatures(16)
    found = named(site.submit("a", submission(0.0, processors=2, request=math.nan)))
    assert found["requested_time"] == -1
    assert found["requested_work"] == 2 * 86_400


@st.composite
def logs(draw: st.DrawFn) -> JobTable:
    n = draw(st.integers(2, 30))
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    return JobTable(
        job_id=np.arange(n),
        submit=np.cumsum(generator.integers(0, 50, n)).astype(np.float64),
        wait=np.where(generator.random(n) < 0.7, generator.integers(0, 200, n), 0).astype(np.float64),
        run=generator.integers(0, 200, n).astype(np.float64),
        processors=generator.integers(1, 9, n),
        requested_time=np.where(generator.random(n) < 0.2, np.nan, generator.integers(1, 400, n)),
        user=generator.integers(-1, 3, n),
        group=generator.integers(0, 2, n),
        queue=generator.integers(0, 2, n),
        status=np.ones(n, np.int64),
        total_processors=16,
        name="random",
    )


@given(logs(), st.integers(0, 29))
@settings(max_examples=60, deadline=None)
def test_later_events_change_no_features(table: JobTable, row: int) -> None:
    """Change everything that was not known at a submission: its features stay the same."""
    row = min(row, len(table) - 1)
    now = table.submit[row]
    wait, run = table.wait.copy(), table.run.copy()
    ran = run > 0
    later_start = ran & (table.submit + wait > now)
    wait[later_start] += 1000.0
    later_end = ran & (table.submit + table.wait + run > now)
    run[later_end] += 500.0
    changed = replace(table, wait=wait, run=run)
    if not ran[row]:
        assert np.isnan(features_of(table)[row]).all()
        return
    # a job that starts in the very second of a submission may have started before it
    np.testing.assert_array_equal(features_of(table)[row], features_of(changed)[row])


@given(logs())
@settings(max_examples=30, deadline=None)
def test_rows_after_the_stop_are_not_computed(table: JobTable) -> None:
    stop = len(table) // 2
    everything, half = features_of(table), features_of(table, stop=stop)
    np.testing.assert_array_equal(half[:stop], everything[:stop])
    assert np.isnan(half[stop:]).all()


def test_a_run_cut_short_is_no_run_time_and_a_second_start_no_wait() -> None:
    """A node failed at 50 of 600 seconds: neither is the user's past, nor is it in the log."""
    site = PlacementFeatures(64)
    job = submission(10.0, user=1)
    for kind, time in (("START", 40.0), ("CUT_SHORT", 50.0)):
        if kind == "START":
            site.submit(1, job)
        site.apply_event(EventKind[kind], 1, time)
    asked = submission(60.0, user=1)
    first = named(site.features(asked))
    assert (first["running_jobs"], first["user_run_1"], first["user_wait_1"]) == (0.0, -1.0, 30.0)
    site.submit(1, submission(50.0, user=1))
    site.apply_event(EventKind.START_AGAIN, 1, 55.0)
    assert named(site.features(asked))["running_jobs"] == 1.0
    site.apply_event(EventKind.END, 1, 655.0)
    asked = submission(700.0, user=1)
    last = named(site.features(asked))
    assert (last["user_run_1"], last["user_run_2"]) == (600.0, -1.0)
    assert (last["user_wait_1"], last["user_wait_mean"], last["recent_wait_mean_5"]) == (30.0, 30.0, 30.0)


def with_another(table: JobTable, submit: float) -> JobTable:
    """The table's only job, and a plain one of the same user."""
    columns = {
        field.name: np.repeat(column, 2)
        for field in fields(table)
        if isinstance(column := getattr(table, field.name), np.ndarray)
    }
    for name, value in {"submit": submit, "wait": 0.0, "requeued_seconds": 0.0, "is_whole": True}.items():
        columns[name][1] = value
    return replace(table, **columns)


@pytest.mark.parametrize(("requeued", "wait"), [(15.0, 30.0), (math.nan, -1.0), (0.0, 45.0)])
@pytest.mark.parametrize(("is_whole", "run"), [(True, 600.0), (False, -1.0)])
def test_a_log_with_requeued_jobs_teaches_what_it_knows(
    requeued: float, wait: float, run: float, *, is_whole: bool
) -> None:
    table = JobTable(
        job_id=np.array([1]),
        submit=np.array([10.0]),
        wait=np.array([45.0]),
        run=np.array([600.0]),
        processors=np.array([4]),
        requested_time=np.array([3600.0]),
        user=np.array([1]),
        group=np.array([0]),
        queue=np.array([0]),
        status=np.array([1]),
        requeued_seconds=np.array([requeued]),
        is_whole=np.array([is_whole]),
        total_processors=64,
    )
    found = named(features_of(with_another(table, 700.0))[1])
    assert (found["user_wait_1"], found["user_run_1"], found["running_jobs"]) == (wait, run, 0.0)
    for target, label in (("wait", wait), ("run", run)):
        known = Known.of(table, target)
        assert known.labels[known.rows].tolist() == ([label] if label >= 0.0 else [])


def _room_in(needed: float, free: float, running: list[tuple[float, ...]]) -> float:
    """By the plain definition: sort by what is left."""
    at = 0.0
    for left, processors in sorted(running):
        if free >= needed:
            break
        free, at = free + processors, left
    return at


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9), st.integers(1, 50)), max_size=600),
    st.integers(1, 60),
)
@settings(max_examples=40, deadline=None)
def test_room_follows_the_order_of_ends_after_any_changes(jobs, needed) -> None:
    """After each change the order must be that of the present running jobs."""
    site, running = PlacementFeatures(64), dict[int, tuple[int, int, int]]()
    now = 0.0
    for number, (start, processors, request) in enumerate(jobs):
        job = submission(float(start), processors=processors, request=float(request))
        site.submit(number, job)
        site.start(number, float(start))
        running[number] = start, processors, request
        if number % 3 == 2:
            gone = next(iter(running))
            site.finish(gone, 41.0)
            del running[gone]
        if number % 50 == 49 or number == len(jobs) - 1:
            now += 1.5
            found = named(site.features(submission(now, processors=needed)))
            left = [(max(0.0, begun + asked - now), float(width)) for begun, width, asked in running.values()]
            free = 64.0 - sum(width for _, width in left)
            assert found["free_processors"] == free
            assert found["room_for_job_in"] == _room_in(needed, free, left)
            assert found["room_for_queue_in"] == _room_in(min(0.95 * 64.0, needed), free, left)


@given(st.floats(-1e9, 2e9), st.floats(-5e4, 5e4))
@settings(max_examples=300, deadline=None)
def test_the_compiled_clock_equals_pythons(now: float, offset: float) -> None:
    found = named(PlacementFeatures(16, clock_offset_seconds=offset).features(submission(now)))
    clock = now + offset
    assert found["time_of_day"] == clock % 86_400.0
    assert found["day_of_week"] == clock // 86_400.0 % 7.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["submit", "start", "finish", "requeue", "look"]),
            st.integers(0, 5),
            st.integers(0, 2),
            st.sampled_from([2, 3, 9]),
            st.sampled_from([math.nan, 60.0, 86_400.0]),
        ),
        max_size=60,
    )
)
@settings(max_examples=60, deadline=None)
def test_reading_features_changes_no_later_features(steps) -> None:
    """After each step the features equal those of a new object that received the same events."""
    asked, told = PlacementFeatures(16), list[tuple[str, tuple]]()
    question, present = submission(0.0), set[int]()
    for number, (what, key, user, processors, request) in enumerate(steps):
        time = 7.0 * number
        job = submission(time, processors=processors, request=request, user=user, queue=key % 2)
        arguments = {
            "submit": (key, job),
            "start": (key, time),
            "finish": (key, time),
            "requeue": (key,),
        }
        if what == "look":
            question = job
        elif what != "submit" or key not in present:
            if what == "submit":
                present.add(key)
            elif what == "finish":
                present.discard(key)
            getattr(asked, what)(*arguments[what])
            told.append((what, arguments[what]))
        fresh = PlacementFeatures(16)
        for method, given_ in told:
            getattr(fresh, method)(*given_)
        question = question._replace(time=time)
        np.testing.assert_array_equal(asked.features(question), fresh.features(question))
