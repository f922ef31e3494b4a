"""Runs side by side: one result, wherever they are done."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from distributed import LocalCluster

from advisor import parallel
from advisor.decide.portfolio.portfolio import Budget
from advisor.decide.portfolio.portfolio_options import Options
from advisor.model.errors import BadInput, RetryLater
from advisor.papers.portfolio.portfolio_replay import reports as portfolios
from advisor.papers.schedule.schedule import report
from advisor.papers.waiting.waiting import WaitingOptions
from advisor.papers.waiting.waiting import report as waiting
from advisor.parallel import DASK_VARIABLE, Tick, side_by_side, usual_processes
from advisor.replay.closed_loop.log import loop_jobs
from advisor.replay.closed_loop.policies import Terms
from advisor.replay.closed_loop.tasks import Task, run_tasks
from advisor.replay.closed_loop.world import WorldOptions
from advisor.replay.sources import load_table
from advisor.simulate.portfolio.cluster import Cloud
from advisor.simulate.portfolio.policies import PUBLISHED, Release

HERE = "on this machine"


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Address of a dask scheduler with one worker, a process of its own."""
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(params=[1, 2, "dask"])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.delenv(DASK_VARIABLE, raising=False)
    if request.param == "dask":
        monkeypatch.setenv(DASK_VARIABLE, request.getfixturevalue("scheduler"))
        return 1
    return int(request.param)


def drawn(seed: int, tick: Tick | None) -> float:
    if tick is not None:
        tick("numbers", 500, 1000)
    return float(np.random.default_rng(seed).random(1000).sum())


def test_results_and_progress(processes: int) -> None:
    told: list[tuple[str, int, int]] = []
    seeds = [3, 1, 2]
    found = side_by_side(
        drawn, seeds, [1000] * 3, processes=processes, tick=lambda *said: told.append(said), what="numbers"
    )
    assert found == [drawn(seed, None) for seed in seeds]
    assert told
    assert {what for what, _, _ in told} == {"numbers"}


def test_a_rehearsal_has_the_same_digits_everywhere(processes: int) -> None:
    jobs = loop_jobs(load_table("synthetic:300:1"), skip=100)
    tasks = [
        Task(name=policy, jobs=jobs, world=WorldOptions(budget_share=0.05), terms=Terms(policy=policy))
        for policy in ("price", "overflow")
    ]
    for task, done in zip(tasks, run_tasks(tasks, processes=processes), strict=True):
        (alone,) = run_tasks([task], processes=1)
        np.testing.assert_array_equal(done.result.end, alone.result.end)
        np.testing.assert_array_equal(done.result.cost, alone.result.cost)


def test_schedules_have_the_same_digits_everywhere(processes: int) -> None:
    table = load_table("synthetic:300:1")
    asked = {"policies": ("fcfs", "saf"), "variants": ("base", "runtimes-clairvoyant")}
    rows = [report(table, processes=number, **asked)["rows"] for number in (processes, 1)]
    assert json.dumps(rows[0]) == json.dumps(rows[1])  # a mean of no job is NaN


def test_waiting_policies_have_the_same_digits_everywhere(processes: int) -> None:
    table, options = load_table("synthetic:300:1"), WaitingOptions(fixed_cores=40)
    rows = [waiting(table, options, processes=number)["rows"] for number in (processes, 1)]
    assert json.dumps(rows[0]) == json.dumps(rows[1])


def test_portfolios_have_the_same_digits_everywhere(processes: int) -> None:
    table, budget = load_table("synthetic:40:1"), Budget(policies=2, seconds=1.0, clock=time.perf_counter)
    every = [
        Options(policies=PUBLISHED[:2], cloud=Cloud(release=release), budget=budget)
        for release in (Release.of_billing("hour"), Release.of_billing("second"))
    ]
    found = [portfolios(table, every, processes=number) for number in (processes, 1)]
    for one, other in zip(*found, strict=True):
        for name in ("billing", "portfolio", "constituents", "invocations"):
            assert json.dumps(one[name]) == json.dumps(other[name])


def test_a_dask_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_REACH_SECONDS", 1)
    monkeypatch.setenv(DASK_VARIABLE, "tcp://127.0.0.1:9")
    with pytest.raises(RetryLater, match="no dask scheduler answers at tcp://127"):
        side_by_side(drawn, [1, 2], [1, 1], processes=1)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BadInput, match="need the package distributed"):
        side_by_side(drawn, [1, 2], [1, 1], processes=1)


def test_a_short_log_starts_no_process() -> None:
    assert usual_processes(100) == 1
    assert usual_processes(1_000_000) == parallel.cores()
