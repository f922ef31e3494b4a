"""When cloud nodes have room, from a look at Slurm."""

from __future__ import annotations

import math

import pytest
from msgspec import structs

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.decide.submission.cloud_terms import cloud_wait, needs_boot
from advisor.model.cluster import Node
from advisor.model.node_classes import NodeClassState
from advisor.model.site import CloudState, Room, SiteState
from advisor.model.snapshot import QueuedJob
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.observation.cloud_rooms import cloud_rooms, left_seconds
from tests.decide.cases import ask, make_estimates, make_job
from tests.service.doubles import make_look, make_node, make_queued

NOW = 1_800_000_000.0


def node(name: str, *states: str, features: tuple[str, ...] = ("cloud",)) -> Node:
    return make_node(name, *states, features=features)


def on(job_id: int, where: str, *, processors: int = 4, age: float = 100.0, **changes: object) -> QueuedJob:
    return make_queued(
        job_id,
        "RUNNING",
        queue="burst",
        nodes=where,
        processors=processors,
        start_time=NOW - age,
        **changes,
    )


def rooms_of(nodes: list[Node], *jobs: QueuedJob) -> dict[str, tuple[Room, ...]]:
    return cloud_rooms(nodes, make_look(NOW, nodes, jobs), "burst")


def whole(rooms: dict[str, tuple[Room, ...]], kind: str = "") -> Room:
    return rooms[kind][-1]


def test_powered_down_nodes_are_free_and_busy_ones_when_their_jobs_end() -> None:
    nodes = [
        node("burst1", "IDLE", "POWERED_DOWN"),
        node("burst2", "ALLOCATED"),
        node("burst3", "ALLOCATED"),
        node("burst4", "IDLE", "POWERING_DOWN"),
        node("burst5", "WHATEVER"),
    ]
    busy = on(1, "burst2", requested_time=700.0), on(2, "burst3", requested_time=400.0)
    found = whole(rooms_of(nodes, *busy))
    assert (found.processors, found.free, found.total) == (4, 1, 4)
    assert [round(time - NOW) for time in found.later] == [30, 300, 600]


def test_day_one_3_one_on_demand_node_busy_for_long() -> None:
    """Job 86 was told it would end 24 s sooner on the one on-demand node, which was busy."""
    nodes = [node(f"burst{n}", "IDLE", "POWERED_DOWN") for n in range(1, 6)]
    nodes.append(node("burst6", "ALLOCATED", features=("cloud", "on-demand")))
    rooms = rooms_of(nodes, on(85, "burst6", requested_time=700.0))
    assert whole(rooms, "on-demand").free == 0
    assert whole(rooms, "spot").free == 5 == whole(rooms).free
    cloud = CloudState(
        rooms=rooms,
        processors_per_node=4,
        nodes_with={"on-demand": 1.0},  # type: ignore[arg-type]
    )
    estimates = make_estimates(wait=150.0, run=60.0)
    advice = ask(make_job(requeue=False), estimates, cloud=cloud)
    assert advice.number("cloud_wait") is not None
    assert (advice.number("predicted_saving") or 0.0) < 0.0
    assert advice.partition is None
    assert ask(make_job(), estimates, cloud=cloud).partition == "burst"


def test_jobs_that_wait_already_are_before_it() -> None:
    nodes = [node("burst1", "ALLOCATED"), node("burst2", "IDLE", "POWERED_DOWN")]
    running = on(1, "burst1", requested_time=400.0)
    waits = make_queued(2, queue="burst", processors=4, requested_time=1000.0)
    behind = make_queued(3, queue="burst", processors=4, requested_time=50.0, submit_time=NOW)
    held = make_queued(4, queue="burst", processors=4, requested_time=9e9, reason="JobHeldUser")
    assert whole(rooms_of(nodes, running)).free == 1
    limited = make_queued(6, queue="burst", processors=4, requested_time=9e9, reason="QOSMaxCpuPerJobLimit")
    first = whole(rooms_of(nodes, running, waits, held, limited))
    assert (first.free, [time - NOW for time in first.later]) == (0, [300.0, 1000.0])
    second = whole(rooms_of(nodes, running, waits, behind))
    assert [time - NOW for time in second.later] == [350.0, 1000.0]
    here = make_queued(5, queue="onprem", processors=4, requested_time=1000.0)
    assert whole(rooms_of(nodes, here)).free == 2


def test_small_jobs_share_a_node() -> None:
    nodes = [node("burst1", "MIXED")]
    one, two, four = rooms_of(nodes, on(1, "burst1", processors=1, requested_time=400.0))[""]
    assert (one.processors, one.free, one.total) == (1, 3, 4)
    assert (two.processors, two.free, two.total) == (2, 1, 2)
    assert (four.processors, four.free, four.total) == (4, 0, 1)
    exclusive = [node("burst1", "ALLOCATED")]
    assert rooms_of(exclusive, on(1, "burst1", processors=1, requested_time=400.0))[""][0].free == 0


def test_jobs_over_several_nodes_need_whole_ones() -> None:
    nodes = [node("burst1", "MIXED"), node("burst2", "IDLE"), node("burst3", "IDLE")]
    shared = on(1, "burst1", processors=1, requested_time=400.0)
    rooms = rooms_of(nodes, shared)
    cloud = CloudState(rooms=rooms, processors_per_node=4)
    assert cloud_wait("", make_job(processors=8), 60.0, cloud, NOW) == 0.0
    assert cloud_wait("", make_job(processors=12), 60.0, cloud, NOW) == 300.0
    assert cloud_wait("", make_job(processors=16), 60.0, cloud, NOW) == math.inf


def forecast(seconds: float) -> str:
    advice = ask(make_job(), make_estimates(run=seconds / 1.04))
    return admin_comment(advice)


@pytest.mark.parametrize(
    ("comment", "limit", "age", "left"),
    [
        (forecast(500.0), 900.0, 100.0, 400.0),  # as forecast
        (forecast(500.0), 550.0, 520.0, 30.0),  # outlived: as long again, within its limit
        (forecast(500.0), None, 600.0, 600.0),
        ("", 900.0, 100.0, 800.0),  # its user put it there: its limit
        ("", 900.0, 950.0, 1.0),  # over its limit, and still there
        ("", None, 100.0, 86_400.0),
    ],
)
def test_how_long_a_job_stays_on_its_nodes(comment: str, limit: float, age: float, left: float) -> None:
    queued = on(1, "burst1", age=age, requested_time=limit, admin_comment=comment)
    assert left_seconds(queued, NOW) == pytest.approx(left, abs=0.2)


def test_rooms_pass_through_the_snapshot(tmp_path) -> None:
    rooms = rooms_of([node("burst1", "ALLOCATED")], on(1, "burst1", requested_time=700.0))
    state = SiteState(time=NOW, cluster=None, cloud=CloudState(rooms=rooms))
    snapshots.write(tmp_path / "snapshot", Snapshot(state=state))
    assert snapshots.read(tmp_path / "snapshot").state.cloud == state.cloud


def test_a_job_that_could_start_on_no_node_takes_none() -> None:
    nodes = [node("burst1", "IDLE", "POWERED_DOWN")]
    gpu = make_queued(2, queue="burst", processors=4, requested_time=1000.0, features=("gpu",))
    large = make_queued(3, queue="burst", processors=400, requested_time=1000.0)
    assert whole(rooms_of(nodes, gpu, large)).free == 1
    assert structs.asdict(whole(rooms_of(nodes)))["later"] == ()
    assert rooms_of([]) == {}


def test_a_job_starts_without_a_boot_on_a_node_that_is_up() -> None:
    nodes = [node("burst1", "IDLE"), node("burst2", "IDLE", "POWERED_DOWN")]
    found = whole(rooms_of(nodes))
    assert (found.free, found.up, found.total) == (2, 1, 2)
    cloud = CloudState(rooms=rooms_of(nodes), processors_per_node=4)
    assert not needs_boot("", make_job(processors=4), 0.0, cloud)
    assert needs_boot("", make_job(processors=8), 0.0, cloud)
    assert not needs_boot("", make_job(processors=4), 60.0, cloud)  # it waits for one that is up
    assert needs_boot("", make_job(processors=4), 0.0, CloudState())
    assert needs_boot("", make_job(processors=4), 0.0, structs.replace(cloud, taken_processors=4))


def test_launches_under_way_have_room_when_they_have_booted() -> None:
    nodes = [
        node("burst1", "MIXED", "POWERING_UP"),
        node("burst2", "IDLE", "POWERING_UP"),
        node("burst3", "IDLE", "POWERING_DOWN"),
    ]
    boots = on(1, "burst1", processors=2, age=40.0, requested_time=640.0)
    found = cloud_rooms(nodes, make_look(NOW, nodes, (boots,)), "burst", boot_seconds=100.0)
    one, _, four = found[""]
    # 40 s of 100 are over; the run time counts from the end of the boot; when burst2 began is unknown
    assert [round(time - NOW) for time in one.later] == [
        60,
        60,
        100,
        100,
        100,
        100,
        130,
        130,
        130,
        130,
        660,
        660,
    ]
    assert [round(time - NOW) for time in four.later] == [100, 130, 660]
    assert (one.free, one.up, one.total) == (0, 0, 12)


def test_a_job_that_waits_gets_the_node_that_is_up_and_another_one_boots() -> None:
    nodes = [node("burst1", "IDLE", "POWERED_DOWN"), node("burst2", "IDLE")]
    jobs = [make_queued(number, queue="burst", processors=4, requested_time=1000.0) for number in (2, 3)]
    found = whole(cloud_rooms(nodes, make_look(NOW, nodes, tuple(jobs)), "burst", boot_seconds=100.0))
    assert [round(time - NOW) for time in found.later] == [1000, 1100]


def test_a_class_has_its_own_rooms_that_are_not_spot() -> None:
    """A job that may not be requeued waits for an on-demand node of its class, whatever others have free."""
    steady, any_kind = ("cloud", "on-demand"), ("cloud", "spot")
    nodes = [
        node("small1", "IDLE", features=any_kind),
        node("big1", "IDLE", features=any_kind),
        node("big2", "ALLOCATED", features=steady),
        node("small2", "IDLE", features=steady),
    ]
    busy = on(1, "big2", requested_time=700.0)
    class_of = {each.name: each.name[:-1] for each in nodes}
    rooms = cloud_rooms(nodes, make_look(NOW, nodes, [busy]), "burst", class_of)
    big = NodeClassState(
        name="big",
        nodes_total=2,
        processors_per_node=4,
        memory_mb_per_node=1000,
        on_demand_usd_per_hour=1.0,
        spot_usd_per_hour=0.4,
    )
    cloud = CloudState(rooms=rooms, classes=(big,)).for_job(make_job(processors=4))
    waits = [cloud_wait(kind, make_job(processors=4), 60.0, cloud, NOW) for kind in ("on-demand", "spot", "")]
    assert waits == [600.0, 0.0, 0.0]
