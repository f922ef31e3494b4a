"""The forecast of a snapshot's queue is what the pool then does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.simulate.pool.closed_queue import ClosedQueue, closed_queue_starts
from advisor.simulate.pool.pool import Pool, Resources
from tests.simulate.pool.plain_easy import drawn_queue, plain_starts

MACHINE = 16


def test_the_starts_are_those_of_a_pool_that_goes_on_from_the_same_moment() -> None:
    rng = np.random.default_rng(3)
    count = 60
    processors = rng.integers(1, 12, count)
    limits = rng.uniform(100.0, 5000.0, count)
    runs = limits * rng.uniform(0.05, 1.0, count)
    pool = Pool(MACHINE, count)
    for row in range(count):
        pool.add(row, processors=int(processors[row]), limit=limits[row], run=runs[row], order=float(row))
    begun = {event.row: event.time for event in pool.advance(4000.0) if event.has_started}
    running, waiting = pool.running.copy(), pool.waiting.copy()
    assert len(waiting) > 20
    here = np.array([[processors[r], begun[r], limits[r], runs[r]] for r in running])
    there = np.column_stack((processors[waiting], limits[waiting], runs[waiting]))
    found = closed_queue_starts(ClosedQueue(np.array([16.0]), here, there), 4000.0)
    started: dict[int, float] = {}
    while events := pool.advance(np.inf):
        started |= {event.row: event.time for event in events if event.has_started}
    np.testing.assert_allclose(found, [started[row] for row in waiting], atol=1.0)


@pytest.mark.parametrize("seed", range(3, 6))
def test_a_deep_queue_keeps_its_order_when_jobs_leave_and_come_by_rank(seed: int) -> None:
    """Its blocks are left out where nothing could start: the starts are those of the plain scheduler."""
    rng = np.random.default_rng(seed)
    count = 600
    widths = rng.choice([1, 2, 12, MACHINE], count, p=[0.1, 0.1, 0.4, 0.4])
    jobs = np.column_stack((widths, rng.integers(10, 500, count) * 10.0))
    runs = np.ceil(jobs[:, 1] * rng.uniform(0.05, 1.0, count))
    place = list(zip(rng.integers(0, 3, count).tolist(), range(count), strict=True))
    pool, waiting = Pool(MACHINE, count), list[int]()

    def add(row: int) -> None:
        rank, order = place[row]
        pool.add(row, processors=int(jobs[row, 0]), limit=jobs[row, 1], run=runs[row], order=order, rank=rank)
        waiting.append(row)

    def snapshot() -> ClosedQueue:
        running = pool.running
        here = np.column_stack((jobs[running, 0], pool.now - pool.ran, jobs[running, 1], runs[running]))
        there = np.column_stack((jobs[pool.waiting], runs[pool.waiting]))
        return ClosedQueue(np.array([16.0]), here, there)

    def starts() -> list[float]:
        return closed_queue_starts(snapshot(), pool.now).tolist()

    for row in range(count):
        add(row)
        if rng.random() < 0.3:
            gone = waiting.pop(int(rng.integers(len(waiting))))
            pool.remove(gone)
            if rng.random() < 0.5:
                add(gone)
        if row % 5 == 0:
            until, forecast = pool.now + 100.0, dict(zip(pool.waiting.tolist(), starts(), strict=True))
            started = {event.row: event.time for event in pool.advance(until) if event.has_started}
            assert started == {one: time for one, time in forecast.items() if time <= until}
            waiting = [one for one in waiting if one not in started]
        if row % 25 == 0:
            assert pool.forecast(runs)[pool.waiting].tolist() == starts()
        assert pool.waiting.tolist() == sorted(waiting, key=place.__getitem__)
    there = pool.waiting
    assert len(there) > 200
    assert starts() == pool.forecast(runs)[there].tolist() == plain_starts(snapshot(), pool.now).tolist()


@given(st.integers(0, 10_000))
def test_a_pool_with_further_resources_forecasts_what_it_then_does(seed: int) -> None:
    """And what the snapshot of its queue forecasts at the same moment."""
    rng = np.random.default_rng(seed)
    count, sizes = 30, np.array([64.0, 4.0])
    processors = rng.integers(1, 12, count)
    needs = np.column_stack((rng.integers(0, 65, count), rng.choice([0, 0, 1, 4], count))).astype(float)
    limits = rng.uniform(100.0, 5000.0, count)
    runs = limits * rng.uniform(0.05, 1.0, count)
    pool = Pool(MACHINE, count, resources=Resources(sizes, needs))
    for row in range(count):
        pool.add(row, processors=int(processors[row]), limit=limits[row], run=runs[row], order=float(row))
    begun = {event.row: event.time for event in pool.advance(2000.0) if event.has_started}
    running, waiting = pool.running.copy(), pool.waiting.copy()
    here = np.array([[processors[r], begun[r], limits[r], runs[r], *needs[r]] for r in running])
    there = np.column_stack((processors[waiting], limits[waiting], runs[waiting], needs[waiting]))
    queue = ClosedQueue(np.array([16.0, *sizes]), here.reshape(-1, 6), there.reshape(-1, 5))
    found, own = closed_queue_starts(queue, 2000.0), pool.forecast(runs)
    started: dict[int, float] = {}
    while events := pool.advance(np.inf):
        started |= {event.row: event.time for event in events if event.has_started}
    np.testing.assert_allclose(found, [started[row] for row in waiting], atol=1.0)
    np.testing.assert_allclose(own[waiting], [started[row] for row in waiting], atol=1.0)


def test_a_job_larger_than_the_machine_never_starts_and_others_pass_it() -> None:
    waiting = np.array([[8.0, 60.0, 60.0], [4.0, 60.0, 30.0], [4.0, 60.0, 60.0]])
    starts = closed_queue_starts(ClosedQueue(np.array([4.0]), np.zeros((0, 4)), waiting), 100.0)
    assert starts.tolist() == [np.inf, 100.0, 130.0]


def test_a_job_waits_for_every_resource_that_it_needs() -> None:
    """One job has 1 of 8 processors and 90 of 100 GiB. A job that needs more memory than is left waits."""
    running = np.array([[1.0, 0.0, 500.0, 300.0, 90.0]])
    waiting = np.array([[1.0, 60.0, 60.0, 20.0], [1.0, 60.0, 60.0, 10.0], [7.0, 60.0, 60.0, 0.0]])
    starts = closed_queue_starts(ClosedQueue(np.array([8.0, 100.0]), running, waiting), 100.0)
    assert starts.tolist() == [300.0, 100.0, 160.0]


@given(st.integers(0, 10_000), st.integers(1, 3))
def test_resources_that_are_shares_of_the_processors_change_nothing(seed: int, more: int) -> None:
    rng = np.random.default_rng(seed)
    here = np.column_stack((rng.integers(1, 5, 3), rng.uniform(0.0, 99.0, 3), rng.uniform(100, 900, (3, 2))))
    there = np.column_stack((rng.integers(1, MACHINE + 2, 30), rng.uniform(60.0, 900.0, (30, 2))))
    plain = closed_queue_starts(ClosedQueue(np.array([16.0]), here, there), 100.0)
    factors = rng.integers(1, 9, more)
    queue = ClosedQueue(
        16.0 * np.array([1.0, *factors]),
        np.column_stack((here, here[:, :1] * factors)),
        np.column_stack((there, there[:, :1] * factors)),
    )
    assert closed_queue_starts(queue, 100.0).tolist() == plain.tolist()


@given(st.integers(0, 10_000))
def test_no_resource_is_given_out_twice_and_the_head_is_not_delayed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes, count = np.array([16.0, 64.0, 4.0]), 25
    needs = np.column_stack(
        (rng.integers(1, 17, count), rng.integers(0, 65, count), rng.choice([0, 0, 1, 4], count))
    ).astype(float)
    limits = rng.uniform(60.0, 900.0, count)
    runs = limits * rng.uniform(0.05, 1.0, count)
    waiting = np.column_stack((needs[:, 0], limits, runs, needs[:, 1:]))
    starts = closed_queue_starts(ClosedQueue(sizes, np.zeros((0, 6)), waiting), 0.0)
    for time in starts:
        held = needs[(starts <= time) & (time < starts + runs)].sum(axis=0)
        assert (held <= sizes).all()
    first = starts[0]
    assert first == 0.0  # the machine was empty
    heads = np.flatnonzero(starts > 0.0)
    if len(heads):  # the first that had to wait: were those behind it gone, it would not start sooner
        head = int(heads[0])
        alone = closed_queue_starts(ClosedQueue(sizes, np.zeros((0, 6)), waiting[: head + 1]), 0.0)
        to_limits = ClosedQueue(sizes, np.zeros((0, 6)), waiting[: head + 1]).run_to_limits()
        assert alone[head] <= starts[head] <= max(alone[head], closed_queue_starts(to_limits, 0.0)[head])


@settings(max_examples=300)
@given(st.integers(0, 1_000_000))
def test_the_starts_are_those_of_the_rules_written_out(seed: int) -> None:
    queue = drawn_queue(seed)
    assert closed_queue_starts(queue, 0.0).tolist() == plain_starts(queue, 0.0).tolist()


def test_jobs_that_would_run_into_a_reservation_of_all_nodes_wait_for_its_end() -> None:
    """Maintenance from 1,000 to 5,000 s on an empty machine."""
    maintenance = np.array([[1000.0, 5000.0, 0.0, 0.0]])
    waiting = np.array([[4.0, 1200.0, 10.0], [4.0, 900.0, 900.0], [4.0, 100.0, 100.0], [4.0, 101.0, 50.0]])
    starts = closed_queue_starts(ClosedQueue(np.array([4.0]), np.zeros((0, 5)), waiting, maintenance), 0.0)
    assert starts.tolist() == [5000.0, 0.0, 900.0, 5010.0]


def test_a_user_at_their_limit_does_not_hold_others_up_and_goes_on_as_their_jobs_end() -> None:
    """One user may have two jobs at a time, and has two of eight processors each; their others are first."""
    running = np.array([[2.0, 0.0, 900.0, 100.0], [2.0, 0.0, 900.0, 300.0]])
    waiting = np.array([[2.0, 900.0, 50.0], [2.0, 900.0, 50.0], [4.0, 900.0, 400.0], [1.0, 900.0, 10.0]])
    limited = np.array([[1.0, 1.0]] * 4 + [[0.0, 0.0]] * 2)
    queue = ClosedQueue(np.array([8.0]), running, waiting, limited=limited, groups=np.zeros(2))
    assert closed_queue_starts(queue, 0.0).tolist() == [100.0, 150.0, 0.0, 200.0]
    unlimited = ClosedQueue(np.array([8.0]), running, waiting)
    assert closed_queue_starts(unlimited, 0.0).tolist() == [0.0, 0.0, 50.0, 100.0]
