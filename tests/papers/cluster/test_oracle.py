"""The compiled engine gives the plain oracle's schedule, and no schedule breaks a conservation law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.papers.cluster import engine
from advisor.papers.cluster.demand import LARGE, PROBED, SMALL, Demand, demand_of
from advisor.papers.cluster.policies import EASY, EASY_PLUS_PLUS, Backfill, Correction, Order, Policy
from advisor.simulate.workload import submissions
from tests.papers.cluster import oracle


@st.composite
def demands(draw) -> tuple[Demand, int]:
    """A machine and a workload that keeps it busy; ties, overruns and kills are frequent."""
    processors = draw(st.integers(1, 10))
    count = draw(st.integers(1, 35))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    busy = draw(st.sampled_from([1, 3, 6]))
    run = generator.integers(1, 30, count).astype(np.float64)
    overruns = generator.random(count) < draw(st.sampled_from([0.0, 0.3]))
    requested = np.where(overruns, generator.integers(1, 20, count), run + generator.integers(0, 30, count))
    limited = generator.random(count) < draw(st.sampled_from([0.0, 0.4]))
    classes = generator.integers(SMALL, LARGE + 1, count)
    return Demand(
        submit=np.sort(generator.integers(0, count * busy + 1, count)).astype(np.float64),
        run=run,
        processors=generator.integers(1, processors + 1, count),
        requested=requested.astype(np.float64),
        planned=np.minimum(requested, generator.integers(1, 40, count)).astype(np.float64),
        limit=np.where(limited, generator.integers(1, 15, count), math.inf),
        job_class=classes if draw(st.booleans()) else np.full(count, draw(st.sampled_from([SMALL, LARGE]))),
        user=generator.integers(0, 3, count),
    ), processors


policies = st.builds(
    Policy,
    order=st.sampled_from(Order),
    backfill=st.sampled_from(Backfill),
    starvation_seconds=st.sampled_from([0.0, 20.0, 50.0, math.inf]),
    starvation_load_factor=st.sampled_from([0.0, 1.0, 2.0]),
    starvation_at_most_seconds=st.sampled_from([30.0, math.inf]),
    predict_recent=st.booleans(),
    correction=st.sampled_from(Correction),
)


def same(one, other):
    for name in ("start", "end", "attempts", "lost"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def lawful(demand: Demand, schedule, processors: int) -> None:
    """No job lost, none before its submission, no processor used twice."""
    assert np.all(np.isfinite(schedule.start))
    assert np.all(schedule.start >= demand.submit)
    assert np.all(schedule.end == schedule.start + demand.run)
    killed = schedule.attempts == 2
    assert np.array_equal(killed, demand.limit < demand.run)
    assert np.array_equal(schedule.lost, np.where(killed, demand.limit, 0.0))
    # every processor-second of finished attempts, ends before starts at equal times
    times = np.concatenate((schedule.end, schedule.start))
    change = np.concatenate((-demand.processors, demand.processors))
    order = np.lexsort((change, times))
    used = np.cumsum(change[order])
    assert used.max(initial=0) <= processors
    assert used[-1:].sum() == 0


@settings(max_examples=150, deadline=None)
@given(case=demands(), policy=policies)
def test_engine_gives_the_oracles_schedule(case, policy):
    demand, processors = case
    schedule = engine.simulate(demand, processors, policy)
    same(schedule, oracle.simulate(demand, processors, policy))
    lawful(demand, schedule, processors)


@pytest.mark.parametrize(
    "policy",
    [EASY, EASY_PLUS_PLUS, *(Policy(order=order, starvation_seconds=20_000) for order in Order)],
    ids=["easy", "easy++", "fcfs", "wfp", "spf", "saf"],
)
def test_synthetic_workload_is_scheduled_as_by_the_oracle(policy):
    table = submissions(np.random.default_rng(7), jobs=600, processors=64, load=0.9)
    generator = np.random.default_rng(8)
    small = generator.random(len(table)) < 0.4
    probed = ~small & (generator.random(len(table)) < 0.5)
    demand = demand_of(
        table,
        limit=np.where(small, 900.0, np.where(probed, 180.0, math.inf)),
        job_class=np.where(small, SMALL, np.where(probed, PROBED, LARGE)),
    )
    schedule = engine.simulate(demand, 64, policy)
    same(schedule, oracle.simulate(demand, 64, policy))
    lawful(demand, schedule, 64)


def test_starved_jobs_are_bounded_where_short_ones_keep_coming():
    """SPF alone lets one long job wait for ever; the threshold ends that."""
    count = 400
    submit = np.concatenate(([0.0, 1.0], np.arange(count) * 10.0))
    run = np.concatenate(([10.0, 1000.0], np.full(count, 10.0)))
    order = np.argsort(submit, kind="stable")
    long_job = int(np.flatnonzero(order == 1)[0])
    whole = np.full(count + 2, 4)
    demand = Demand(
        submit=submit[order],
        run=run[order],
        processors=whole,
        requested=run[order],
        planned=run[order],
        limit=np.full(count + 2, math.inf),
        job_class=np.full(count + 2, LARGE),
        user=np.zeros(count + 2, np.int64),
    )
    patient = engine.simulate(demand, 4, Policy(order=Order.SPF))
    bounded = engine.simulate(demand, 4, Policy(order=Order.SPF, starvation_seconds=500))
    assert patient.start[long_job] > 3900
    assert 501 < bounded.start[long_job] <= 520
