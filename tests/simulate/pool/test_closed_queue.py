"""The forecast of a snapshot's queue is what the pool then does."""

from __future__ import annotations

import numpy as np

from advisor.simulate.pool.closed_queue import RunningJobs, WaitingJobs, closed_queue_starts
from advisor.simulate.pool.pool import Pool

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
    found = closed_queue_starts(
        MACHINE,
        4000.0,
        RunningJobs(
            processors[running],
            np.array([begun[row] for row in running]),
            limits[running],
            runs[running],
        ),
        WaitingJobs(processors[waiting], limits[waiting], runs[waiting]),
    )
    started: dict[int, float] = {}
    while events := pool.advance(np.inf):
        started |= {event.row: event.time for event in events if event.has_started}
    np.testing.assert_allclose(found, [started[row] for row in waiting], atol=1.0)


def test_a_job_larger_than_the_machine_never_starts_and_others_pass_it() -> None:
    none = np.zeros(0)
    starts = closed_queue_starts(
        4,
        100.0,
        RunningJobs(np.zeros(0, np.int64), none, none, none),
        WaitingJobs(np.array([8, 4, 4]), np.array([60.0, 60.0, 60.0]), np.array([60.0, 30.0, 60.0])),
    )
    assert starts.tolist() == [np.inf, 100.0, 130.0]
