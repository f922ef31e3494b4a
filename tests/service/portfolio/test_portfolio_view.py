"""The burst partition as the simulator takes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from advisor.model.advice import Capacity
from advisor.model.cluster import Node
from advisor.model.job import Job
from advisor.model.settings import ClusterSettings, Settings
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.portfolio.portfolio_view import (
    BurstView,
    LastTwo,
    Want,
    expected_run,
    nodes_of,
    view_of,
    wanted_first,
)
from tests.service.cloud_site import comment
from tests.service.portfolio_world import node, running, waiting

NOW = 1_800_001_000.0
SETTINGS = Settings(cluster=ClusterSettings(burst_partition="burst"))


def look(nodes: list[Node], jobs: list[QueuedJob], last: LastTwo | None = None) -> BurstView:
    return view_of(
        ClusterSnapshot(time=NOW, jobs=tuple(jobs), nodes=tuple(nodes)),
        SETTINGS,
        last=last or LastTwo(),
        launched={"burst1": NOW - 500.0}.get,
        boot_seconds=120.0,
    )


def ran(last: LastTwo, user: str, seconds: float, limit: float = 3600.0) -> None:
    job = Job(job_id=1, submit_time=0.0, processors=4, user=user, requested_time=limit)
    last.ended(job, seconds)


def test_run_times_are_predicted_then_the_users_last_two_then_his_limit() -> None:
    last = LastTwo()
    assert expected_run(waiting(1, limit=3600.0), last) == 3600.0
    assert expected_run(waiting(1, requested_time=None), last) == 3600.0
    for seconds in (9000.0, 100.0, 300.0):
        ran(last, "user1", seconds)
    ran(last, "user1", 50.0, limit=60.0)
    assert expected_run(waiting(1, limit=3600.0), last) == pytest.approx(200.0)  # jobs alike
    assert expected_run(waiting(1, limit=600.0), last) == pytest.approx(175.0)  # the user's
    assert expected_run(waiting(2, limit=600.0), last) == 600.0  # a stranger
    predicted = waiting(1, limit=3600.0, admin_comment=comment(Capacity.SPOT, 1234.0))
    assert expected_run(predicted, last) == 1234.0
    assert (
        expected_run(replace(predicted, job=structs.replace(predicted.job, requested_time=60.0)), last)
        == 60.0
    )


def test_jobs_count_in_whole_nodes() -> None:
    job = waiting(1).job
    assert nodes_of(structs.replace(job, processors=1), 4) == 1
    assert nodes_of(structs.replace(job, processors=9), 4) == 3
    assert nodes_of(structs.replace(job, processors=4, nodes=4), 4) == 4


def test_only_what_waits_for_our_nodes_and_nothing_else_counts() -> None:
    nodes = [node(f"burst{n}") for n in (1, 2)]
    jobs = [
        waiting(1),
        replace(waiting(2), reason="QOSMaxCpuPerUserLimit"),
        replace(waiting(3), reason="JobHeldUser"),
        waiting(4, partitions=("onprem",)),
        waiting(5, processors=12),  # three nodes of two
        waiting(6, reservation="maintenance"),
        waiting(7, partitions=("onprem", "burst")),
        waiting(8, array_tasks=3),
    ]
    seen = look(nodes, jobs)
    assert [queued.job.job_id for queued in seen.waiting] == [1, 7, 8, 8, 8]
    assert len(seen.situation.jobs) == 5


def test_nodes_are_idle_busy_or_booting() -> None:
    nodes = [
        node("burst1", "IDLE"),
        node("burst2", "ALLOCATED"),
        node("burst3", "IDLE", "POWERING_UP"),
        node("burst4", "ALLOCATED", "POWERING_UP"),
        node("burst5"),
        node("burst6", "IDLE", "DRAIN"),
        node("burst7", "DOWN"),
        node("burst8", "IDLE", "POWERING_DOWN"),
    ]
    jobs = [
        running(1, "burst2", NOW - 600.0, limit=1000.0),
        replace(running(2, "burst4", NOW, limit=60.0), state="CONFIGURING"),
    ]
    seen = look(nodes, jobs)
    assert [item.name for item in seen.rented] == ["burst1", "burst2", "burst3", "burst4"]
    assert [item.name for item in seen.asleep] == ["burst5", "burst8"]
    assert seen.usable == 6
    profile = seen.situation.profile
    assert (profile["ready"] - NOW).tolist() == [0.0, 400.0, 120.0, 180.0]
    assert profile["row"].tolist() == [0, 0, -1, 0]
    assert profile["since"][0] == NOW - 500.0


def test_a_job_beyond_what_was_expected_takes_twice_its_time() -> None:
    seen = look([node("burst1", "ALLOCATED")], [running(1, "burst1", NOW - 900.0, limit=600.0)])
    assert seen.situation.profile["ready"][0] - NOW == pytest.approx(900.0)


def test_each_job_wants_nodes_it_may_use() -> None:
    nodes = [
        node("burst1", features=("cloud", "spot"), weight=5),
        node("burst2", features=("cloud", "spot"), weight=1),
        node("burst3", features=("cloud", "on-demand"), weight=9),
    ]

    def first(*jobs: QueuedJob) -> list[str]:
        return list(wanted_first(nodes, [Want(queued.job, nodes_of(queued.job, 4)) for queued in jobs]))

    assert first() == ["burst2", "burst1", "burst3"]
    assert first(waiting(1, features=("cloud", "on-demand"))) == ["burst3", "burst2", "burst1"]
    assert first(waiting(1, features=("spot", "gpu"))) == ["burst2", "burst1", "burst3"]  # spot|gpu
    assert first(waiting(1, node_list="burst1"), waiting(2)) == ["burst1", "burst2", "burst3"]
    assert first(waiting(1, node_list="burst[1")) == ["burst2", "burst1", "burst3"]  # no list at all


def test_a_node_with_too_little_memory_is_not_wanted() -> None:
    nodes = [node("burst1", weight=1), node("burst2", weight=9, memory_mb=64_000)]
    job = waiting(1).job
    assert list(wanted_first(nodes, [Want(job, 1, memory_mb=32_000)])) == ["burst2", "burst1"]
    assert list(wanted_first(nodes, [Want(job, 1, memory_mb=8_000)])) == ["burst1", "burst2"]


def test_where_its_kind_is_not_enough_a_job_takes_any() -> None:
    nodes = [node("burst1", weight=1), node("burst2", weight=2), node("burst3", weight=9, features=("gpu",))]
    job = waiting(1, features=("gpu",)).job
    other = Want(waiting(2, node_list="burst2").job, 1)
    assert list(wanted_first(nodes, [Want(job, 2), other])) == ["burst3", "burst2", "burst1"]
    assert list(wanted_first(nodes, [Want(job, 2, takes_any=True), other])) == ["burst3", "burst1", "burst2"]


def test_what_others_have_reserved_is_no_node_of_ours() -> None:
    nodes = [
        node("burst1", "IDLE", "RESERVED"),
        node("burst2", "IDLE", "MAINT"),
        node("burst3", "IDLE", "POWERED_DOWN", "RESERVED"),
        node("burst4", "IDLE", "POWERED_DOWN", "RESERVED"),
        node("burst5", "IDLE"),
    ]
    snapshot = ClusterSnapshot(time=NOW, jobs=(), nodes=tuple(nodes))
    seen = view_of(snapshot, SETTINGS, last=LastTwo(), launched={}.get, boot_seconds=1.0, closed={"burst4"})
    assert [item.name for item in seen.rented] == ["burst5"]
    assert [item.name for item in seen.asleep] == ["burst4"]


def test_an_empty_partition_is_no_trouble() -> None:
    seen = look([], [waiting(1)])
    assert (seen.usable, seen.waiting, len(seen.situation.profile)) == (0, (), 0)
