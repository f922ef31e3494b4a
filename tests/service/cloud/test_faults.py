"""Faults in the loops (docs/faults.md): clean-up fails, protection ends cleanly, misfits, rare paths."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from advisor.model.advice import Capacity
from advisor.model.cluster import Node
from advisor.model.errors import BadInput, RetryLater, TellAdmin
from advisor.model.snapshot import Partition, Reservation
from advisor.service.control.polling import PollLoop
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.control_socket import ControlSocket
from advisor.service.exchange.socket_file import SocketFile
from advisor.service.running.clock import Clock
from advisor.service.running.isolating import for_each
from advisor.service.running.loops import LoopRunner
from advisor.service.state.cloud_record import ClosedOptions
from tests.hooks.cloud_programs import as_slurmctld, installed_programs
from tests.service.cloud.rig import Rig
from tests.service.cloud.test_reconcile_loop import reconcile
from tests.service.doubles import make_instance, make_look, make_node, states_told


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_f11_a_clean_up_that_crashes_is_told_and_its_instances_are_collected_all_the_same(rig: Rig) -> None:
    rig.fleet.listed = [make_instance("burst1"), make_instance("burst2")]
    suspend = rig.fleet.suspend

    def crash(_nodes: object) -> list[str]:
        raise ZeroDivisionError

    rig.fleet.suspend = crash  # type: ignore[assignment]
    rig.hand_over("resume_fail", "burst1")
    rig.hand_over("suspend", "burst2")
    runner = LoopRunner(rig.provision, rig.hands.clock)
    rig.look([])
    assert not runner.run_once()
    assert runner.health.open_failures["hand-overs"].code == "loop.item_failed"
    assert rig.waiting == 2  # nothing is forgotten
    for _ in range(2):
        rig.look([make_node(name, "IDLE", "POWERED_DOWN") for name in ("burst1", "burst2")])
        reconcile(rig)
        rig.hands.pass_by(130.0)
    assert rig.fleet.of("terminate") == [("i-burst1", "i-burst2")]
    rig.fleet.suspend = suspend  # type: ignore[method-assign]
    rig.look([])
    assert runner.run_once()
    assert rig.waiting == 0


def protect(rig: Rig) -> None:
    for _ in range(5):
        rig.hand_over("resume_fail", "burst[1-2]")
    rig.provision.act_on_handovers()
    assert rig.cloud.protected


def after(rig: Rig, seconds: float, *states: str) -> None:
    for wait in (0.0, seconds):
        rig.hands.pass_by(wait)
        rig.look([make_node("burst1", *states), make_node("burst2", "IDLE", "POWERED_DOWN")])
        rig.reconcile.end_protection()


def test_f17_protection_ends_from_a_clean_start_only(rig: Rig) -> None:
    protect(rig)
    after(rig, 7200.0, "MIXED", "POWERING_UP")
    assert rig.cloud.protected  # a node of the time of the failures still powers up
    after(rig, 0.0, "IDLE", "POWERED_DOWN")
    assert not rig.cloud.protected
    rig.hand_over("resume_fail", "burst1")
    rig.provision.act_on_handovers()
    assert "10 cloud nodes in a row" in rig.cloud.protected  # one more failed boot, and it is back


def test_f17_protection_lasts_half_an_hour(rig: Rig) -> None:
    protect(rig)
    after(rig, 1700.0, "IDLE", "POWERED_DOWN")
    assert rig.cloud.protected
    after(rig, 200.0, "IDLE", "POWERED_DOWN")
    assert not rig.cloud.protected


def test_f17_a_long_job_on_a_node_that_is_up_keeps_nothing_protected(rig: Rig) -> None:
    protect(rig)
    rig.reconcile.instances = (make_instance("burst1"),)
    after(rig, 1900.0, "ALLOCATED")
    assert not rig.cloud.protected


@pytest.mark.parametrize("states", [("DOWN", "POWERED_DOWN"), ("IDLE", "POWERING_DOWN")])
def test_f17_a_node_that_is_down_or_on_its_way_is_no_clean_start(rig: Rig, states: tuple[str, ...]) -> None:
    protect(rig)
    after(rig, 7200.0, *states)
    assert rig.cloud.protected


@pytest.mark.parametrize("states", [("DOWN", "DRAIN", "POWERED_DOWN"), ("DOWN",)])
def test_f17_a_node_that_an_admin_keeps_down_does_not_shut_the_cloud(
    rig: Rig, states: tuple[str, ...]
) -> None:
    protect(rig)
    after(rig, 1900.0, *states)
    assert not rig.cloud.protected


def test_f27_a_node_smaller_than_declared_is_told_with_both_sizes(rig: Rig) -> None:
    reason = "Low RealMemory (reported:435161 < 100.00% of configured:443596)"
    rig.look([make_node("burst1", "IDLE", "DRAIN", reason=reason), make_node("burst2")])
    with pytest.raises(TellAdmin, match=r"burst1: Low RealMemory \(reported:435161 .* configured:443596\)"):
        rig.reconcile.tell_misfits()


@pytest.mark.parametrize(
    ("features", "option", "states", "retired"),
    [
        (("cloud", "on-demand"), Capacity.SPOT, ("IDLE",), True),
        (("cloud", "on-demand"), Capacity.SPOT, ("MIXED", "DRAIN"), False),
        (("cloud", "on-demand"), Capacity.ON_DEMAND, ("IDLE",), False),
        (("cloud",), Capacity.SPOT, ("IDLE",), False),
    ],
)
def test_a_node_that_an_admin_declares_on_demand_while_it_is_spot_takes_no_further_job(
    rig: Rig, features: tuple[str, ...], option: Capacity, states: tuple[str, ...], *, retired: bool
) -> None:
    rig.fleet.listed = [make_instance("burst1", option=option)]
    rig.look([make_node("burst1", *states, features=features)])
    LoopRunner(rig.reconcile, rig.hands.clock).run_once()
    assert states_told(rig.slurm) == ({"burst1": "POWER_DOWN_ASAP"} if retired else {})


def test_f28_one_bad_node_never_stops_the_others(rig: Rig) -> None:
    names = [f"burst{number}" for number in range(1, 6)]
    rig.fleet.listed = [make_instance(name, state="terminated") for name in names]
    told: list[str] = []

    def update_node(nodes: Collection[str], **_: Any) -> None:
        told.extend(nodes)
        if nodes[0] == "burst2":  # type: ignore[index]
            raise BadInput("no such node", where="burst2", mend="", code="slurm.value")
        if nodes[0] == "burst3":  # type: ignore[index]
            raise TypeError

    rig.slurm.update_node = update_node  # type: ignore[method-assign]
    runner = LoopRunner(rig.reconcile, rig.hands.clock)
    for _ in range(2):
        rig.look([make_node(name, "ALLOCATED", "NOT_RESPONDING") for name in names])
        runner.run_once()
        rig.hands.pass_by(20.0)
    assert told == names
    assert runner.health.open_failures.keys() == {"lost nodes"}


def test_f28_every_item_has_its_turn_and_the_last_failure_is_told() -> None:
    seen = []

    def act(number: int) -> None:
        seen.append(number)
        if number == 1:
            raise RetryLater("later", code="x.later")
        if number == 2:
            raise KeyError(number)

    with pytest.raises(TellAdmin, match="KeyError") as caught:
        for_each(range(5), act)
    assert isinstance(caught.value.__cause__, KeyError)
    assert seen == [0, 1, 2, 3, 4]


def test_f28_ill_entries_of_the_hand_over_folder_stop_neither_starts_nor_ends(rig: Rig) -> None:
    (rig.path / "0.json").mkdir()
    (rig.path / "1.json").symlink_to("/nonexistent")
    os.mkfifo(rig.path / "2.json")
    (rig.path / "3.json").write_text("nonsense")
    rig.look([make_node("burst1", "IDLE", "POWERING_UP"), make_node("burst2", "IDLE", "POWERING_DOWN")])
    rig.hand_over("resume", "burst1")
    rig.hand_over("suspend", "burst2")
    runner = LoopRunner(rig.provision, rig.hands.clock)
    with capture_logs() as logs:
        for _ in range(3):
            assert runner.run_once()
    assert [nodes for nodes, _ in rig.fleet.of("resume")] == [("burst1",)]
    assert rig.fleet.of("suspend") == [("burst2",)]
    assert sum(entry["event"] == "handover.set_aside" for entry in logs) == 4
    assert rig.waiting == 0


def other_node(*states: str) -> Node:
    return make_node("onprem1", *states)


def test_d8_a_node_of_another_partition_gets_no_instance(rig: Rig) -> None:
    rig.look([other_node("IDLE", "POWERING_UP")])
    rig.hand_over("resume", "onprem1,burst1,ghost[1-40]")
    with capture_logs() as logs:
        for _ in range(3):
            rig.provision.act_on_handovers()
    assert [nodes for nodes, _ in rig.fleet.of("resume")] == [("burst1",)]
    assert all("reason" not in changes for _, _, changes in rig.slurm.told)  # slurmctld would not keep it
    said = [entry for entry in logs if entry["event"] == "cloud.not_ours"]
    assert [entry["nodes"] for entry in said] == ["ghost[1-40],onprem1"]
    assert rig.provision.refusals == {"NotInBurstPartition": 41}
    assert rig.waiting == 0


def test_d8_a_hand_over_without_a_node_of_ours_is_set_aside_and_gives_the_reason(rig: Rig) -> None:
    rig.look([other_node("IDLE", "POWERING_UP")])
    rig.fleet.listed = []
    rig.hand_over("resume", "onprem1")
    rig.hand_over("resume_fail", "onprem1")
    rig.provision.act_on_handovers()
    assert rig.fleet.of("resume") == rig.fleet.of("suspend") == []
    why = "burst advisor: not a node of partition burst: nothing was started"
    assert rig.slurm.told == [("node", ("onprem1",), {"reason": why})]  # and no more: it is not ours
    assert rig.cloud.boot_failures == 0
    assert len(list(rig.path.glob("*.bad"))) == 2


def test_d8_a_suspend_ends_what_ec2_calls_ours_whatever_the_partition(rig: Rig) -> None:
    """A node that an admin takes out of the burst partition while it is up must not be paid for for ever."""
    rig.look([other_node("IDLE", "POWERING_DOWN")])
    rig.hand_over("suspend", "onprem1")
    rig.provision.act_on_handovers()
    assert rig.fleet.of("suspend") == [("onprem1",)]
    assert rig.waiting == 0
    assert list(rig.path.glob("*.bad")) == []


def test_d8_a_node_added_since_the_last_look_waits_for_the_next(rig: Rig) -> None:
    rig.look()
    rig.hands.pass_by(1.0)
    rig.hand_over("resume", "burst99")
    for _ in range(2):
        rig.provision.act_on_handovers()
        rig.hands.pass_by(1.0)
    assert (rig.waiting, rig.fleet.of("resume")) == (1, [])
    rig.look([make_node("burst99", "IDLE", "POWERING_UP")])
    rig.provision.act_on_handovers()
    assert [nodes for nodes, _ in rig.fleet.of("resume")] == [("burst99",)]


def test_d8_what_slurm_has_shown_once_is_believed_while_it_cannot_be_seen(rig: Rig) -> None:
    rig.look()
    rig.provision.act_on_handovers()
    rig.hands.pass_by(3600.0)
    rig.hand_over("resume", "burst1")
    rig.hand_over("resume", "burst99")
    rig.hand_over("suspend", "burst98")
    rig.provision.act_on_handovers()
    assert [nodes for nodes, _ in rig.fleet.of("resume")] == [("burst1",)]
    assert rig.fleet.of("suspend") == [("burst98",)]  # it can end nothing but ours
    assert rig.waiting == 1


def test_f13_the_program_returns_while_ec2_hangs(rig: Rig, tmp_path: Path) -> None:
    """`advisor control` writes the hand-over down and says so; its loop is another thread's."""
    hangs, goes_on = threading.Event(), threading.Event()
    resume = rig.fleet.resume

    def hang(nodes: Sequence[str], **more: Any) -> Any:
        hangs.set()
        goes_on.wait(60.0)
        return resume(nodes, **more)

    rig.fleet.resume = hang  # type: ignore[method-assign]
    rig.look()
    runner = LoopRunner(rig.provision, Clock())
    programs = installed_programs(tmp_path)
    path = tmp_path / "control.sock"
    control = ControlSocket(SocketFile(path), rig.folder, frozenset({os.getuid()}), runner.wake)
    control.start()
    runner.start()
    try:
        assert as_slurmctld(programs / "resume", "burst1") == 0
        assert hangs.wait(30.0)
        assert as_slurmctld(programs / "resume", "burst2") == 0  # EC2 hangs on the first
        assert not goes_on.is_set()
        assert rig.waiting == 2
        assert not (tmp_path / "programs.log").exists()  # both were taken by the socket
    finally:
        goes_on.set()
        control.stop()
        runner.stop()


def test_f29_all_loops_together_ask_slurm_once_a_look(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    settings = rig.settings.model_copy(
        update={"paths": rig.settings.paths.model_copy(update={"run": tmp_path / "run"})}
    )
    asked = []

    class Slurm:
        def snapshot(self, now: float) -> Any:
            asked.append(now)
            return make_look(now, [make_node(f"burst{n}", "IDLE", "POWERED_DOWN") for n in range(2000)])

        def config(self) -> dict[str, str]:
            return {"JobRequeue": "0"}

        def partitions(self) -> tuple[Partition, ...]:
            return ()

        def reservations(self) -> tuple[Reservation, ...]:
            return ()

    poll = PollLoop(
        settings,
        slurm=Slurm(),  # type: ignore[arg-type]
        view=rig.view,
        cloud=rig.cloud,
        closings=ClosedOptions,
        status=dict,
        clock=rig.hands.clock,
    )
    for loop in (poll, rig.provision, rig.reconcile):
        assert LoopRunner(loop, rig.hands.clock).run_once()
    assert asked == [rig.hands.wall]
    assert snapshots.read(settings.paths.snapshot).job_requeue is False
    cloud = poll.cloud_state(
        [make_node("burst1", features=("spot",)), make_node("burst2", features=("reserved",))]
    )
    assert (cloud.spot_open, dict(cloud.nodes_with)) == (True, {"spot": 1, "reserved": 1})
    assert not poll.cloud_state([make_node("burst2", features=("reserved", "spot"))]).spot_open
    assert (
        '"look_seconds"' in (tmp_path / "run" / "control-status.json").read_text()
    )  # and say how long it took
