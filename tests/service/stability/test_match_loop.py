"""Weights, features and preferences: what the match loop tells slurmctld, and what it takes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.service.control.connections import Connections
from advisor.service.control.wiring import Control
from advisor.service.stability.stability_view import waiting_jobs
from advisor.service.state.records import EndedLife, Lives
from advisor.service.state.state_files import LIVES, MARKED_NODES, NODE_WEIGHTS
from advisor.testing.memory_slurm import MemoryJob
from tests.service.doubles import make_look, make_queued
from tests.service.site import make_cluster
from tests.service.stability_world import SHAKY, STEADY, StabilityWorld, quick, settings_of

__all__ = ["quick"]

pytestmark = pytest.mark.usefixtures("quick")

HOUR = 3600.0


def history(world: StabilityWorld) -> None:
    """Days in which the pools have shown what they are."""
    now = world.clock.wall
    shaky = EndedLife(f"spot|c5.xlarge|{SHAKY}", now - 9 * HOUR, now - 8 * HOUR, was_taken=True)
    steady = EndedLife(f"spot|c5.xlarge|{STEADY}", now - 90 * HOUR, now - HOUR, was_taken=False)
    LIVES.at(world.settings.paths.state).write(Lives(ended=[*[shaky] * 30, *[steady] * 10]))


def lasting_world(folder: Path, **changes: Any) -> StabilityWorld:
    """Two nodes of each pool up and idle; nobody is taken back unless a test says so."""
    world = StabilityWorld(
        settings_of(folder, acquirer={"kept_nodes": 4}, **changes),
        generator=np.random.default_rng(1),
        nodes=6,
    )
    history(world)
    world.boot()
    rooms = iter([STEADY, STEADY, SHAKY, SHAKY])
    original = world.ec2.run

    def run(request: Any) -> Any:
        answer = original(request)
        for raw in answer["Instances"]:
            subnet = next(rooms, request.get("SubnetId"))
            raw["SubnetId"] = world.ec2.instances[raw["InstanceId"]].subnet_id = subnet
        return answer

    world.ec2.run = run  # type: ignore[method-assign]
    world.live(200.0)
    world.taken_at.clear()
    assert world.pools_in_use() == sorted([SHAKY] * 2 + [STEADY] * 2)
    return world


def nodes_in(world: StabilityWorld, pool: str) -> set[str]:
    return {
        name
        for name, node in world.slurm.nodes.items()
        if (item := world.instance_of(node)) is not None and item.subnet_id == pool
    }


def long_job(world: StabilityWorld, **changes: Any) -> MemoryJob:
    return world.slurm.submit(2 * HOUR, limit_seconds=3 * HOUR, **changes)


def short_job(world: StabilityWorld) -> MemoryJob:
    return world.slurm.submit(300.0, limit_seconds=600.0)


def test_nodes_that_stay_are_marked_and_come_last_for_jobs_without_a_wish(tmp_path: Path) -> None:
    world = lasting_world(tmp_path)
    steady, shaky = nodes_in(world, STEADY), nodes_in(world, SHAKY)
    assert world.holders() == steady
    weights = {name: node.weight for name, node in world.slurm.nodes.items()}
    assert max(weights[name] for name in shaky) < min(weights[name] for name in steady)
    jobs = [short_job(world) for _ in range(2)]
    world.live(20.0)
    assert {job.nodes[0] for job in jobs} == shaky
    assert world.wrongs == []


def test_where_slurm_conf_has_no_such_feature_the_steadiest_come_first(tmp_path: Path) -> None:
    world = lasting_world(tmp_path, matching={"long_lived_feature": ""})
    weights = {name: node.weight for name, node in world.slurm.nodes.items()}
    steady, shaky = nodes_in(world, STEADY), nodes_in(world, SHAKY)
    assert max(weights[name] for name in steady) < min(weights[name] for name in shaky)
    assert world.holders() == set(world.slurm.nodes)
    assert world.match.report()["by"] == "weights"


def test_a_waiting_long_job_is_steered_and_a_short_one_is_not(tmp_path: Path) -> None:
    world = lasting_world(tmp_path)
    blockers = [short_job(world) for _ in range(6)]
    world.live(400.0, tick=100.0)
    short, long = short_job(world), long_job(world)
    world.live(20.0)
    assert (short.prefer, long.prefer) == ("", "steady")
    world.live(700.0)
    assert all(job.state == "COMPLETED" for job in blockers)
    assert long.had[0] in nodes_in(world, STEADY)
    assert long.restarts == 0


def test_jobs_of_a_partition_that_is_closed_for_a_while_keep_their_places() -> None:
    """On a real slurmctld they lost their preference as it closed, and started anywhere as it opened."""
    reasons = ("Resources", "PartitionDown", "PartitionInactive", "JobHeldUser", "BeginTime")
    jobs = tuple(make_queued(number, queue="burst", reason=why) for number, why in enumerate(reasons))
    found = waiting_jobs(make_look(time=0.0, jobs=jobs), "burst")
    assert [queued.reason for queued in found.jobs] == ["Resources", "PartitionDown", "PartitionInactive"]


def test_a_job_whose_user_prefers_something_is_left_alone(tmp_path: Path) -> None:
    world = lasting_world(tmp_path)
    _ = [short_job(world) for _ in range(6)]
    world.live(100.0)
    job = long_job(world, prefer="cloud")
    world.live(60.0)
    assert job.prefer == "cloud"


def test_switched_off_all_is_as_slurm_conf_says(tmp_path: Path) -> None:
    world = lasting_world(tmp_path)
    _ = [short_job(world) for _ in range(6)]
    world.live(60.0)
    job = long_job(world)
    world.live(20.0)
    assert job.prefer == "steady"
    world.settings = settings_of(tmp_path, acquirer={"kept_nodes": 4}, matching={"enabled": False})
    world.boot()
    world.live(60.0)
    assert job.prefer == ""
    assert {node.weight for node in world.slurm.nodes.values()} == {100}
    assert world.holders() == set(world.slurm.nodes)
    assert world.match.outlook  # it is still watched


def test_the_mark_is_on_some_node_at_every_moment(tmp_path: Path) -> None:
    """Else slurmctld refuses every submission that names it."""
    world = lasting_world(tmp_path)
    told = world.slurm.update_node
    without_holder: list[Any] = []

    def watched(nodes: Any, **changes: Any) -> None:
        told(nodes, **changes)
        if not world.holders():
            without_holder.append((nodes, changes))

    world.slurm.update_node = watched  # type: ignore[method-assign]
    for name in sorted(nodes_in(world, STEADY)):  # EC2 recommends to leave the steady ones, one by one
        item = world.instance_of(world.slurm.nodes[name])
        assert item is not None
        world.ec2.recommend_leaving(item.instance_id)
        world.live(100.0)
    for item in world.ec2.alive():
        world.ec2.reclaim(item.instance_id, 40.0)
    world.live(400.0)
    assert without_holder == []
    assert world.holders()
    assert world.wrongs == []


def test_before_ec2_was_read_nothing_is_told(tmp_path: Path) -> None:
    world = lasting_world(tmp_path)
    world.boot()
    world.ec2.is_away = True
    before = {name: (node.weight, node.active) for name, node in world.slurm.nodes.items()}
    world.live(60.0)
    assert {name: (node.weight, node.active) for name, node in world.slurm.nodes.items()} == before
    assert (world.acquire.retired, world.match.outlook) == (0, {})


# ---------------------------------------------------------------------- holding off
def test_a_long_job_waits_for_a_steady_node_that_is_free_soon_and_not_for_long(tmp_path: Path) -> None:
    world = lasting_world(tmp_path, matching={"max_delay_seconds": 500.0})
    for name in ("burst5", "burst6"):
        world.slurm.nodes[name].is_draining = True
    # steady nodes are free in five minutes, shaky ones in one
    quick = [world.slurm.submit(90.0, limit_seconds=120.0, prefer="cloud") for _ in range(2)]
    world.live(20.0)
    assert {job.nodes[0] for job in quick} == nodes_in(world, SHAKY)
    slow = [world.slurm.submit(280.0, limit_seconds=300.0) for _ in range(2)]
    world.live(20.0)
    job = long_job(world)
    world.live(20.0)
    assert nodes_in(world, SHAKY) <= world.excluded_of(job)
    assert not nodes_in(world, STEADY) & world.excluded_of(job)
    world.live(700.0)
    assert all(item.state == "COMPLETED" for item in (*quick, *slow))
    assert job.state == "RUNNING"
    assert job.had[0] in nodes_in(world, STEADY)
    assert world.match.report()["jobs_held_off"] == 1


def test_no_job_is_held_off_by_what_would_start_on_a_draining_node(tmp_path: Path) -> None:
    world = lasting_world(tmp_path, matching={"max_delay_seconds": 500.0})
    for name in ("burst5", "burst6"):
        world.slurm.nodes[name].is_draining = True
    # steady nodes are busy for longer than a restart costs
    quick = [world.slurm.submit(90.0, limit_seconds=120.0, prefer="cloud") for _ in range(2)]
    world.live(20.0)
    _ = [world.slurm.submit(20 * HOUR, limit_seconds=20 * HOUR) for _ in range(2)]
    world.live(20.0)
    assert {job.nodes[0] for job in quick} == nodes_in(world, SHAKY)
    world.slurm.nodes[max(nodes_in(world, SHAKY))].is_draining = True
    job = long_job(world, processors=2)
    world.live(20.0)
    assert job.excluded == ""


def held_world(folder: Path, **matching: Any) -> tuple[StabilityWorld, MemoryJob]:
    """A long job is held off the shaky nodes; the steady ones are busy for hours."""
    world = lasting_world(folder, matching={"max_delay_seconds": 500.0, **matching})
    for name in ("burst5", "burst6"):
        world.slurm.nodes[name].is_draining = True
    _ = [world.slurm.submit(90.0, limit_seconds=120.0, prefer="cloud") for _ in range(2)]
    world.live(20.0)
    _ = [world.slurm.submit(3 * HOUR, limit_seconds=300.0) for _ in range(2)]
    world.live(20.0)
    job = long_job(world)
    world.live(20.0)
    assert world.excluded_of(job)
    return world, job


def test_a_hold_ends_in_time_though_ec2_can_not_be_read(tmp_path: Path) -> None:
    world, job = held_world(tmp_path)
    world.boot()  # killed, and started anew when the credentials have expired
    world.ec2.is_away = True
    world.live(600.0)
    assert job.excluded == ""
    assert job.state == "RUNNING"
    assert world.match.outlook == {}


def test_without_the_mark_in_slurm_conf_nobody_is_held_nor_steered(tmp_path: Path) -> None:
    world, job = held_world(tmp_path)
    for node in world.slurm.nodes.values():
        node.features = node.active = ("cloud", "spot")
    world.live(20.0)
    assert (job.excluded, job.prefer) == ("", "")


def test_without_a_cloud_what_an_earlier_process_left_is_taken_back(tmp_path: Path) -> None:
    world, job = held_world(tmp_path)
    settings = world.settings.model_copy(update={"paths": world.settings.paths})

    def control() -> Control:  # ec2.image_id has been emptied meanwhile
        connections = Connections(slurm=world.slurm, nodes_asked=world.slurm)
        return Control(settings, connections, clock=world.clock.clock)

    first = control()
    for _ in range(3):
        now = world.clock.wall
        first.view.update(world.slurm.snapshot(now), make_cluster(time=now))
        first.runners["take-back"].run_once()
        world.clock.pass_by(20.0)
    assert (job.excluded, job.prefer) == ("", "")
    assert {node.weight for node in world.slurm.nodes.values()} == {100}
    assert world.holders() == set(world.slurm.nodes)
    assert first.runners["take-back"].loop.steps() == ()
    first.store.close()


def test_marks_are_put_back_also_where_no_weight_is_ours(tmp_path: Path) -> None:
    world = lasting_world(tmp_path)
    assert world.holders() != set(world.slurm.nodes)
    NODE_WEIGHTS.at(tmp_path).write({})
    world.settings = settings_of(tmp_path, acquirer={"kept_nodes": 4}, matching={"enabled": False})
    world.boot()
    world.ec2.is_away = True
    world.live(60.0)
    assert world.holders() == set(world.slurm.nodes)
    assert MARKED_NODES.at(tmp_path).read().features == []


def test_while_nodes_are_not_told_apart_preferences_stay(tmp_path: Path) -> None:
    """Else each flip of a forecast would be two commands for every job in the queue."""
    world = lasting_world(tmp_path)
    for name in ("burst5", "burst6"):
        world.slurm.nodes[name].is_draining = True
    _ = [world.slurm.submit(HOUR, limit_seconds=HOUR) for _ in range(4)]
    world.live(100.0)
    job = long_job(world)
    world.live(20.0)
    assert job.prefer == "steady"
    for item in world.ec2.alive():
        world.ec2.recommend_leaving(item.instance_id)
    world.live(60.0)
    found = {item.tier for item in world.match.outlook.values() if not item.node.is_draining}
    assert len(found) <= 1
    assert job.prefer == "steady"
