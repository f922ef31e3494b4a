"""The shipped submit server and control on a virtual clock: all on-premise is EASY, and a moved job pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.model.advice import Mode
from advisor.model.settings import ClusterSettings, Policy, Settings
from advisor.model.settings_cloud import Ec2Settings
from advisor.model.table import JobTable
from advisor.papers.cluster.demand import demand_of
from advisor.papers.cluster.engine import simulate
from advisor.rehearsal.cloud_market import CloudMarket, Outage, Trace
from advisor.rehearsal.log_jobs import LogJobs
from advisor.rehearsal.rehearsal import Rehearsal, Rehearsed
from advisor.rehearsal.site import SiteShape
from advisor.replay.closed_loop import world as fast_world
from advisor.replay.closed_loop.log import loop_jobs
from advisor.replay.closed_loop.world import World, WorldOptions
from advisor.simulate.pool.rules import Rules
from advisor.testing.memory_ec2 import MemoryEc2

pytestmark = pytest.mark.slow

PROCESSORS = 8
JOBS = 160


def log() -> JobTable:
    """A log whose queue grows long now and then; each user runs the same again."""
    random = np.random.default_rng(3)
    user = random.integers(0, 6, JOBS)
    run = np.ceil(np.exp(random.normal(6.0 + 0.4 * user, 0.3)))
    limit = 60.0 * np.ceil(run * random.uniform(1.2, 6.0, JOBS) / 60.0)
    nothing = np.full(JOBS, -1, np.int64)
    return JobTable(
        job_id=np.arange(JOBS),
        submit=np.cumsum(random.integers(0, 600, JOBS)).astype(float),
        wait=random.integers(0, 3000, JOBS).astype(float),
        run=run,
        processors=random.integers(1, PROCESSORS + 1, JOBS),
        requested_time=limit,
        user=user,
        group=nothing,
        queue=nothing,
        status=np.ones(JOBS, np.int64),
        executable=user,
        total_processors=PROCESSORS,
        start_of_log=1_000_000_000.0,
    )


def settings(mode: Mode, policy: Policy = "cunha2017", **more: Any) -> Settings:
    return Settings(
        cluster=ClusterSettings(default_mode=mode, policy=policy),
        ec2=Ec2Settings(image_id="ami-1", on_demand_usd_per_hour=0.36),
        **({"capacity": {"use_spot": False}} | more),
    )


def rehearse(mode: Mode, *, skip: int = 60, is_every_round: bool = False, **more: Any) -> Rehearsed:
    in_force = settings(mode, **more)
    jobs = LogJobs(loop_jobs(log(), skip=skip), cloud_factor=1.05)
    shape = SiteShape(processors=PROCESSORS, cloud_nodes=30)
    return Rehearsal(in_force, shape, jobs, is_every_round=is_every_round).run()


@pytest.fixture(scope="module")
def on_premise() -> Rehearsed:
    return rehearse(Mode.SHADOW)


@pytest.fixture(scope="module")
def moved() -> Rehearsed:
    return rehearse(Mode.ACT)


def test_all_on_premise_is_easy_backfilling(on_premise: Rehearsed) -> None:
    table = log()
    expected = simulate(demand_of(table.select(np.arange(60, JOBS))), PROCESSORS)
    np.testing.assert_allclose(on_premise.start - table.start_of_log, expected.start)
    np.testing.assert_allclose(on_premise.end - table.start_of_log, expected.end)
    assert on_premise.paid.usd == 0.0
    assert not any(on_premise.failures.values())


def test_moved_jobs_boot_run_longer_and_are_paid(moved: Rehearsed, on_premise: Rehearsed) -> None:
    there = moved.in_cloud
    assert 5 < there.sum() < len(there)
    assert not any(moved.failures.values())
    np.testing.assert_allclose((moved.end - moved.start)[there], 1.05 * moved.run[there])
    np.testing.assert_allclose((moved.end - moved.start)[~there], moved.run[~there])
    assert np.median((moved.start - moved.submit)[there]) >= 120.0
    core_seconds = np.sum(1.05 * moved.run[there] * moved.processors[there])
    assert moved.paid_core_seconds.sum() == pytest.approx(core_seconds)
    assert moved.paid.usd > 0.36 / 3600.0 * core_seconds
    assert moved.wait.mean() < on_premise.wait.mean()


def test_a_cap_of_a_day_bounds_what_is_paid(moved: Rehearsed) -> None:
    capped = rehearse(Mode.ACT, budget={"usd": 0.2, "period": "day"})
    days = 1 + int((capped.end.max() - capped.submit.min()) // 86_400)
    assert capped.paid.usd <= 0.2 * days + 0.05
    assert 0 < capped.in_cloud.sum() < moved.in_cloud.sum()


def test_jobs_in_slices_end_once_wherever_they_run(on_premise: Rehearsed) -> None:
    dear = {"usd_per_hour_saved": 1000.0}
    hedged = rehearse(Mode.ACT, policy="price", budget=dear, hedge={"enabled": True})
    assert not any(hedged.failures.values())
    assert np.all(np.isfinite(hedged.end))
    came_back = (hedged.paid_core_seconds > 0.0) & ~hedged.in_cloud
    assert came_back.any()
    np.testing.assert_allclose((hedged.end - hedged.start)[came_back], hedged.run[came_back])
    assert hedged.wait.mean() < on_premise.wait.mean()


def test_the_price_moves_jobs_within_its_budget(on_premise: Rehearsed) -> None:
    usd = 60.0
    priced = rehearse(Mode.ACT, policy="price", budget={"usd": usd, "period": "month"})
    assert not any(priced.failures.values())
    assert priced.in_cloud.any()
    days = (priced.end.max() - priced.submit.min()) / 86_400.0
    known_days = days + (priced.submit.min() - log().submit[0]) / 86_400.0
    assert priced.paid.usd <= usd * (days + 1.0 + min(10.0, known_days)) / 28.0
    assert priced.wait.mean() < on_premise.wait.mean()


def test_a_job_that_may_not_be_requeued_runs_once() -> None:
    window = loop_jobs(log(), skip=60)
    may_requeue = np.arange(len(window)) % 2 == 0
    jobs = LogJobs(window, cloud_factor=1.05, may_requeue=may_requeue)
    assert [each.job.may_requeue for each in jobs] == may_requeue.tolist()
    assert {each.request.requeue for each in jobs} == {None, False}
    priced = settings(
        Mode.ACT,
        "price",
        budget={"usd": 60.0, "period": "month"},
        hedge={"enabled": True},
    )
    found = Rehearsal(priced, SiteShape(processors=PROCESSORS, cloud_nodes=30), jobs).run()
    came_back = (found.paid_core_seconds > 0.0) & ~found.in_cloud
    assert found.in_cloud[~may_requeue].any()
    assert not came_back[~may_requeue].any()


def test_it_begins_with_what_an_earlier_process_has_left() -> None:
    seen: list[bool] = []
    jobs = LogJobs(loop_jobs(log(), skip=155), cloud_factor=1.05)
    shape = SiteShape(processors=PROCESSORS, cloud_nodes=30)
    Rehearsal(settings(Mode.SHADOW), shape, jobs, found=lambda state: seen.append(state.is_dir())).run()
    assert seen == [True]


def test_rounds_that_are_left_out_change_little() -> None:
    few = rehearse(Mode.ACT, skip=145)
    whole = rehearse(Mode.ACT, skip=145, is_every_round=True)
    assert sum(whole.rounds.values()) > 5 * sum(few.rounds.values())
    assert few.in_cloud.tolist() == whole.in_cloud.tolist()
    np.testing.assert_allclose(few.end, whole.end, atol=6.0)


def test_a_past_job_without_a_limit_had_that_of_its_site() -> None:
    table = log()
    without = np.arange(JOBS) % 2 == 0
    table = replace(table, requested_time=np.where(without, np.nan, table.requested_time))
    past = list(LogJobs(loop_jobs(table, skip=155), cloud_factor=1.05).past())
    limits = {job.limit_seconds for job, _, _ in past if without[job.job_id - 1]}
    assert len(past) > 100
    assert limits == {table.limits[0]}


def spot_rehearsal(market: CloudMarket) -> Rehearsed:
    in_force = settings(Mode.ACT, policy="cunha2017", capacity={"use_spot": True})
    jobs = LogJobs(loop_jobs(log(), skip=60), cloud_factor=1.05)
    shape = SiteShape(processors=PROCESSORS, cloud_nodes=30, market=market)
    return Rehearsal(in_force, shape, jobs).run()


def test_spot_instances_are_taken_back_by_the_trace_and_their_jobs_run_again() -> None:
    trace = Trace(np.array([0.0, 3000.0]), np.array([1.0, 0.0]), 3600.0)
    prices = Trace(np.array([0.0]), np.array([0.25]), 3600.0)
    found = spot_rehearsal(CloudMarket(spot_traces=(trace,), spot_price=prices))
    assert not any(found.failures.values())
    assert np.all(np.isfinite(found.end))
    assert found.interruptions.sum() > 0
    assert np.all((found.lost_seconds > 0.0) == (found.interruptions > 0))
    assert 0.0 < found.paid.spot_seconds < found.paid.seconds
    on_demand = found.paid.seconds - found.paid.spot_seconds
    assert found.paid.usd == pytest.approx(0.36 / 3600.0 * (on_demand + 0.25 * found.paid.spot_seconds))
    lasting = spot_rehearsal(CloudMarket(spot_traces=(trace._replace(values=np.ones(2)),), spot_price=prices))
    assert lasting.interruptions.sum() == 0
    assert lasting.paid.spot_seconds > found.paid.spot_seconds


def test_a_stock_out_and_a_quota_keep_jobs_from_the_cloud() -> None:
    free = spot_rehearsal(CloudMarket())
    dry = spot_rehearsal(CloudMarket(outages=(Outage("spot", 0.0, 1e6), Outage("on-demand", 0.0, 1e6))))
    assert free.in_cloud.sum() > dry.in_cloud.sum() == 0
    assert dry.refused_launches["InsufficientInstanceCapacity"] > 0
    assert dry.paid.usd == 0.0
    few = spot_rehearsal(CloudMarket(vcpu_limits={"spot": 2, "on-demand": 4}))
    assert few.refused_launches["MaxSpotInstanceCountExceeded"] > 0
    assert few.refused_launches["VcpuLimitExceeded"] > 0
    assert few.paid.usd < free.paid.usd
    assert np.all(np.isfinite(few.end))


def test_f33_launches_that_ec2_does_not_allow_are_tried_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pauses 41 of 100 jobs are moved and come back, a launch each; with them ten, on two pools."""
    refused = MemoryEc2._refused
    monkeypatch.setattr(MemoryEc2, "_refused", lambda ec2, _code: refused(ec2, "UnauthorizedOperation"))
    found = spot_rehearsal(CloudMarket(outages=(Outage("spot", 0.0, 1e6), Outage("on-demand", 0.0, 1e6))))
    assert 0 < found.refused_launches["UnauthorizedOperation"] <= 24
    assert found.paid.usd == 0.0
    assert np.all(np.isfinite(found.end))


def test_a_rehearsal_backfills_by_the_rules_of_slurm() -> None:
    rules = Rules.of_slurm("bf_interval=300")
    jobs = loop_jobs(log(), skip=60)
    shape = SiteShape(processors=PROCESSORS, cloud_nodes=30, rules=rules)
    found = Rehearsal(settings(Mode.SHADOW), shape, LogJobs(jobs, cloud_factor=1.05)).run()
    fast = World(jobs, WorldOptions(budget_share=0.0, rules=rules), fast_world.Policy())
    np.testing.assert_allclose(found.end - jobs.table.start_of_log, fast.run().end)
