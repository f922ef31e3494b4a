"""Weights, features and preferences: what the match loop tells slurmctld, and what it takes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.files.state_file import StateFile
from advisor.model.errors import RetryLater
from advisor.service.control.features import Connections
from advisor.service.control.wiring import Control
from advisor.service.stability.steering import JobSteering, preferring, without
from advisor.service.state.records import EndedLife, Lives
from advisor.service.state.state_files import LIVES, MARKED_NODES, NODE_WEIGHTS, STEERED_JOBS
from advisor.slurm.running_jobs import NodeConstraints
from advisor.testing.memory_slurm import MemoryJob
from tests.service.doubles import Hands
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
        connections = Connections(slurm=world.slurm, wishes=world.slurm)
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


class Wishing:
    """Slurm, as far as steering goes."""

    def __init__(self, **jobs: NodeConstraints) -> None:
        self.wishes = {int(name[1:]): wishes for name, wishes in jobs.items()}
        self.refuses = False

        self.commands = 0

    def node_constraints(self, job_id: int) -> NodeConstraints:
        self.commands += 1
        return self.wishes[job_id]

    def update_job(self, job_ids: Any, changes: Any) -> None:
        if self.refuses:
            raise RetryLater("no", code="slurm.command_failed")
        self.commands += 1
        for job in job_ids:
            old = self.wishes[job]
            self.wishes[job] = NodeConstraints(
                features=old.features,
                prefer=changes.get("prefer", old.prefer),
                excluded=changes.get("excnodelist", old.excluded),
            )


def steering(slurm: Any, folder: Path, hands: Hands, longest: float = 600.0) -> JobSteering:
    return JobSteering(
        slurm=slurm,
        jobs=slurm,
        state=STEERED_JOBS.at(folder),
        clock=hands.clock,
        feature="steady",
        max_delay_seconds=longest,
    )


def test_a_hold_ends_at_its_bound_and_does_not_come_again(tmp_path: Path) -> None:
    slurm, hands = Wishing(j7=NodeConstraints(excluded="burst9")), Hands()
    mine = steering(slurm, tmp_path, hands)
    mine.hold_off({7}, {"burst1", "burst2"})
    assert slurm.wishes[7].excluded == "burst9,burst[1-2]"
    hands.pass_by(599.0)
    mine.hold_off({7}, {"burst1"})
    assert slurm.wishes[7].excluded == "burst9,burst1"
    hands.pass_by(2.0)
    for _ in range(3):
        mine.hold_off({7}, {"burst1"})
        assert slurm.wishes[7].excluded == "burst9"
    assert mine.held_off == 1


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_the_end_of_the_process_lets_everybody_go(tmp_path: Path, end: str) -> None:
    slurm, hands = Wishing(j7=NodeConstraints()), Hands()
    first = steering(slurm, tmp_path, hands)
    first.hold_off({7}, {"burst1"})
    if end == "stop":
        first.release_all()
    else:  # the next process finds it on the disk
        hands.pass_by(1000.0)
        steering(slurm, tmp_path, hands).hold_off({7}, {"burst1"})
    assert slurm.wishes[7].excluded == ""


def test_no_delay_where_none_is_allowed_and_none_where_no_node_would_be_left(tmp_path: Path) -> None:
    slurm, hands = Wishing(j7=NodeConstraints()), Hands()
    steering(slurm, tmp_path, hands, longest=0.0).hold_off({7}, {"burst1"})
    steering(slurm, tmp_path, hands).hold_off({7}, set())
    assert slurm.wishes[7].excluded == ""


def test_what_slurm_refused_is_tried_again(tmp_path: Path) -> None:
    slurm, hands = Wishing(j7=NodeConstraints()), Hands()
    mine = steering(slurm, tmp_path, hands)
    slurm.refuses = True
    with pytest.raises(RetryLater):
        mine.prefer({7})
    slurm.refuses = False
    mine.prefer({7})
    assert slurm.wishes[7].prefer == "steady"
    mine.prefer(())
    assert slurm.wishes[7].prefer == ""


def test_a_long_queue_is_steered_some_jobs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, writes = Wishing(**{f"j{job}": NodeConstraints() for job in range(1, 121)}), []
    write = StateFile.write
    monkeypatch.setattr(StateFile, "write", lambda *given: (writes.append(1), write(*given)))
    mine, queue = steering(slurm, tmp_path, Hands()), list(range(120, 0, -1))
    mine.prefer(queue)
    assert {job for job, wishes in slurm.wishes.items() if wishes.prefer} == set(queue[:50])
    assert (slurm.commands, len(writes)) == (100, 2)
    for _ in range(2):
        mine.prefer(queue)
    assert all(wishes.prefer == "steady" for wishes in slurm.wishes.values())
    mine.prefer(queue)
    assert (slurm.commands, len(writes)) == (240, 6)
    for _ in range(3):
        mine.prefer(())
    assert not any(wishes.prefer for wishes in slurm.wishes.values())


def test_a_preference_is_written_down_before_it_is_given(tmp_path: Path) -> None:
    slurm, hands = Wishing(j7=NodeConstraints()), Hands()
    slurm.refuses = True
    with pytest.raises(RetryLater):
        steering(slurm, tmp_path, hands).prefer({7})
    slurm.refuses = False
    slurm.wishes[7] = NodeConstraints(prefer="steady")  # slurmctld had it, its answer was lost, and we died
    steering(slurm, tmp_path, hands).prefer(())
    assert slurm.wishes[7].prefer == ""


def test_what_a_job_refuses_is_undone_when_it_is_requeued(tmp_path: Path) -> None:
    """It keeps its ExcNodeList while it runs, when nobody can change it."""
    slurm, hands = Wishing(j7=NodeConstraints(excluded="burst9")), Hands()
    mine = steering(slurm, tmp_path, hands)
    mine.forget([7])
    mine.hold_off({7}, {"burst1"})
    mine.forget([], others=[7])
    hands.pass_by(700.0)
    commands = slurm.commands
    mine.release_overdue()
    mine.hold_off((), {"burst1"})
    mine.release_all()
    assert (slurm.commands, mine.now_held) == (commands, frozenset())
    again = steering(slurm, tmp_path, hands)  # the next process knows it, too
    again.forget([7])
    again.release_overdue()
    assert slurm.wishes[7].excluded == "burst9"


WORDS = st.lists(st.sampled_from(["cloud", "x86", "spot", "gpu"]), max_size=3, unique=True).map("&".join)


@given(features=WORDS, prefer=WORDS)
@settings(deadline=None)
def test_a_preference_given_and_taken_is_the_one_before(features: str, prefer: str) -> None:
    wishes = NodeConstraints(features=features, prefer=prefer)
    given_one = preferring(wishes, "steady")
    if given_one is None:
        assert set(prefer.split("&")) - {*features.split("&"), "spot", ""}
        return
    assert set(given_one.split("&")) >= {"steady", *filter(None, features.split("&"))}
    left = without(given_one, "steady", features)
    assert set(filter(None, left.split("&"))) <= {*features.split("&"), *prefer.split("&")}
    if "spot" in prefer and "spot" not in features:
        assert "spot" in left


@pytest.mark.parametrize("own", ["a|b", "[a&b]", "a*2"])
def test_richer_constraints_are_left_alone(own: str) -> None:
    assert preferring(NodeConstraints(features=own), "steady") is None
    assert preferring(NodeConstraints(prefer=own), "steady") is None


@given(
    content=st.dictionaries(
        st.sampled_from(["preferring", "holds"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["7", "x", "since", "own", "given"]), inner, max_size=3)
            ),
            max_leaves=8,
        ),
    )
)
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_no_reason_to_fail(tmp_path: Path, content: dict) -> None:
    (tmp_path / "steering.json").write_text(json.dumps(content))  # no flush to the disk
    mine = steering(Wishing(j7=NodeConstraints()), tmp_path, Hands())
    mine.forget([7])
    mine.prefer({7})
