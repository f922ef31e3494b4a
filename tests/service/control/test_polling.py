"""What a poll hands on: to the features, and to the submit server."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.decide.submission.cloud_terms import cloud_wait
from advisor.ec2.account import Account, ReservedInstances
from advisor.model.advice import Capacity
from advisor.model.cluster import Node
from advisor.model.errors import RetryLater, TellAdmin
from advisor.model.node_classes import ClosedCapacity
from advisor.model.settings import PathSettings, Settings
from advisor.model.snapshot import ClusterSnapshot, Partition, QueuedJob, Reservation
from advisor.service.control.polling import PollLoop
from advisor.service.exchange import snapshot as snapshots
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.feature import Feature, Poll
from advisor.service.state.cloud_record import ClosedOptions, CloudRecord
from advisor.service.state.records import Move, MovesUnderWay
from advisor.service.state.state_files import MOVES
from advisor.service.waiting.moving import Moves
from tests.decide.cases import ask, make_job
from tests.service.doubles import Hands, make_instance, make_look, make_node, make_queued

NODES = (make_node("burst1", "IDLE", "POWERED_DOWN"), make_node("burst2", "IDLE", "POWERED_DOWN"))


class Slurm:
    jobs: tuple[QueuedJob, ...] = ()

    def snapshot(self, now: float) -> ClusterSnapshot:
        return make_look(now, NODES, self.jobs)


class Followed(Feature):
    """Takes the boot time of a poll."""

    boot_seconds: float | None = -1.0

    def polled(self, poll: Poll) -> None:
        self.boot_seconds = poll.cloud.boot_seconds


OPEN = ClosedOptions()
SPOT_CLOSED = ClosedOptions(spot=ClosedCapacity(until=2e9, code="UnauthorizedOperation"))


def make_loop(folder: Path, *features: Feature, closings: ClosedOptions = OPEN, **settings: Any) -> PollLoop:
    parts = {
        name: settings.pop(name) for name in ("instances", "account", "slurm", "foreseen") if name in settings
    }
    hands = Hands()
    cloud = CloudRecord(folder, hands.clock)
    for seconds in (40.0, 50.0, 60.0):
        cloud.booted(seconds, "spot|c5.xlarge|")
        cloud.booted(10.0 * seconds, "on-demand|c5.xlarge|")
    return PollLoop(
        Settings(paths=PathSettings(state=folder, run=folder), **settings),
        view=SharedView(hands.clock, 60.0),
        cloud=cloud,
        closings=lambda *_: closings,
        status=dict,
        clock=hands.clock,
        features=features,
        **{"slurm": Slurm(), **parts},
    )


@pytest.mark.parametrize(
    ("spot_open", "use_spot", "boot"), [(True, True, 60.0), (False, True, 600.0), (True, False, 600.0)]
)
def test_features_are_given_the_boot_time_that_decisions_reckon_with(
    tmp_path: Path, *, spot_open: bool, use_spot: bool, boot: float
) -> None:
    feature = Followed()
    closings = OPEN if spot_open else SPOT_CLOSED
    loop = make_loop(tmp_path, feature, closings=closings, capacity={"use_spot": use_spot})
    for step in (loop.poll, loop.hand_over, loop.publish):
        step()
    published = snapshots.read(tmp_path / "snapshot.msgpack").state
    assert feature.boot_seconds == published.cloud.boot_seconds == boot
    assert (published.cloud.spot_open, published.cloud.spot_closed) == (spot_open, closings.spot)


def test_what_was_committed_is_not_forgotten_by_a_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = make_queued(7, queue="burst", admin_comment=admin_comment(ask()))
    for jobs in ((), (moved,)):
        monkeypatch.setattr(Slurm, "jobs", jobs)
        loop = make_loop(tmp_path)
        for step in (loop.poll, loop.publish):
            step()
        published = snapshots.read(tmp_path / "snapshot.msgpack").state
        assert (published.cloud.promised_usd > 0.0) == bool(jobs)


def test_a_poll_between_an_advice_and_its_move_does_not_free_the_money(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows the job here; the submit server counts it until then, and the next poll shows it there."""
    changes = {"partition": "burst", "admincomment": admin_comment(ask())}
    moves = MovesUnderWay(
        moving={7: Move(advice_id="a", was=["onprem"], words="", changes=changes, time=1.8e9)}
    )
    MOVES.at(tmp_path).write(moves)
    nothing: Any = None
    foreseen = Moves(
        Settings(), slurm=nothing, view=nothing, clock=nothing, state=MOVES.at(tmp_path)
    ).foreseen
    promised = []
    for queue in ("onprem", "elsewhere", "burst"):
        comment = admin_comment(ask()) if queue == "burst" else ""
        monkeypatch.setattr(Slurm, "jobs", (make_queued(7, queue=queue, admin_comment=comment),))
        loop = make_loop(tmp_path, foreseen=foreseen)
        for step in (loop.poll, loop.publish):
            step()
        promised.append(snapshots.read(tmp_path / "snapshot.msgpack").state.cloud.promised_usd)
    assert promised[0] == promised[2] > promised[1] == 0.0


def test_of_nodes_that_take_no_job_nothing_is_promised(tmp_path: Path) -> None:
    loop = make_loop(tmp_path)
    usable: list[Node] = [make_node("burst1", "IDLE", features=("spot",))]
    broken = [make_node("burst2", "IDLE", "DRAIN"), make_node("burst3", "DOWN")]
    cloud = loop.cloud_state([*usable, *broken])
    assert (cloud.nodes_total, cloud.nodes_up, cloud.features) == (1, 1, ("spot",))


class WithReservations(Slurm):
    """It shows a reservation, and for a while none can be read."""

    answers = True
    names: Sequence[str] = ()

    def config(self) -> dict[str, str]:
        return {}

    def partitions(self) -> tuple[Partition, ...]:
        return tuple(Partition(name=name, is_up=True, nodes="", total_processors=0) for name in self.names)

    def reservations(self) -> tuple[Reservation, ...]:
        if not self.answers:
            raise RetryLater("no answer", code="slurm.timeout")
        names = frozenset({"burst1", "burst2"})
        return (Reservation(name="maintenance", begin=0.0, end=1e12, nodes=names),)


@pytest.mark.parametrize(
    ("mode", "existing", "told"),
    [
        ("act", ("onprem", "burst"), None),
        ("shadow", ("onprem",), None),
        ("shadow", ("main", "burst"), r"no partition onprem: .* cluster\.on_premise_partitions"),
        ("act", ("onprem", "cloud"), r"no partition burst: .* cluster\.burst_partition or slurm.conf"),
        ("lsf", ("main", "burst"), r"no queue onprem: .* cluster\.on_premise_partitions or lsb.queues"),
    ],
)
def test_a_partition_that_was_renamed_in_slurm_conf_is_told(
    tmp_path: Path, mode: str, existing: Sequence[str], told: str | None
) -> None:
    slurm = WithReservations()
    slurm.names = existing
    said = {"scheduler": "lsf"} if mode == "lsf" else {"default_mode": mode}
    loop = make_loop(tmp_path, slurm=slurm, cluster=said)
    loop.read_config()
    with contextlib.nullcontext() if told is None else pytest.raises(TellAdmin, match=told):
        loop.tell_missing()


def test_reservations_that_take_all_cloud_nodes_together(tmp_path: Path) -> None:
    loop, now = make_loop(tmp_path), Hands().clock.wall()
    nodes = [make_node("burst1", processors=8), make_node("burst2", processors=8)]

    def kept(name: str, begin: float, processors: int | None = None) -> Reservation:
        nodes = frozenset({name})
        return Reservation(name=name, begin=now + begin, end=now + 900.0, nodes=nodes, processors=processors)

    assert loop.cloud_state(nodes, (kept("burst1", -9.0), kept("burst2", 60.0))).closings == (
        (now, 1),
        (now + 60.0, 0),
    )
    assert loop.cloud_state(nodes, (kept("burst1", -9.0), kept("burst2", -5.0))).closings == ((now, 0),)
    cores = loop.cloud_state(nodes, (kept("burst1", -9.0, processors=1), kept("burst2", -5.0)))
    assert (cores.closings, cores.nodes_total) == (((now, 1),), 1)


@pytest.mark.parametrize(
    ("begin", "end", "draws"), [(-9.0, 60.0, True), (-9.0, -1.0, False), (9.0, 60.0, False)]
)
def test_jobs_are_drawn_to_a_reservation_while_it_is_in_force(
    tmp_path: Path, begin: float, end: float, *, draws: bool
) -> None:
    loop, now = make_loop(tmp_path), Hands().clock.wall()
    names = frozenset({"onprem1"})
    course = Reservation(
        name="course", begin=now + begin, end=now + end, nodes=names, draws=frozenset({"chem"})
    )
    assert loop.cloud_state([], (course,)).drawn == ({"chem": "course"} if draws else {})


def test_reservations_are_read_once_a_minute_and_kept_while_slurm_does_not_answer(tmp_path: Path) -> None:
    slurm = WithReservations()
    loop = make_loop(tmp_path, slurm=slurm)
    published = []
    for answers in (True, False):
        slurm.answers = answers
        loop._next_config = -math.inf
        with contextlib.nullcontext() if answers else pytest.raises(RetryLater):
            loop.read_config()
        loop.poll()
        loop.publish()
        published.append(snapshots.read(tmp_path / "snapshot.msgpack").state.cloud.closings)
    assert all(published)


@pytest.mark.parametrize(
    ("name", "nodes", "begin", "found"),
    [
        ("maintenance", "burst1,burst2", 3600.0, (2, ((3600.0, 0),))),
        ("maintenance", "burst1,burst2", -60.0, (2, ((0.0, 0),))),
        ("maintenance", "burst1", -60.0, (1, ((0.0, 1),))),
        ("maintenance", "burst1", 3600.0, (2, ((3600.0, 1),))),
        ("advisor_portfolio", "burst1,burst2", -60.0, (2, ())),
    ],
)
def test_cloud_nodes_that_others_have_reserved_take_no_jobs(
    tmp_path: Path, name: str, nodes: str, begin: float, found: tuple[int, object]
) -> None:
    loop, now = make_loop(tmp_path), Hands().clock.wall()
    names = frozenset(nodes.split(","))
    kept = Reservation(name=name, begin=now + begin, end=now + 7200.0, nodes=names)
    over = Reservation(name="over", begin=now - 900.0, end=now - 1.0, nodes=names)
    cloud = loop.cloud_state([make_node("burst1"), make_node("burst2")], (kept, over))
    closings = tuple((at - now, left) for at, left in cloud.closings)
    assert (cloud.nodes_total, closings) == found


@pytest.mark.parametrize(("begin", "free"), [(3600.0, 1), (90_000.0, 2)])
def test_a_node_that_is_reserved_soon_has_no_room(tmp_path: Path, begin: float, free: int) -> None:
    now = Hands().clock.wall()
    coming = Reservation(name="course", begin=now + begin, end=now + 1e6, nodes=frozenset({"burst1"}))
    loop = make_loop(tmp_path)
    loop._reservations = (coming,)
    loop.poll()
    loop.publish()
    (*_, room) = snapshots.read(tmp_path / "snapshot.msgpack").state.cloud.rooms[""]
    assert room.free == free


@pytest.mark.parametrize(
    ("states", "wait"),
    [(("DOWN",), math.inf), (("IDLE", "DRAIN"), math.inf), (("IDLE", "POWERED_DOWN"), 0.0)],
)
def test_day_one_3_where_all_cloud_nodes_are_down_nobody_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: tuple[str, ...], wait: float
) -> None:
    nodes = (make_node("burst1", *states), make_node("burst2", *states))
    monkeypatch.setattr(Slurm, "snapshot", lambda _self, now: make_look(now, nodes, ()))
    loop = make_loop(tmp_path)
    for step in (loop.poll, loop.publish):
        step()
    state = snapshots.read(tmp_path / "snapshot.msgpack").state
    assert cloud_wait("", make_job(), 60.0, state.cloud, state.time) == wait


def test_without_a_burst_partition_nothing_is_known_of_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that looks at the advice first, before it has a cloud."""
    monkeypatch.setattr(Slurm, "snapshot", lambda _self, now: make_look(now, (), ()))
    loop = make_loop(tmp_path)
    for step in (loop.poll, loop.publish):
        step()
    assert snapshots.read(tmp_path / "snapshot.msgpack").state.cloud.rooms == {}


def test_seeds_r1_busy_spot_nodes_use_up_no_reserved_instance(tmp_path: Path) -> None:
    """Four reserved, three busy spot nodes and one busy on-demand one: three are free, not none."""
    bought = ReservedInstances(name="ri-1", instance_type="c5.xlarge", zone="", count=4)
    spot = [make_instance(f"burst{number}", option=Capacity.SPOT) for number in (1, 2, 3)]
    loop = make_loop(
        tmp_path,
        account=lambda: Account(reserved=(bought,)),
        instances=lambda: [*spot, make_instance("burst4", option=Capacity.ON_DEMAND)],
    )
    busy = [make_node(f"burst{number}", "ALLOCATED") for number in range(1, 5)]
    idle = make_node("burst5", "IDLE")
    assert loop.cloud_state([*busy, idle]).reserved_free_nodes == 3
    # one of which nobody knows what it is counts as on-demand; a drained one has its job all the same
    unknown = make_node("burst6", "MIXED", "DRAIN")
    assert loop.cloud_state([*busy, idle, unknown]).reserved_free_nodes == 2


@pytest.mark.parametrize(("setting", "listed", "free"), [(0, 4, 4), (6, 4, 6), (2, None, 2)])
def test_seeds_r1_discovered_reservations_count_in_decisions(
    tmp_path: Path, setting: int, listed: int | None, free: int
) -> None:
    """Bills went by what EC2 lists, decisions by the setting alone."""
    bought = [
        ReservedInstances(name="ri-1", instance_type="c5.xlarge", zone="", count=number)
        for number in (listed,)
        if number is not None
    ]
    loop = make_loop(
        tmp_path,
        account=lambda: Account(reserved=tuple(bought)),
        capacity={"reserved_nodes": setting},
    )
    assert loop.cloud_state(NODES).reserved_free_nodes == free


@pytest.mark.parametrize(("hook", "jobs"), [(True, 2), (False, 1)])
def test_g20_2_without_a_hook_a_new_job_meets_the_queue_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hook: bool, jobs: int
) -> None:
    """As inside `sbatch`: what is still to be advised is not in the state that advice rests on."""
    advised = make_queued(7, reason="Resources", submit_time=1_799_999_999.0, admin_comment="{}")
    new = make_queued(8, reason="Resources", submit_time=1_799_999_999.0)
    monkeypatch.setattr(Slurm, "jobs", (advised, new))
    loop = make_loop(tmp_path, cluster={"hook": hook})
    for step in (loop.poll, loop.publish):
        step()
    published = snapshots.read(tmp_path / "snapshot.msgpack")
    assert published.state.cluster is not None
    assert published.state.cluster.queue_size == jobs
    (queue,) = published.queues
    assert queue.machine.partitions == ("onprem",)
    assert len(queue.closed().waiting) == jobs


MID = {
    "nodes": "burst[1-2]",
    "instance_types": ["c5.xlarge", "m5.xlarge"],
    "cores": 4,
    "memory_mb": 4000,
    "on_demand_usd_per_hour": 0.4,
}
BIG = {
    **MID,
    "nodes": "burst3",
    "instance_types": ["c5.9xlarge"],
    "cores": 32,
    "on_demand_usd_per_hour": 1.6,
    "gpus": 2,
}


def test_classes_are_published_with_their_nodes_prices_and_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = (
        make_node("burst1", "IDLE", "POWERED_DOWN", features=("mid", "spot")),
        make_node("burst2", "IDLE", "POWERED_DOWN", features=("mid",)),
        make_node("burst3", "IDLE", "POWERED_DOWN", features=("big",), processors=32, memory_mb=64000),
        make_node("burst4", "DOWN", features=("big",), processors=32),
        make_node("burst5", "IDLE", "POWERED_DOWN", features=(), processors=2, memory_mb=1000),
    )
    monkeypatch.setattr(Slurm, "snapshot", lambda _self, now: make_look(now, nodes, ()))
    loop = make_loop(tmp_path, ec2={"classes": {"mid": MID, "big": BIG}})
    for seconds in (200.0, 210.0, 220.0):
        loop._cloud.booted(seconds, "on-demand|c5.9xlarge|default")
    for step in (loop.poll, loop.publish):
        step()
    cloud = snapshots.read(tmp_path / "snapshot.msgpack").state.cloud
    seen = {each.name: each for each in cloud.classes}
    assert {name: each.nodes_total for name, each in seen.items()} == {"": 1, "mid": 2, "big": 1}
    assert (seen["mid"].features, seen["mid"].nodes_with) == (("mid",), {"mid": 2.0, "spot": 1.0})
    assert (seen["big"].gpus_per_node, seen["big"].memory_mb_per_node) == (2, 64000)
    assert (seen["mid"].on_demand_usd_per_hour, seen[""].on_demand_usd_per_hour) == (0.4, 0.17)
    met = cloud.for_job(make_job(processors=20))
    assert met.node_class == seen["big"]
    assert (met.boot_seconds, cloud.for_job(make_job(processors=4)).boot_seconds) == (220.0, 60.0)
    assert [room.total for room in met.rooms[""]] == [32, 16, 8, 4, 2, 1]
    assert cloud_wait("", make_job(processors=32, array_tasks=3), 60.0, met, cloud.boot_seconds or 0.0) > 0.0


class WithTerms(WithReservations):
    """Its burst partition has limits, and a default of memory."""

    def config(self) -> dict[str, str]:
        return {"SelectTypeParameters": "CR_CORE_MEMORY"}

    def partitions(self) -> tuple[Partition, ...]:
        terms = {"max_nodes": 1, "max_processors_per_node": 3, "max_memory_per_node_mb": 2500}
        return (
            Partition(
                name="burst", is_up=True, nodes="", total_processors=8, default_memory=(None, 900), **terms
            ),
        )

    def reservations(self) -> tuple[Reservation, ...]:
        return ()

    def snapshot(self, now: float) -> ClusterSnapshot:
        here = [
            make_node(f"n{memory}", *states, memory_mb=memory, partitions=("onprem",))
            for memory, states in ((64_000, ("IDLE",)), (32_000, ("IDLE",)), (1000, ("DOWN",)))
        ]
        return make_look(now, (*NODES, *here), ())


@pytest.mark.parametrize("classes", [{}, {"mid": MID}], ids=["alike", "classes"])
def test_a_job_meets_the_limits_and_the_memory_of_the_burst_partition(
    tmp_path: Path, classes: dict[str, Any]
) -> None:
    loop = make_loop(tmp_path, slurm=WithTerms(), ec2={"classes": classes})
    for step in (loop.read_config, loop.poll, loop.publish):
        step()
    site = snapshots.read(tmp_path / "snapshot.msgpack").state
    found = site.cloud.for_job(make_job(processors=1))
    assert (found.nodes_total, found.processors_per_node, found.memory_mb_per_node) == (1, 3, 2500)
    assert (site.cloud.default_memory, site.node_memory_mb) == ((0, 900), 32_000)
