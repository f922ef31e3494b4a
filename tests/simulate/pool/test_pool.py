"""The interactive pool: the schedules of the whole-log engine, and what a caller may do in between."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.papers.cluster.demand import LARGE, Demand
from advisor.papers.cluster.engine import simulate
from advisor.simulate.pool.pool import Pool


def workload(seed: int, count: int, machine: int) -> Demand:
    draw = np.random.default_rng(seed)
    run = np.ceil(draw.lognormal(4.0, 1.5, count))
    requested = np.maximum(run, np.ceil(run * draw.choice([1.0, 1.5, 4.0], count)))
    return Demand(
        submit=np.cumsum(np.floor(draw.exponential(40.0, count))),
        run=run,
        processors=draw.integers(1, machine + 1, count),
        requested=requested,
        planned=requested,
        limit=np.full(count, math.inf),
        job_class=np.full(count, LARGE),
        user=np.zeros(count, np.int64),
    )


def filled(pool: Pool, jobs: list[tuple[int, float, float]]) -> None:
    """Rows in order: (processors, limit, run)."""
    for row, (processors, limit, run) in enumerate(jobs):
        pool.add(row, processors=processors, limit=limit, run=run, order=row)


def starts(pool: Pool, until: float = math.inf) -> dict[int, float]:
    return {event.row: event.time for event in pool.advance(until) if event.has_started}


@pytest.mark.parametrize("seed", range(20))
def test_the_pool_starts_jobs_as_the_engine_does(seed: int) -> None:
    jobs = workload(seed, 300, 16)
    expected = simulate(jobs, 16)
    pool = Pool(16, len(jobs))
    found: dict[int, float] = {}
    for row in range(len(jobs)):
        found |= starts(pool, float(jobs.submit[row]))
        pool.add(
            row,
            processors=int(jobs.processors[row]),
            limit=float(jobs.requested[row]),
            run=float(jobs.run[row]),
            order=row,
        )
    found |= starts(pool)
    assert [found[row] for row in range(len(jobs))] == expected.start.tolist()


def test_a_closed_queue_starts_as_forecast_when_the_run_times_are_known() -> None:
    jobs = workload(7, 80, 16)
    pool = Pool(16, len(jobs))
    rows = [(int(p), float(q), float(r)) for p, q, r in zip(jobs.processors, jobs.requested, jobs.run)]  # noqa: B905
    filled(pool, rows)
    pool.advance(50.0)
    waiting = pool.waiting.tolist()
    forecast = pool.forecast(jobs.run)
    assert len(waiting) > 20
    found = starts(pool)
    assert [forecast[row] for row in waiting] == [found[row] for row in waiting]


def test_a_forecast_leaves_the_pool_as_it_was() -> None:
    pool = Pool(4, 4)
    filled(pool, [(3, 10, 10), (4, 5, 5), (1, 8, 8)])
    pool.advance(1.0)
    before = pool.waiting.tolist(), pool.running.tolist(), pool.free, pool.now
    pool.forecast(np.full(4, 3.0))
    assert (pool.waiting.tolist(), pool.running.tolist(), pool.free, pool.now) == before


def test_a_removed_job_makes_way_for_those_behind_it() -> None:
    pool = Pool(4, 3)
    filled(pool, [(4, 10, 10), (4, 10, 10), (4, 10, 10)])
    pool.advance(0.0)
    pool.remove(1)
    assert starts(pool) == {2: 10.0}


def test_a_head_that_comes_again_with_fewer_processors_awaits_fewer_jobs() -> None:
    pool = Pool(9, 5)
    for row, (processors, limit) in enumerate([(4, 50.0), (4, 100.0), (9, 60.0), (9, 60.0)]):
        pool.add(row, processors=processors, limit=limit, run=limit, order=float(row))
        pool.advance(float(row))
    pool.remove(2)
    pool.add(2, processors=5, limit=60.0, run=60.0, order=2.0)
    pool.add(4, processors=1, limit=90.0, run=90.0, order=4.0)
    started = {event.row: event.time for event in pool.advance(50.0) if event.has_started}
    assert started == {2: 50.0}, "the last one would delay the head"


def test_a_stopped_job_gives_its_processors_back_and_may_run_again() -> None:
    pool = Pool(4, 2)
    filled(pool, [(4, 10, 10), (4, 10, 10)])
    pool.advance(3.0)
    pool.stop(0)
    assert starts(pool, 3.0) == {1: 3.0}
    pool.add(0, processors=4, limit=10, run=10, order=0)
    events = pool.advance(math.inf)
    assert [(event.row, event.time) for event in events if event.has_started] == [(0, 13.0)]
    assert [event.row for event in events if not event.has_started] == [1, 0]


def test_many_stops_do_not_fill_the_heap_of_ends() -> None:
    pool = Pool(1, 1)
    for time in range(2_000):
        pool.advance(float(time))
        pool.add(0, processors=1, limit=1e6, run=1e6, order=0)
        assert starts(pool, float(time)) == {0: float(time)}
        pool.stop(0)
    assert pool.free == 1


def test_a_job_keeps_its_place_and_the_caller_acts_at_its_start() -> None:
    pool = Pool(4, 3)
    filled(pool, [(4, 10, 10), (4, 10, 10), (4, 10, 10)])
    pool.watch(1, is_watched=True)
    pool.advance(100.0)
    assert pool.is_interrupted
    assert (pool.now, pool.is_running(1)) == (10.0, True)
    pool.watch(1, is_watched=False)
    pool.stop(1)
    assert starts(pool, 100.0) == {2: 10.0}
    assert not pool.is_interrupted


def test_a_smaller_rank_comes_first() -> None:
    pool = Pool(4, 3)
    filled(pool, [(4, 10, 10), (4, 10, 10)])
    pool.add(2, processors=4, limit=10, run=10, order=2, rank=-1.0)
    pool.advance(0.0)
    assert pool.waiting.tolist() == [0, 1]


def test_a_job_is_killed_at_its_limit() -> None:
    pool = Pool(1, 1)
    filled(pool, [(1, 10, 99)])
    assert [event.time for event in pool.advance(math.inf)] == [0.0, 10.0]


def test_a_job_larger_than_the_machine_is_refused() -> None:
    with pytest.raises(BadInput, match="needs 5 processors, and the machine has 4"):
        filled(Pool(4, 1), [(5, 1, 1)])
