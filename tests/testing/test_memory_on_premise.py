"""The on-premise partition of the Slurm in memory: EASY backfilling, limits, holds, moves, requeues."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from advisor.model.table import JobTable
from advisor.papers.cluster.demand import demand_of
from advisor.simulate.pool.pool import Pool
from advisor.simulate.pool.rules import Rules
from advisor.testing.manual_clock import ManualClock
from advisor.testing.memory_slurm import MemoryJob, MemorySlurm
from tests.papers.cluster import oracle


class Site:
    """A Slurm with eight on-premise processors, stepped from event to event."""

    def __init__(self, processors: int = 8, rules: Rules | None = None) -> None:
        self.clock = ManualClock()
        self.slurm = MemorySlurm(now=lambda: self.clock.wall, processors=processors, rules=rules)

    def submit(self, seconds: float, processors: int, **more: Any) -> MemoryJob:
        job = self.slurm.submit(seconds, processors=processors, **({"partition": "onprem"} | more))
        self.slurm.advance()
        return job

    def go_on(self, seconds: float = math.inf) -> None:
        end = self.clock.wall + seconds
        while (time := min(end, self.slurm.next_event())) < math.inf:
            self.clock.wall = time
            self.slurm.advance()
            if time >= end:
                return


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize("seed", range(5))
def test_starts_are_those_of_the_plain_oracle(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = 120
    submit = np.cumsum(random.integers(0, 120, count)).astype(float)
    limit = random.integers(10, 2000, count).astype(float)
    run = np.ceil(limit * random.uniform(0.05, 1.0, count))
    size = random.integers(1, 9, count)
    nothing = np.zeros(count, np.int64)
    table = JobTable(
        job_id=nothing,
        submit=submit,
        wait=np.zeros(count),
        run=run,
        processors=size,
        requested_time=limit,
        user=nothing,
        group=nothing,
        queue=nothing,
        status=nothing,
    )
    expected = oracle.simulate(demand_of(table), 8)
    site = Site()
    begin = site.clock.wall
    jobs = []
    for row in range(count):
        site.go_on(begin + submit[row] - site.clock.wall)
        jobs.append(site.submit(run[row], int(size[row]), limit_seconds=limit[row]))
    site.go_on()
    assert [job.start_time - begin for job in jobs] == expected.start.tolist()
    assert [job.end_time - begin for job in jobs] == expected.end.tolist()


def test_a_limit_kills(site: Site) -> None:
    job = site.submit(500.0, 1, limit_seconds=120.0)
    site.go_on()
    assert (job.state, job.end_time - job.submit_time) == ("TIMEOUT", 120.0)
    with site.slurm.accounting(0.0) as export:
        (line,) = export.lines
    assert dict(zip(export.fields, line.split(export.delimited_by), strict=True))["State"] == "TIMEOUT"


def test_a_larger_priority_goes_first_and_a_held_job_does_not_go(site: Site) -> None:
    site.submit(100.0, 8)
    held, plain, first = site.submit(10.0, 8), site.submit(10.0, 8), site.submit(10.0, 8, priority_offset=5)
    site.slurm.hold([held.job_id])
    site.go_on(125.0)
    assert [job.state for job in (held, plain, first)] == ["PENDING", "COMPLETED", "COMPLETED"]
    assert first.end_time < plain.end_time
    (shown,) = site.slurm.snapshot(site.clock.wall).jobs
    assert shown.is_held
    site.slurm.release([held.job_id])
    site.slurm.advance()
    assert held.state == "RUNNING"


def test_a_job_waits_for_another_one(site: Site) -> None:
    other = site.submit(50.0, 1)
    job = site.submit(10.0, 1, after=(other.job_id,))
    shown = {queued.job.job_id: queued for queued in site.slurm.snapshot(site.clock.wall).jobs}
    assert shown[job.job_id].reason == "Dependency"
    site.go_on()
    assert job.end_time == other.end_time + 10.0


def test_a_waiting_job_that_is_moved_leaves_the_queue(site: Site) -> None:
    site.submit(1000.0, 8)
    moved, behind = site.submit(10.0, 8), site.submit(10.0, 8)
    site.slurm.update_job([moved.job_id], {"partition": "burst"})
    site.slurm.update_job([behind.job_id], {"starttime": "now+5000"})
    site.slurm.advance()
    assert moved.state == "CONFIGURING"
    site.go_on(2000.0)
    assert behind.state == "PENDING"
    site.go_on(4000.0)
    assert behind.end_time == behind.begin_time + 10.0


def test_a_requeued_job_gives_its_processors_back_and_goes_behind_those_that_wait(site: Site) -> None:
    job, other = site.submit(1000.0, 8), site.submit(300.0, 8)
    site.go_on(100.0)
    site.slurm.requeue([job.job_id])
    site.slurm.advance()
    assert (job.state, other.state) == ("PENDING", "RUNNING")
    site.go_on()
    assert (job.restarts, job.start_time) == (1, other.end_time)
    with site.slurm.accounting(0.0) as export:
        states = [line.split(export.delimited_by)[2] for line in export.lines]
    assert states == ["REQUEUED", "COMPLETED", "COMPLETED"]


def test_processors_that_are_free_show_in_the_node(site: Site) -> None:
    site.submit(100.0, 8)
    fixed = site.slurm.snapshot(site.clock.wall).node("fixed1")
    assert fixed is not None
    assert (fixed.processors, fixed.is_busy) == (8, True)


def test_slurms_own_backfilling_is_that_of_the_pool() -> None:
    """Jobs of a random queue start as in the fast world under the same rules, a cycle every minute."""
    rules = Rules.of_slurm("bf_interval=60,bf_max_job_test=20")
    random = np.random.default_rng(7)
    count = 60
    submit = np.cumsum(random.integers(0, 120, count)).astype(float)
    limit = random.integers(60, 2000, count).astype(float)
    run = np.ceil(limit * random.uniform(0.05, 1.0, count))
    size = random.integers(1, 9, count)
    site = Site(rules=rules)
    pool = Pool(8, count, site.clock.wall, rules)
    began, starts = site.clock.wall, {}
    jobs = []
    for row in range(count):
        site.go_on(began + submit[row] - site.clock.wall)
        jobs.append(site.submit(float(run[row]), int(size[row]), limit_seconds=float(limit[row])))
        starts |= {e.row: e.time for e in pool.advance(began + submit[row]) if e.has_started}
        pool.add(
            row,
            processors=int(size[row]),
            limit=float(limit[row]),
            run=float(run[row]),
            order=began + submit[row],
        )
    site.go_on()
    starts |= {e.row: e.time for e in pool.advance(math.inf) if e.has_started}
    assert [job.start_time for job in jobs] == [starts[row] for row in range(count)]
    easy = Site()
    easy.submit(100.0, 6)
    wide, small = easy.submit(100.0, 8), easy.submit(50.0, 2, limit_seconds=60.0)
    slow = Site(rules=rules)
    slow.submit(100.0, 6)
    late = [slow.submit(100.0, 8), slow.submit(50.0, 2, limit_seconds=60.0)]
    assert small.start_time == easy.clock.wall
    assert late[1].start_time is None, "the head alone starts before a cycle"
    slow.go_on(61.0)
    assert late[1].start_time is not None
    assert wide.start_time is None


def test_builtin_scheduling_starts_no_job_before_the_head() -> None:
    site = Site(rules=Rules.of_slurm("bf_interval=30", "sched/builtin"))
    site.submit(100.0, 6)
    wide, small = site.submit(100.0, 8), site.submit(50.0, 2)
    site.go_on()
    assert wide.start_time is not None
    assert small.start_time == wide.start_time + 100.0


def test_a_job_waits_for_the_good_end_of_another_one(site: Site) -> None:
    good, bad = site.submit(100.0, 4), site.submit(100.0, 4, fails=True)
    behind_good = site.submit(10.0, 1, after_ok=(good.job_id,))
    behind_bad = site.submit(10.0, 1, after_ok=(bad.job_id,))

    def reasons() -> dict[int, str]:
        return {queued.job.job_id: queued.reason for queued in site.slurm.snapshot(site.clock.wall).jobs}

    assert reasons()[behind_good.job_id] == reasons()[behind_bad.job_id] == "Dependency"
    site.go_on(101.0)
    assert behind_good.state == "RUNNING"
    assert reasons()[behind_bad.job_id] == "DependencyNeverSatisfied"
    site.go_on()
    assert (behind_good.state, behind_bad.state) == ("COMPLETED", "PENDING")


@pytest.mark.parametrize("partition", ["onprem", "burst"])
def test_so_many_tasks_of_an_array_run_at_a_time(site: Site, partition: str) -> None:
    array = site.slurm.submit_array(5, 100.0, at_once=2, processors=1, partition=partition)
    site.slurm.advance()
    seen = site.slurm.snapshot(site.clock.wall).jobs
    assert {queued.array_job_id for queued in seen} == {array[0].job_id}
    assert [queued.reason for queued in seen].count("JobArrayTaskLimit") == 3
    most = 0
    for _ in range(800):
        site.go_on(1.0)
        most = max(most, sum(task.state in ("RUNNING", "CONFIGURING") for task in array))
        if all(task.state == "COMPLETED" for task in array):
            break
    assert most == 2
    assert [task.state for task in array] == ["COMPLETED"] * 5


def test_a_requeued_job_waits_out_its_delay_and_a_held_one_its_release(site: Site) -> None:
    job = site.submit(100.0, 8)
    site.slurm.requeue([job.job_id])
    site.slurm.advance()
    (seen,) = site.slurm.snapshot(site.clock.wall).jobs
    assert (seen.state, seen.reason, seen.restarts) == ("PENDING", "BeginTime", 1)
    site.go_on(120.0)
    assert job.state == "PENDING"
    site.go_on(2.0)
    assert job.state == "RUNNING"
    held = site.submit(10.0, 1)
    site.slurm.hold([held.job_id])
    site.go_on(200.0)
    assert site.slurm.snapshot(site.clock.wall).jobs[0].reason == "JobHeldUser"
    site.slurm.release([held.job_id])
    site.slurm.advance()
    site.go_on(1.0)
    assert held.state == "RUNNING"
