"""Cluster state: by definition, event by event, from snapshots and for a whole log at once."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from advisor.model.cluster import ClusterState
from advisor.model.table import JobTable
from advisor.predict.knn.tracker import ClusterTracker, SnapshotRow, states_of

NAN = math.nan


def table_of(rows, *, total_processors=16):
    """Rows of (submit, wait, run, processors, requested time)."""
    submit, wait, run, processors, requested = (
        np.array(column, float) for column in (zip(*rows, strict=True) if rows else [[]] * 5)
    )
    codes = np.zeros(len(submit), np.int64)
    return JobTable(
        job_id=np.arange(len(submit)),
        submit=submit,
        wait=wait,
        run=run,
        processors=processors.astype(np.int64),
        requested_time=requested,
        user=codes,
        group=codes,
        queue=codes,
        status=codes,
        total_processors=total_processors,
    )


def states_by_definition(table):
    """Table I and Ambati's Table 1, summed anew for every submission."""
    order = np.argsort(table.submit, kind="stable").tolist()
    rank = {row: place for place, row in enumerate(order)}
    requests, known = {}, []
    for row in order:
        request = table.requested_time[row]
        if math.isnan(request):
            request = round(sum(known) / len(known)) if known else 0.0
        else:
            known.append(request)
        requests[row] = request
    start = table.submit + np.maximum(table.wait, 0)
    end = start + np.maximum(table.run, 0)
    result = []
    for row in range(len(table)):
        now = table.submit[row]
        earlier = [other for other in order if rank[other] < rank[row]]
        waiting = [j for j in earlier if start[j] > now]
        running = [j for j in earlier if start[j] <= now < end[j]]
        busy = sum(table.processors[running])
        result.append(
            ClusterState(
                time=now,
                queue_size=len(waiting),
                queued_work_core_seconds=sum(table.processors[j] * requests[j] for j in waiting),
                remaining_work_core_seconds=sum(
                    table.processors[j] * max(0.0, start[j] + requests[j] - now) for j in running
                ),
                free_processors=max(0, table.total_processors - busy),
                total_processors=table.total_processors,
                running_jobs=len(running),
            )
        )
    return result


def states_by_tracker(table):
    """Feed a tracker the log's events as they happen."""
    tracker = ClusterTracker(table.total_processors)
    coming: list[tuple[float, int, int]] = []
    result = {}
    for row in np.argsort(table.submit, kind="stable").tolist():
        now = table.submit[row]
        while coming and coming[0][0] <= now:
            time, kind, key = heapq.heappop(coming)
            assert tracker.start(key, time) if kind else tracker.finish(key, time)
        result[row] = tracker.state(now)
        requested = table.requested_time[row]
        assert tracker.submit(
            row,
            processors=int(table.processors[row]),
            requested_time=None if math.isnan(requested) else requested,
            time=now,
        )
        start = now + max(0.0, table.wait[row])
        if table.run[row] > 0:
            heapq.heappush(coming, (start, 1, row))
            heapq.heappush(coming, (start + table.run[row], 0, row))
        else:
            heapq.heappush(coming, (start, 0, row))
    return [result[row] for row in range(len(table))]


def same(state, other):
    assert asdict(state) == pytest.approx(asdict(other), rel=1e-9, abs=1e-6)


def rows_of(number):
    """Jobs that often begin or end at the same time, overrun, never run or have an unknown request."""
    return st.lists(
        st.tuples(
            number(0, 12),
            number(-1, 8),
            number(-1, 10),
            st.integers(1, 6),
            st.one_of(st.just(NAN), number(0, 12)),
        ),
        max_size=30,
    )


def whole(low, high):
    return st.integers(low, high).map(float)


def parts(low, high):
    return st.integers(8 * low, 8 * high).map(lambda n: n / 8)  # exact sums, equal times


@settings(max_examples=200, deadline=None)
@given(rows=rows_of(whole))
def test_log_at_once_equals_definition_and_tracker_exactly(rows):
    table = table_of(rows)
    states = states_of(table)
    assert len(states) == len(table)
    at_once = [states.state(row) for row in range(len(table))]
    assert at_once == states_by_tracker(table)
    for state, expected in zip(at_once, states_by_definition(table), strict=True):
        same(state, expected)


@settings(max_examples=100, deadline=None)
@given(rows=rows_of(parts))
def test_submissions_within_one_second_keep_their_order(rows):
    table = table_of(rows)
    states = states_of(table)
    everything = zip(states_by_tracker(table), states_by_definition(table), strict=True)
    for row, (tracked, expected) in enumerate(everything):
        same(states.state(row), expected)
        same(tracked, expected)


@settings(max_examples=30, deadline=None)
@given(rows=rows_of(whole))
def test_size_of_an_unknown_machine_is_the_most_seen_busy(rows):
    table = table_of(rows, total_processors=0)
    states = states_of(table)
    assert [states.state(row) for row in range(len(table))] == states_by_tracker(table)
    assert np.all(states.free_processors >= 0)


def test_states_keep_the_row_order_of_the_table():
    rows = [(50.0, 10.0, 20.0, 2, 30.0), (0.0, 60.0, 5.0, 4, 100.0), (20.0, 0.0, 40.0, 1, 40.0)]
    states = states_of(table_of(rows))
    assert states.time.tolist() == [50.0, 0.0, 20.0]
    assert states.queue_size.tolist() == [1, 0, 1]
    assert states.running_jobs.tolist() == [1, 0, 0]


@pytest.mark.parametrize("start", [0.0, 1.7e9])
def test_remaining_work_of_a_job_that_overruns(start):
    tracker = ClusterTracker(10)
    tracker.submit("a", processors=4, requested_time=100.0, time=start)
    tracker.start("a", start + 10)
    assert tracker.state(start + 10).remaining_work_core_seconds == 400.0
    assert tracker.state(start + 60).remaining_work_core_seconds == 200.0
    assert tracker.state(start + 110).remaining_work_core_seconds == 0.0
    state = tracker.state(start + 500)
    assert state.remaining_work_core_seconds == 0.0
    assert state.free_processors == 6
    assert tracker.finish("a", start + 501)
    assert tracker.state(start + 502).free_processors == 10


def test_unknown_events_change_nothing():
    tracker = ClusterTracker(10)
    tracker.submit("a", processors=4, requested_time=100.0, time=0.0)
    before = tracker.state(5.0)
    assert not tracker.submit("a", processors=9, requested_time=1.0, time=5.0)
    assert not tracker.start("b", 5.0)
    assert not tracker.finish("b", 5.0)
    assert tracker.state(5.0) == before
    assert tracker.start("a", 5.0)
    assert not tracker.start("a", 5.0)


def test_time_does_not_run_back():
    tracker = ClusterTracker(10)
    tracker.submit("a", processors=1, requested_time=10.0, time=100.0)
    tracker.start("a", 40.0)  # counts as at 100
    assert tracker.state(105.0).remaining_work_core_seconds == 5.0
    assert tracker.state(50.0).remaining_work_core_seconds == 5.0


@pytest.mark.parametrize("request_", [None, NAN, math.inf, -5.0])
def test_unknown_request_counts_as_the_mean_of_those_before(request_):
    tracker = ClusterTracker(10)
    tracker.submit("first", processors=1, requested_time=request_, time=0.0)
    assert tracker.state(0.0).queued_work_core_seconds == 0.0
    tracker.submit("a", processors=1, requested_time=10.0, time=0.0)
    tracker.submit("b", processors=1, requested_time=30.0, time=0.0)
    tracker.submit("c", processors=3, requested_time=request_, time=0.0)
    assert tracker.state(0.0).queued_work_core_seconds == 10 + 30 + 3 * 20


SNAPSHOT = [
    SnapshotRow(key=3, processors=2, submit_time=300.0, requested_time=50.0),
    SnapshotRow(key=1, processors=4, submit_time=100.0, requested_time=500.0, start_time=200.0),
    SnapshotRow(key=2, processors=1, submit_time=150.0, requested_time=None, start_time=150.0),
]


def test_snapshot_equals_the_events_that_led_to_it():
    tracker = ClusterTracker(8)
    for row in sorted(SNAPSHOT, key=lambda row: row.submit_time):
        tracker.submit(
            row.key, processors=row.processors, requested_time=row.requested_time, time=row.submit_time
        )
        if row.start_time == row.submit_time:
            tracker.start(row.key, row.start_time)
        if row.key == 2:
            tracker.start(1, 200.0)
    live = ClusterTracker.from_snapshot(SNAPSHOT, total_processors=8, time=400.0)
    assert live.state(400.0) == tracker.state(400.0)
    state = live.state(400.0)
    assert (state.queue_size, state.running_jobs, state.free_processors) == (1, 2, 3)
    assert state.queued_work_core_seconds == 100.0
    # job 1: 4 x (500 - 200); job 2: request as job 1's, 1 x (500 - 250)
    assert state.remaining_work_core_seconds == 1200.0 + 250.0
    assert live.finish(1, 450.0)
    assert live.state(450.0).free_processors == 7


def test_a_row_of_an_array_counts_once_per_task():
    array = {"processors": 3, "submit_time": 350.0, "requested_time": 70.0}
    tasks = [SnapshotRow(key=("task", number), **array) for number in range(1000)]
    later = SnapshotRow(key="later", processors=1, submit_time=360.0)  # counts as the mean of those before
    one_by_one = ClusterTracker.from_snapshot([*SNAPSHOT, *tasks, later], total_processors=8, time=400.0)
    row = SnapshotRow(key="array", tasks=1000, **array)
    at_once = ClusterTracker.from_snapshot([*SNAPSHOT, row, later], total_processors=8, time=400.0)
    assert at_once.state(400.0) == one_by_one.state(400.0)
    for task in tasks:
        one_by_one.start(task.key, 410.0)
    at_once.start("array", 410.0)
    assert at_once.state(420.0) == one_by_one.state(420.0)
    assert at_once.state(500.0) == one_by_one.state(500.0)  # over their limit
    for task in tasks:
        one_by_one.finish(task.key, 510.0)
    at_once.finish("array", 510.0)
    assert at_once.state(520.0) == one_by_one.state(520.0)


def test_empty_snapshot():
    state = ClusterTracker.from_snapshot([], total_processors=8, time=400.0).state(401.0)
    assert (state.queue_size, state.running_jobs, state.free_processors) == (0, 0, 8)


def test_limits_of_ended_jobs_are_removed():
    tracker = ClusterTracker(4)
    for job in range(5000):
        tracker.submit(job, processors=1, requested_time=1e6, time=float(job))
        tracker.start(job, float(job))
        tracker.finish(job, job + 0.5)
    assert len(tracker._limits) < 100
    state = tracker.state(6000.0)
    assert replace(state, total_processors=0, free_processors=0) == ClusterState(
        time=6000.0,
        queue_size=0,
        queued_work_core_seconds=0.0,
        remaining_work_core_seconds=0.0,
        free_processors=0,
        total_processors=0,
        running_jobs=0,
    )
