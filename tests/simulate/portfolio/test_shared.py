"""Sharing parts of plans changes no outcome by a bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.model.table import JobTable
from advisor.simulate.portfolio.arrivals import ExpectedJob, Hindrance
from advisor.simulate.portfolio.cluster import Cloud, RentedCluster, Runtimes
from advisor.simulate.portfolio.online import OnlineSimulator, Outcomes, Situation
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED, Release

EVERY = PUBLISHED + BEYOND
INDICES = np.arange(len(EVERY))
HOLDS = (20.0, 300.0, 4000.0, np.inf)


def rows(outcomes: Outcomes) -> np.ndarray:
    """One row a policy; where a job would never start nothing but that is said."""
    found = np.stack(
        [
            outcomes.charged,
            outcomes.slowdown,
            outcomes.held,
            outcomes.spared_charged,
            outcomes.spared_slowdown,
        ],
        axis=1,
    )
    found[np.isinf(found[:, 0])] = np.inf
    return found


def log(by_hand: Callable[..., JobTable], generator: np.random.Generator) -> JobTable:
    """Forty jobs in two bursts, too many for the nodes."""
    count = 40
    submit = np.sort(generator.integers(0, 2, count) * 3000.0 + np.round(generator.uniform(0, 900, count)))
    run = np.round(np.exp(generator.uniform(0.0, 9.0, count))) + 1.0
    requested = run * generator.integers(1, 4, count)
    columns = (submit, run, generator.integers(1, 7, count), requested, generator.integers(0, 3, count))
    return by_hand(list(zip(*(column.tolist() for column in columns), strict=True)))


def alone(situation: Situation, cluster: RentedCluster, base: int | None, hold: float) -> np.ndarray:
    """Each policy by a simulator that has seen no other."""
    return np.concatenate(
        [
            rows(OnlineSimulator(EVERY, cluster.rules).simulate(situation, INDICES[at : at + 1], base, hold))[
                at : at + 1
            ]
            for at in INDICES
        ]
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    release=st.sampled_from(Release),
    runtimes=st.sampled_from([Runtimes.ACTUAL, Runtimes.REQUESTED]),
    boot=st.sampled_from([0.0, 120.0]),
    base=st.sampled_from([None, 0, 10, 40, 59, 60, 63]),
    hold=st.sampled_from(HOLDS),
    entries=st.sampled_from([0, 3, 1000]),
)
@settings(max_examples=40, deadline=None)
def test_plans_simulated_together_equal_those_simulated_alone(
    by_hand, seed, release, runtimes, boot, base, hold, entries
):
    generator = np.random.default_rng(seed)
    jobs = log(by_hand, generator)
    cloud = Cloud(release=release, max_nodes=12, boot_seconds=boot)
    cluster = RentedCluster(jobs, cloud, runtimes, EVERY)
    together = OnlineSimulator(EVERY, cluster.rules)
    together._shared_plans = together._shared_plans._replace(spared=np.zeros((len(EVERY), entries, 2)))
    hindrance = Hindrance.of(jobs.processors, jobs.run, 1.0, cloud.max_nodes)
    ready = ExpectedJob.of(jobs.processors, jobs.run, cluster.rules).at(0.002, hindrance)
    skipped = int(generator.integers(0, 25))
    while not cluster.advance(chooses=True):
        cluster.apply(int(generator.integers(0, len(EVERY))), 60.0)
        skipped -= 1
        if skipped >= 0:
            continue
        situation = replace(cluster.situation(), ready=ready)
        expected = alone(situation, cluster, base, hold)
        found = together.simulate(situation, generator.permutation(INDICES), base, hold)
        assert rows(found).tobytes() == expected.tobytes()
        some = OnlineSimulator(EVERY, cluster.rules)
        first = generator.permutation(INDICES)[:9]
        some.simulate(situation, first, base, hold)
        found, known = some.same_plan()
        assert known[first].all() or boot == 0.0 or (base is None and np.isfinite(hold))
        assert rows(found)[known].tobytes() == expected[known].tobytes()
        return


def test_plans_are_shared_only_within_one_situation(by_hand) -> None:
    """What is remembered between calls is of the same situation, base and hold."""
    cluster = RentedCluster(
        log(by_hand, np.random.default_rng(5)), Cloud(max_nodes=12), Runtimes.ACTUAL, EVERY
    )
    simulator = OnlineSimulator(EVERY, cluster.rules)
    for _ in range(3):
        assert not cluster.advance(chooses=True)
        cluster.apply(0, 200.0)
        situation = cluster.situation()
        for base, hold in ((7, 300.0), (31, 300.0), (31, 20.0), (None, np.inf)):
            expected = alone(situation, cluster, base, hold)
            for at in INDICES[::-1]:
                found = rows(simulator.simulate(situation, INDICES[at : at + 1], base, hold))
                assert found[at].tobytes() == expected[at].tobytes()


@pytest.mark.parametrize("hold", [20.0, 300.0, 4000.0])
def test_on_a_full_cloud_all_plans_share_one_tail(by_hand, hold: float) -> None:
    """All nodes run one long job: no policy can act."""
    jobs = by_hand([[0.0, 50_000.0, 12], *([1000.0 + at, 500.0 + at, 3] for at in range(9))])
    cluster = RentedCluster(jobs, Cloud(max_nodes=12), Runtimes.ACTUAL, PUBLISHED)
    while cluster.arrived < len(jobs):
        assert not cluster.advance(chooses=True)
        cluster.apply(0, 20.0)
    simulator = OnlineSimulator(PUBLISHED, cluster.rules)
    simulator.simulate(cluster.situation(), np.arange(len(PUBLISHED)), 0, hold)
    plans, futures = simulator._shared_plans.size
    assert plans == 5  # one a provisioning
    assert futures <= 2  # ODX looks up when slowdowns reach 2
