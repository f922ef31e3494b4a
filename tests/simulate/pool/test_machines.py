"""Several machines run as each of them does alone, on one clock."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.simulate.pool.machines import Machines
from advisor.simulate.pool.pool import Event, Pool

SIZES = (8, 4, 16)


def jobs_of(seed: int, count: int = 40) -> list[tuple[float, int, float, float]]:
    """Submission, processors, limit and run time of each job, by row."""
    rng = np.random.default_rng(seed)
    submits = np.sort(np.round(rng.uniform(0.0, 2000.0, count), -1))
    limits = np.round(rng.uniform(100.0, 900.0, count), -1)
    widths = rng.integers(1, 5, count)
    return [
        (float(submit), int(width), float(limit), float(limit * rng.choice([0.3, 1.0])))
        for submit, width, limit in zip(submits, widths, limits, strict=True)
    ]


def run(pool: Pool | Machines, rows: dict[int, tuple[float, int, float, float]]) -> list[Event]:
    events: list[Event] = []
    for row, (submit, processors, limit, length) in rows.items():
        events += pool.advance(submit)
        pool.add(row, processors=processors, limit=limit, run=length, order=float(row))
    return events + pool.advance(math.inf)


@given(st.integers(0, 10_000))
def test_each_machine_runs_as_it_does_alone(seed: int) -> None:
    jobs = jobs_of(seed)
    places = np.random.default_rng(seed + 1).integers(0, 3, len(jobs))
    together = run(Machines(SIZES, places), dict(enumerate(jobs)))
    assert [event.time for event in together] == sorted(event.time for event in together)
    for place, size in enumerate(SIZES):
        alone = run(Pool(size, len(jobs)), {row: job for row, job in enumerate(jobs) if places[row] == place})
        assert [event for event in together if places[event.row] == place] == alone


def test_a_job_never_takes_another_machines_processors() -> None:
    machines = Machines((4, 4), np.array([0, 0, 1]))
    for row in (0, 1):
        machines.add(row, processors=4, limit=100.0, run=50.0, order=float(row))
    assert machines.advance(10.0) == [Event(0.0, 0, has_started=True)]
    starts = machines.forecast(np.array([50.0, 50.0, 50.0]))
    assert starts[1] == 50.0
    assert np.isnan(starts[[0, 2]]).all()
    assert (machines.running.tolist(), machines.ran.tolist()) == ([0], [10.0])
    assert machines.waiting.tolist() == [1]
    assert machines.is_waiting(1)
    machines.remove(1)
    assert not machines.is_waiting(1)


def test_it_returns_at_a_watched_start_before_later_events_of_the_other_machine() -> None:
    machines = Machines((4, 4), np.array([0, 0, 1, 1]))
    for row, length in enumerate((100.0, 10.0, 30.0, 200.0)):
        machines.add(row, processors=4, limit=500.0, run=length, order=float(row))
    machines.watch(3, is_watched=True)
    seen = machines.advance(1000.0)
    assert machines.is_interrupted
    assert seen[-1] == Event(30.0, 3, has_started=True)
    machines.stop(3)
    rest = machines.advance(1000.0)
    assert not machines.is_interrupted
    assert [(event.time, event.row) for event in rest] == [(100.0, 0), (100.0, 1), (110.0, 1)]


@pytest.mark.parametrize("until", [0.0, 40.0])
def test_a_job_that_was_added_now_starts_now(until: float) -> None:
    machines = Machines((4, 4), np.array([0, 1]))
    machines.add(0, processors=1, limit=100.0, run=100.0, order=0.0)
    machines.advance(until)
    machines.add(1, processors=1, limit=100.0, run=5.0, order=1.0)
    assert machines.advance(until + 5.0)[-2:] == [
        Event(until, 1, has_started=True),
        Event(until + 5.0, 1, has_started=False),
    ]
