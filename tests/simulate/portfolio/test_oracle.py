"""Compiled cluster and online simulator equal the plain oracle, and no run breaks a conservation law."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.simulate.portfolio.cluster import Cloud, RentedCluster, Runtimes
from advisor.simulate.portfolio.online import OnlineSimulator
from advisor.simulate.portfolio.policies import (
    PUBLISHED,
    JobOrder,
    NodeChoice,
    Provisioning,
    Release,
    RentingPolicy,
)
from tests.simulate.portfolio import oracle

KNOWN = (Runtimes.ACTUAL, Runtimes.PREDICTED, Runtimes.REQUESTED)

clouds = st.builds(
    Cloud,
    release=st.sampled_from(Release),
    max_nodes=st.integers(4, 9),
    boot_seconds=st.sampled_from([0.0, 1.0, 120.0, 130.0]),
    tick_seconds=st.sampled_from([20.0, 60.0]),
)

policies = st.builds(
    RentingPolicy,
    provisioning=st.sampled_from(Provisioning),
    order=st.sampled_from(JobOrder),
    choice=st.sampled_from(NodeChoice),
    headroom=st.sampled_from([0, 0, 2]),
    backfill=st.booleans(),
)


@st.composite
def logs(draw, by_hand) -> object:
    """Up to 25 jobs in one to three bursts, seconds to hours long; requests may be missing or too long."""
    count = draw(st.integers(1, 25))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    burst = draw(st.sampled_from([30.0, 600.0, 9000.0]))
    run = np.round(np.exp(generator.uniform(0.0, 9.0, count))) + 1.0
    submit = np.sort(np.round(generator.integers(0, 3, count) * 7200.0 + generator.uniform(0, burst, count)))
    requested = np.where(generator.random(count) < 0.2, np.nan, run * generator.integers(1, 5, count))
    columns = (submit, run, generator.integers(1, 5, count), requested, generator.integers(0, 3, count))
    return by_hand(list(zip(*(column.tolist() for column in columns), strict=True)))


@given(data=st.data(), cloud=clouds, policy=policies, runtimes=st.sampled_from(KNOWN))
@settings(max_examples=150, deadline=None)
def test_compiled_cluster_equals_the_oracle(by_hand, data, cloud, policy, runtimes):
    """Same starts, same charge, to the last bit."""
    jobs = data.draw(logs(by_hand))
    plain = oracle.live(jobs, cloud, runtimes, policy)
    cluster = RentedCluster(jobs, cloud, runtimes, [policy])
    assert cluster.advance(chooses=False)
    assert [job.start for job in plain.jobs] == cluster.state.job["start"].tolist()
    totals = cluster.totals()
    assert totals.charged_seconds == plain.charged
    assert totals.jobs == len(jobs)
    assert totals.work_seconds == pytest.approx(float(jobs.run @ jobs.processors))
    slowdown = [max((job.start - job.submit + job.run) / max(job.run, 10.0), 1.0) for job in plain.jobs]
    assert totals.slowdown_sum == pytest.approx(sum(slowdown))
    lawful(plain, cloud)


def lawful(life, cloud: Cloud) -> None:
    """No node runs two jobs at a time, none before it booted or after it was given back; no job early."""
    for job in life.jobs:
        assert job.start >= job.submit
        assert job.start % cloud.tick_seconds == 0
        assert sum(job in node.ran for node in life.nodes) == job.processors
    for node in life.nodes:
        spans = [(job.start, job.end) for job in node.ran]
        edges = [(node.since + cloud.boot_seconds,) * 2, *spans, (node.released,) * 2] if spans else []
        assert all(before[1] <= after[0] for before, after in pairwise(edges))
    moments = [(node.since, 1) for node in life.nodes] + [(node.released, -1) for node in life.nodes]
    held = np.cumsum([change for _, change in sorted(moments)])
    assert held.max() <= cloud.max_nodes
    assert held[-1] == 0


@given(data=st.data(), cloud=clouds, first=st.sampled_from(PUBLISHED), then=policies)
@settings(max_examples=60, deadline=None)
def test_online_simulator_predicts_the_clusters_future(by_hand, data, cloud, first, then):
    """With true run times and nothing more to arrive, the simulated outcome is the cluster's own future."""
    jobs = data.draw(logs(by_hand))
    cluster = RentedCluster(jobs, cloud, Runtimes.ACTUAL, [first, then])
    done = cluster.advance(chooses=True)
    while not done and cluster.arrived < len(jobs):
        cluster.apply(0, 300.0)
        done = cluster.advance(chooses=True)
    if done:
        return
    situation = cluster.situation()
    present, waiting = len(situation.jobs), np.isnan(cluster.state.job["start"])
    foreseen = OnlineSimulator([first, then], cluster.rules).simulate(situation, np.array([0, 1]))
    slowdown, added = foreseen.slowdown[1], foreseen.charged[1]
    so_far = charged_so_far(cluster)
    cluster.apply(1, np.inf)
    assert cluster.advance(chooses=False)
    assert present == waiting.sum()
    job = cluster.state.job[waiting]
    assert slowdown == pytest.approx(
        np.maximum((job["start"] - job["submit"] + job["run"]) / np.maximum(job["run"], 10.0), 1.0).sum()
    )
    assert added == pytest.approx(cluster.totals().charged_seconds - so_far)


def charged_so_far(cluster: RentedCluster) -> float:
    """Nodes given back, and those still rented if they were given back now."""
    rented = cluster.state.node[: int(cluster.state.scalars["nodes"][0])]
    held = [cluster.now - since for since in rented["since"] if cluster.now > since]
    return cluster.totals().charged_seconds + sum(oracle.charge(h, cluster.cloud.release) for h in held)


@given(data=st.data(), cloud=clouds, base=policies, trial=policies)
@settings(max_examples=30, deadline=None)
def test_a_policy_that_deviates_from_itself_changes_nothing(by_hand, data, cloud, base, trial):
    """Held for ever a deviation is the policy itself; of the base from itself it changes no start.

    Where the base keeps nodes warm these are paid for until it had the time to rent them.
    """
    jobs = data.draw(logs(by_hand))
    cluster = RentedCluster(jobs, cloud, Runtimes.ACTUAL, [base, trial])
    assert not cluster.advance(chooses=True)
    simulator = OnlineSimulator([base, trial], cluster.rules)
    both = np.array([0, 1])
    outcome = simulator.simulate(cluster.situation(), both)
    plain, slowdown = outcome.charged.copy(), outcome.slowdown.copy()
    for hold in (0.0, 700.0, np.inf):
        deviating = simulator.simulate(cluster.situation(), both, 0, hold)
        assert deviating.slowdown[0] == slowdown[0]
        assert deviating.charged[0] >= plain[0]
        assert base.headroom or deviating.charged[0] == plain[0]
    assert deviating.charged.tolist() == plain.tolist()


@given(
    data=st.data(), cloud=clouds, policy=policies, runtimes=st.sampled_from(KNOWN), period=st.floats(20, 4000)
)
@settings(max_examples=60, deadline=None)
def test_applying_the_same_policy_again_changes_nothing(by_hand, data, cloud, policy, runtimes, period):
    """However often the policy is chosen, while it is the same one its life is its life alone."""
    jobs = data.draw(logs(by_hand))
    alone, told = (RentedCluster(jobs, cloud, runtimes, [policy]) for _ in range(2))
    assert alone.advance(chooses=False)
    while not told.advance(chooses=True):
        told.apply(0, period)
    assert told.state.job["start"].tolist() == alone.state.job["start"].tolist()
    assert told.totals() == alone.totals()
