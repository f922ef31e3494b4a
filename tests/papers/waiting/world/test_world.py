"""The compiled world against the plain one, and what no policy may break."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.model.errors import BadInput
from advisor.papers.waiting.world.world import (
    Dispatch,
    Length,
    Mode,
    Simulation,
    Wait,
    WorldRules,
    no_trees,
    workload_of,
)
from tests.papers.waiting.world.plain import PlainWorld

JOBS = st.lists(
    st.tuples(
        st.integers(0, 20),  # seconds after the job before
        st.integers(1, 40),  # run
        st.integers(1, 6),  # processors
        st.sampled_from(list(Mode)),
        st.sampled_from([3.0, 7.0, 1000.0]),  # life of a spot node
    ),
    min_size=1,
    max_size=25,
)


def made(jobs):
    submit = np.cumsum([float(job[0]) for job in jobs])
    run = np.array([float(job[1]) for job in jobs])
    processors = np.array([job[2] for job in jobs], np.int64)
    nothing = np.zeros(len(jobs), np.int64)
    load = workload_of(
        submit - submit[0],
        run,
        processors,
        run,
        user=nothing,
        program=nothing,
        queue=nothing,
        revoked_after=np.array([job[4] for job in jobs]),
    )
    return load, np.array([job[3] for job in jobs], np.int64)


def ran(load, cores, modes, **rules):
    world = Simulation(workload=load, cores=cores, rules=WorldRules(**rules), modes=modes)
    world.advance(np.inf)
    return world.outcome()


@settings(max_examples=150, deadline=None)
@given(
    jobs=JOBS,
    dispatch=st.sampled_from([Dispatch.FCFS, Dispatch.SJF]),
    longest=st.sampled_from([0, 5, 30, 10**6]),
)
def test_agrees_with_the_plain_world(jobs, dispatch, longest):
    load, modes = made(jobs)
    found = ran(load, 5, modes, dispatch=dispatch, trial_seconds=9.0, longest_wait_seconds=float(longest))
    expected = PlainWorld(
        load,
        5,
        modes,
        trial_seconds=9.0,
        longest_wait_seconds=float(longest),
        shortest_first=dispatch is Dispatch.SJF,
    )
    expected.run()
    assert found.start.tolist() == expected.start
    assert found.on_fixed.tolist() == expected.on_fixed
    assert found.spot_seconds.tolist() == expected.spot_seconds
    assert found.ondemand_seconds.tolist() == expected.ondemand_seconds


@settings(max_examples=100, deadline=None)
@given(jobs=JOBS, dispatch=st.sampled_from(list(Dispatch)), cores=st.integers(1, 8))
def test_never_more_than_the_cores_nor_longer_than_b(jobs, dispatch, cores):
    load, modes = made(jobs)
    found = ran(load, cores, modes, dispatch=dispatch, trial_seconds=9.0, longest_wait_seconds=30.0)
    assert np.all(np.isfinite(found.start))
    assert np.all(found.start - load.submit <= 30.0)
    on = found.on_fixed
    for moment in found.start[on]:
        busy = on & (found.start <= moment) & (moment < found.start + load.run)
        assert load.processors[busy].sum() <= cores


@settings(max_examples=100, deadline=None)
@given(jobs=JOBS, dispatch=st.sampled_from([Dispatch.FCFS, Dispatch.SJF]))
def test_a_job_that_never_starts_on_fixed_cores_changes_nothing(jobs, dispatch):
    """FINDINGS: why the oracle is exact."""
    load, modes = made(jobs)
    rules = {"dispatch": dispatch, "trial_seconds": 9.0, "longest_wait_seconds": 25.0}
    naive = ran(load, 5, modes, **rules)
    gone = ~naive.on_fixed & (naive.ondemand_seconds > 0)
    oracle = ran(load, 5, np.where(gone, Mode.RENTS, modes), **rules)
    assert np.array_equal(naive.on_fixed, oracle.on_fixed)
    assert np.array_equal(naive.start[naive.on_fixed], oracle.start[oracle.on_fixed])
    assert np.all(oracle.start <= naive.start)


@settings(max_examples=60, deadline=None)
@given(jobs=JOBS, at=st.integers(1, 60))
def test_going_on_step_by_step_changes_nothing(jobs, at):
    load, modes = made(jobs)
    rules = WorldRules(trial_seconds=9.0, longest_wait_seconds=30.0)
    whole = Simulation(workload=load, cores=5, rules=rules, modes=modes)
    whole.advance(np.inf)
    steps = Simulation(workload=load, cores=5, rules=rules, modes=modes)
    for until in (at, 2 * at, 3 * at, np.inf):
        steps.advance(float(until))
    assert np.array_equal(whole.outcome().start, steps.outcome().start)


def test_easy_holds_the_heads_reservation(by_hand):
    load = by_hand([(0, 100, 3), (1, 50, 4), (2, 200, 1, 200), (3, 90, 1, 90)])
    waits = np.full(4, Mode.WAITS)
    easy = ran(load, 4, waits, dispatch=Dispatch.EASY)
    greedy = ran(load, 4, waits, dispatch=Dispatch.FCFS)
    # the long narrow job would delay the head, the short one would not
    assert easy.start.tolist() == [0.0, 100.0, 150.0, 3.0]
    assert greedy.start.tolist() == [0.0, 202.0, 2.0, 100.0]


def test_a_trial_in_vain_keeps_the_place_of_its_submission(by_hand):
    load = by_hand([(0, 100, 1), (1, 50, 1), (2, 50, 1)])
    modes = np.array([Mode.WAITS, Mode.SPECULATES, Mode.WAITS])
    found = ran(load, 1, modes, trial_seconds=10.0)
    assert found.start.tolist() == [0.0, 100.0, 150.0]
    assert found.restarts.tolist() == [0, 1, 0]
    assert found.spot_seconds.tolist() == [0.0, 10.0, 0.0]


def test_a_revoked_trial_is_queued_at_once(by_hand):
    load = by_hand([(0, 100, 1), (1, 8, 1)], revoked_after=[1e9, 4.0])
    found = ran(load, 1, np.array([Mode.WAITS, Mode.SPECULATES]), trial_seconds=10.0)
    assert found.spot_seconds[1] == 4.0
    assert found.start[1] == 100.0
    assert found.restarts[1] == 1


def constant_forest(in_time_seconds):
    """One leaf: the wait is surely this long."""
    edges = np.array([0.0, in_time_seconds, in_time_seconds + 1.0, 1e7])
    return no_trees()._replace(
        roots=np.zeros(1, np.int32),
        feature=np.full(1, -1, np.int32),
        threshold=np.zeros(1),
        children=np.zeros((1, 2), np.int32),
        leaf=np.zeros(1, np.int32),
        mean=np.array([in_time_seconds]),
        tail=np.array([[1.0, 1.0, 0.0, 0.0]], np.float32),
        edges=edges,
    )


@pytest.mark.parametrize(
    ("forecast", "price", "leaves"),
    [
        (90_000.0, 0.01, True),
        (90_000.0, 0.0, True),  # short waits wait, as published
        (3_600.0, 0.0, False),
        (3_600.0, 0.01, False),
        (3_600.0, 2.0, True),
    ],
)
def test_leaves_when_the_wait_costs_more_than_the_cores(by_hand, forecast, price, leaves):
    load = by_hand([(0, 80_000, 1), (1, 4_000, 1)])
    rules = WorldRules(length=Length.SPECULATION, wait=Wait.MODEL, skip_below=1.1)
    world = Simulation(workload=load, cores=1, rules=rules)
    world.advance(np.inf, waits=constant_forest(forecast), price=price)
    assert bool(world.outcome().left_early[1]) is leaves


def test_a_learning_world_forecasts_by_the_users_last_two_jobs(by_hand):
    load = by_hand([(0, 100, 1, 9e4, 7), (10, 300, 1, 9e4, 7), (1_000, 5, 1, 9e4, 7), (1_001, 5, 1, 9e4, 8)])
    world = Simulation(workload=load, cores=4, rules=WorldRules(length=Length.SPECULATION, learns=True))
    world.advance(np.inf)
    assert world.jobs["mean_run"].tolist() == [9e4, 9e4, 200.0, 9e4]
    assert world.run_samples[2, 6] == 300.0  # newest first


@pytest.mark.parametrize(
    "change",
    [{"submit": np.array([5.0, 1.0])}, {"run": np.array([0.0, 1.0])}, {"processors": np.array([0, 1])}],
)
def test_refuses_what_no_cluster_could_run(change):
    columns = {
        "submit": np.array([0.0, 1.0]),
        "run": np.ones(2),
        "processors": np.ones(2, np.int64),
        "requested": np.ones(2),
        **change,
    }
    nothing = np.zeros(2, np.int64)
    load = workload_of(**columns, user=nothing, program=nothing, queue=nothing)
    with pytest.raises(BadInput):
        Simulation(workload=load, cores=1, rules=WorldRules())


def test_what_a_job_without_a_request_will_run_is_not_known(by_hand):
    load = by_hand([(0.0, 40.0, 1, 100.0), (5.0, 30.0, 1, np.nan), (9.0, 70.0, 1, np.nan)])
    assert load.requested.tolist() == [100.0, 70.0, 70.0]
