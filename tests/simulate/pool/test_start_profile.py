"""A job placed in the profile starts when the whole simulation with it says so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.simulate.pool.closed_queue import ClosedQueue, closed_queue_starts
from advisor.simulate.pool.start_profile import StartProfile, start_profile
from tests.simulate.pool.plain_easy import drawn_queue, plain_starts

MACHINE = 32
NOW = 1000.0


def profile_of(running: np.ndarray, waiting: np.ndarray) -> StartProfile:
    return start_profile(ClosedQueue(np.array([float(MACHINE)]), running, waiting), NOW)


def needs(processors: int) -> np.ndarray:
    return np.array([float(processors)])


def simulated(running: np.ndarray, waiting: np.ndarray, processors: int, limit: float) -> float:
    """The start of the last of all waiting jobs in the whole simulation."""
    every = np.vstack((waiting, [[processors, limit, limit]]))
    return float(closed_queue_starts(ClosedQueue(np.array([float(MACHINE)]), running, every), NOW)[-1])


def queue_of(seed: int, waiting: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    running, free = [], MACHINE
    while (width := int(rng.integers(1, 12))) <= free:
        limit = rng.uniform(300.0, 5000.0)
        running.append((width, NOW - rng.uniform(0.0, 900.0), limit, limit * rng.uniform(0.05, 1.0)))
        free -= width
    behind = []
    for _ in range(waiting):
        limit = rng.uniform(60.0, 9000.0)
        behind.append((int(rng.integers(1, MACHINE + 1)), limit, limit * rng.uniform(0.05, 1.0)))
    return np.array(running).reshape(-1, 4), np.array(behind).reshape(-1, 3)


@given(st.integers(0, 10_000), st.integers(0, 40), st.integers(1, MACHINE), st.floats(60.0, 50_000.0))
def test_the_start_is_that_of_the_whole_simulation(
    seed: int, waiting: int, processors: int, limit: float
) -> None:
    running, behind = queue_of(seed, waiting)
    profile = profile_of(running, behind)
    assert profile.start_of(needs(processors), limit, NOW) == pytest.approx(
        simulated(running, behind, processors, limit), abs=1e-6
    )


def test_as_time_goes_by_a_job_starts_no_sooner_than_now() -> None:
    running, behind = queue_of(1, 0)
    profile = profile_of(running, behind)
    assert profile.start_of(needs(MACHINE), 60.0, NOW + 1e6) == NOW + 1e6


def test_a_job_larger_than_the_machine_never_starts() -> None:
    running, behind = queue_of(2, 5)
    assert profile_of(running, behind).start_of(needs(MACHINE + 1), 60.0, NOW) == np.inf


def test_an_empty_machine_takes_the_job_at_once() -> None:
    profile = profile_of(np.zeros((0, 4)), np.zeros((0, 3)))
    assert profile.start_of(needs(MACHINE), 60.0, NOW + 5.0) == NOW + 5.0


def free_at(profile: StartProfile, time: float) -> float:
    times, free = profile.passes[[0, 2]]
    return float(free[np.searchsorted(times, time, side="right") - 1])


@given(st.integers(0, 10_000), st.integers(0, 30), st.integers(1, MACHINE), st.floats(60.0, 20_000.0))
def test_a_job_that_joined_takes_its_processors_for_as_long_as_it_is_expected_to_run(
    seed: int, waiting: int, processors: int, limit: float
) -> None:
    profile = profile_of(*queue_of(seed, waiting))
    start = profile.start_of(needs(processors), limit, NOW)
    run = 0.5 * limit
    joined = profile.copy()
    joined.join(needs(processors), limit, NOW, run)
    assert np.all(np.diff(joined.passes[0]) >= 0.0)
    for time in (*profile.passes[0], start, start + 0.5 * run, start + run, start + limit):
        before, after = free_at(profile, time), free_at(joined, time)
        taken = processors if start <= time < start + run else 0
        assert after == before - taken


def test_jobs_that_join_an_empty_queue_start_one_behind_the_other() -> None:
    full = np.array([[MACHINE, NOW - 10.0, 200.0, 110.0]])
    profile = profile_of(full, np.zeros((0, 3)))
    starts = []
    for _ in range(3):
        starts.append(profile.start_of(needs(20), 90.0, NOW))
        profile.join(needs(20), 90.0, NOW, 50.0)
    assert starts == [NOW + 100.0, NOW + 150.0, NOW + 200.0]
    assert profile.start_of(needs(12), 100.0, NOW) == NOW + 100.0  # it fits beside them


def test_starts_of_jobs_that_join_are_near_the_whole_simulations() -> None:
    misses, waits = [], []
    for seed in range(60):
        running, behind = queue_of(seed, seed % 30)
        profile = profile_of(running, behind)
        rng = np.random.default_rng(seed + 1000)
        for _ in range(4):
            processors, limit = int(rng.integers(1, 20)), rng.uniform(60.0, 9000.0)
            whole = simulated(running, behind, processors, limit)
            misses.append(abs(profile.start_of(needs(processors), limit, NOW) - whole))
            waits.append(whole - NOW)
            run = limit * rng.uniform(0.05, 1.0)
            profile.join(needs(processors), limit, NOW, run)
            behind = np.vstack((behind, [[processors, limit, run]]))
    assert np.mean(np.array(misses) < 1.0) > 0.8
    assert np.mean(misses) < 0.05 * np.mean(waits)


_JOBS = st.tuples(
    st.integers(1, MACHINE + 1),
    st.integers(1, 90).map(lambda hundreds: 100.0 * hundreds),
    st.sampled_from((0.1, 0.5, 1.0)),
    st.sampled_from((0.0, 0.0, 1.0, 100.0, 700.0)),
    st.booleans(),
)


@given(st.integers(0, 10_000), st.integers(0, 30), st.lists(_JOBS, max_size=60))
def test_the_starts_that_it_remembers_change_no_other(
    seed: int, waiting: int, jobs: list[tuple[int, float, float, float, bool]]
) -> None:
    """A search begins where a smaller job has started: a copy, which remembers none, finds the same."""
    profile, now = profile_of(*queue_of(seed, waiting)), NOW
    for processors, limit, share, passes_by, joins in jobs:
        now += passes_by
        start = profile.start_of(needs(processors), limit, now)
        assert start == profile.copy().start_of(needs(processors), limit, now)
        if joins:
            profile.join(needs(processors), limit, now, share * limit)


@given(st.integers(0, 1_000_000), st.integers(1, 30))
def test_the_start_is_that_of_the_whole_simulation_beside_other_resources_and_reservations(
    seed: int, hundreds: int
) -> None:
    queue, limit = drawn_queue(seed), 100.0 * hundreds
    profile = start_profile(queue, 0.0)
    for asked in ((1.0, 0.0, 0.0), (3.0, 40.0, 1.0), (3.0, 40.0, 2.0), (16.0, 1.0, 0.0)):
        takes = np.array(asked[: len(queue.sizes)])
        new = np.array([[takes[0], limit, limit, *takes[1:]]])
        limited = np.vstack((queue.limited, [[0.0, 0.0]])) if len(queue.limited) else queue.limited
        every = queue._replace(waiting=np.vstack((queue.waiting, new)), limited=limited)
        assert profile.start_of(takes, limit, 0.0) == plain_starts(every, 0.0)[-1]


def test_a_job_that_joined_leaves_less_beside_a_reservation() -> None:
    """From 1,000 to 2,000 s a reservation leaves 8 processors of 32."""
    windows = np.array([[1000.0, 2000.0, 0.0, 8.0]])
    queue = ClosedQueue(np.array([32.0]), np.zeros((0, 5)), np.zeros((0, 3)), windows)
    profile = start_profile(queue, 0.0)
    assert profile.start_of(needs(6), 1500.0, 0.0) == 0.0
    profile.join(needs(6), 1500.0, 0.0, 1200.0)
    assert profile.start_of(needs(3), 1500.0, 0.0) == 1200.0
    assert profile.start_of(needs(3), 1000.0, 0.0) == 0.0
    assert profile.start_of(needs(20), 1001.0, 0.0) == 2000.0
