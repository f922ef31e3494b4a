"""Slurm and EC2 compared: what neither claims goes, what both lost is mended, and all of it is paid."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from advisor.model.advice import Capacity
from advisor.model.cluster import NodePower
from advisor.model.errors import RetryLater, TellAdmin
from advisor.service.state.cloud_record import CloudRecord
from tests.service.cloud.rig import SERVER_FAULT, Rig, rig
from tests.service.doubles import (
    make_instance,
    make_node,
    make_queued,
    states_told,
)

__all__ = ["rig"]


def reconcile(rig: Rig) -> None:
    for step in rig.reconcile.steps():
        step.run()


def test_f12_an_instance_nobody_claims_goes_after_the_grace_time(rig: Rig) -> None:
    rig.fleet.listed = [
        make_instance("burst1"),
        make_instance("burst2"),
        make_instance(None, instance_id="i-x"),
    ]
    nodes = [make_node("burst1", "IDLE", "POWERED_DOWN"), make_node("burst2", "MIXED", "POWERING_UP")]
    rig.look(nodes)
    reconcile(rig)
    assert rig.fleet.of("terminate") == []
    rig.hands.pass_by(130.0)
    rig.look(nodes)
    reconcile(rig)
    assert rig.fleet.of("terminate") == [("i-burst1", "i-x")]


def test_f12_a_stopped_instance_that_could_not_be_terminated_with_its_node_goes_as_well(rig: Rig) -> None:
    rig.fleet.listed = [make_instance("burst1", state="stopped"), make_instance("burst2", state="stopped")]
    nodes = [make_node("burst1", "IDLE", "POWERED_DOWN"), make_node("burst2", "MIXED", "NOT_RESPONDING")]
    for _ in range(2):
        rig.look(nodes)
        reconcile(rig)
        rig.hands.pass_by(130.0)
    assert rig.fleet.of("terminate") == [("i-burst1",)]


def test_f16_an_unknown_power_state_ends_no_instance(rig: Rig) -> None:
    """A release of Slurm may call a node's state by a word that nobody here knows."""
    rig.fleet.listed = [make_instance("burst1"), make_instance("burst2")]
    for _ in range(3):
        nodes = [make_node("burst1", "BRAND_NEW_STATE"), make_node("burst2", "IDLE", "POWERED_DOWN")]
        assert nodes[0].power is NodePower.UNKNOWN
        rig.look(nodes)
        reconcile(rig)
        rig.hands.pass_by(130.0)
    assert set(rig.fleet.of("terminate")) == {("i-burst2",)}
    assert rig.slurm.told == []


def test_a_node_of_another_partition_claims_its_instance(rig: Rig) -> None:
    """A burst partition that lost a node must not cost that node's jobs their instance."""
    rig.fleet.listed = [make_instance("burst1"), make_instance("burst2")]
    for _ in range(2):
        rig.look([make_node("burst1", "ALLOCATED", partitions=("other",)), make_node("burst2", "MIXED")])
        reconcile(rig)
        rig.hands.pass_by(130.0)
    assert rig.fleet.of("terminate") == []


def test_without_any_burst_node_nothing_is_given_up_and_the_admin_told(rig: Rig) -> None:
    """A wrong cluster.burst_partition says nothing about instances."""
    rig.fleet.listed = [make_instance("burst1")]
    for _ in range(2):
        rig.look([make_node("on1")], others=False)
        rig.reconcile.read_instances()
        with pytest.raises(TellAdmin, match="burst"):
            rig.reconcile.terminate_orphans()
        rig.hands.pass_by(130.0)
    assert rig.fleet.of("terminate") == []


def test_a_node_that_is_up_without_an_instance_of_ours_is_told(rig: Rig) -> None:
    """A change of `cluster.name` or `ec2.region` leaves instances that no loop would end."""
    nodes = [make_node("burst1", "ALLOCATED", "CLOUD"), make_node("burst2", "IDLE", "CLOUD")]
    rig.fleet.listed = [make_instance("burst2")]
    for told in (False, True):
        rig.look(nodes)
        rig.reconcile.read_instances()
        with (
            pytest.raises(TellAdmin, match=r"1 cloud nodes are up, burst1 .*cluster\.name")
            if told
            else contextlib.nullcontext()
        ):
            rig.reconcile.tell_unlisted()
        rig.hands.pass_by(130.0)
    rig.fleet.listed.append(make_instance("burst1"))
    rig.look(nodes)
    reconcile(rig)


@pytest.mark.parametrize("own", ["i-a", "i-b"])
def test_f10_of_two_instances_the_one_slurm_talks_to_stays(rig: Rig, own: str) -> None:
    rig.fleet.listed = [
        make_instance("burst1", instance_id=name, private_ip="10.0.0.1" if name == own else "10.0.0.2")
        for name in ("i-a", "i-b")
    ]
    for _ in range(2):
        rig.look([make_node("burst1", "ALLOCATED", address="10.0.0.1")])
        reconcile(rig)
        rig.hands.pass_by(130.0)
    assert rig.fleet.of("terminate") == [({"i-a": "i-b", "i-b": "i-a"}[own],)]


def test_f32_a_clock_that_jumps_ripens_nothing(rig: Rig) -> None:
    rig.fleet.listed = [make_instance("burst1")]
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN")])
    reconcile(rig)
    rig.hands.wall += 3600.0
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN")])
    reconcile(rig)
    assert rig.fleet.of("terminate") == []


def test_f23_nothing_is_given_up_while_one_side_cannot_be_read(rig: Rig) -> None:
    rig.fleet.listed = [make_instance("burst1")]
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN")])
    reconcile(rig)
    rig.hands.pass_by(1000.0)  # Slurm has not been seen since
    with pytest.raises(RetryLater):
        rig.reconcile.terminate_orphans()
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN")])
    rig.fleet.error = RetryLater("EC2 is away", code="ec2.server")
    with pytest.raises(RetryLater):
        rig.reconcile.read_instances()
    rig.reconcile.terminate_orphans()
    assert rig.fleet.of("terminate") == []


def test_f10_of_two_instances_of_one_node_one_goes(rig: Rig) -> None:
    twins = [make_instance("burst1", instance_id="i-a"), make_instance("burst1", instance_id="i-b")]
    rig.fleet.listed = twins
    for _ in range(2):
        rig.look([make_node("burst1", "ALLOCATED")])
        reconcile(rig)
        rig.hands.pass_by(130.0)
    (given_up,) = rig.fleet.of("terminate")
    assert len(given_up) == 1


def test_f19_a_node_is_lost_only_when_both_sides_say_so(rig: Rig) -> None:
    rig.fleet.listed = [
        make_instance("burst1", state="terminated", state_reason="Server.SpotInstanceTermination"),
        make_instance("burst2", state="terminated"),
        make_instance("burst3"),
    ]
    nodes = [
        make_node("burst1", "ALLOCATED", "NOT_RESPONDING"),
        make_node("burst2", "ALLOCATED"),
        make_node("burst3", "ALLOCATED", "NOT_RESPONDING"),
    ]
    for _ in range(2):
        rig.look(nodes)
        reconcile(rig)
        rig.hands.pass_by(20.0)
    assert states_told(rig.slurm) == {"burst1": "POWER_DOWN_FORCE"}


@pytest.mark.parametrize(("reason", "is_lost"), [("Client.UserInitiatedShutdown", False), ("", True)])
def test_f19_a_node_that_boots_anew_is_not_lost_with_its_former_instance(
    rig: Rig, reason: str, *, is_lost: bool
) -> None:
    """SuspendProgram ended the instance, and slurmctld has resumed the node before we have heard of it."""
    rig.fleet.listed = [make_instance("burst1", state="terminated", state_reason=reason)]
    for _ in range(2):
        rig.look([make_node("burst1", "ALLOCATED", "POWERING_UP", "NOT_RESPONDING")])
        reconcile(rig)
        rig.hands.pass_by(20.0)
    assert bool(states_told(rig.slurm)) == is_lost


@pytest.mark.parametrize(("launched", "is_lost"), [(-300.0, False), (1.0, True)])
def test_f19_a_boot_whose_instance_an_admin_ends_is_lost_at_once(
    rig: Rig, launched: float, *, is_lost: bool
) -> None:
    """Its job has waited until ResumeTimeout: the instance was taken for one of the node's former life."""
    asked = rig.hands.wall
    former = make_instance("burst1", instance_id="i-0", state="terminated", launch_time=asked - 900.0)
    ended = make_instance(
        "burst1",
        state="terminated",
        state_reason="Client.UserInitiatedShutdown",
        launch_time=asked + launched,
    )
    rig.fleet.listed = [ended, former]
    for _ in range(2):
        rig.look(
            [make_node("burst1", "ALLOCATED", "POWERING_UP", "NOT_RESPONDING")],
            [make_queued(7, "CONFIGURING", nodes="burst1", queue="burst", start_time=asked)],
        )
        reconcile(rig)
        rig.hands.pass_by(20.0)
    assert bool(states_told(rig.slurm)) == is_lost


def test_a_node_that_waits_for_its_launch_is_not_lost_with_its_former_instance(rig: Rig) -> None:
    """EC2 took the instance, slurmctld has resumed the node, and EC2 cannot launch another one yet."""
    ended = make_instance("burst1", state="terminated", state_reason="Server.SpotInstanceTermination")
    rig.fleet.listed = [ended]
    rig.fleet.refusals = {"burst1": SERVER_FAULT}
    rig.hand_over("resume", "burst1", {7: "burst1"})
    for _ in range(2):
        rig.look([make_node("burst1", "ALLOCATED", "POWERING_UP", "NOT_RESPONDING")])
        with contextlib.suppress(RetryLater):
            rig.provision.act_on_handovers()
        reconcile(rig)
        rig.hands.pass_by(20.0)
    assert rig.waiting == 1
    assert not states_told(rig.slurm)


def test_f23_a_node_is_lost_by_two_lists_in_a_row(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """While EC2 does not answer the node may have begun another life."""

    def look() -> dict[str, str]:
        rig.look([make_node("burst1", "ALLOCATED", "NOT_RESPONDING")])
        for step in rig.reconcile.steps():
            with contextlib.suppress(RetryLater):
                step.run()
        rig.hands.pass_by(30.0)
        return states_told(rig.slurm)

    def away() -> None:
        raise RetryLater("EC2 does not answer", code="ec2.server")

    rig.fleet.listed = [make_instance("burst1", state="terminated")]
    assert look() == {}
    with monkeypatch.context() as patch:
        patch.setattr(rig.fleet, "instances", away)
        assert look() == {}
    assert look() == {}
    assert look() == {"burst1": "POWER_DOWN_FORCE"}


def test_f02_a_powered_down_node_left_down_is_mended(rig: Rig) -> None:
    rig.look(
        [
            make_node("burst1", "DOWN", "POWERED_DOWN"),
            make_node("burst2", "DOWN", "POWERED_DOWN", "DRAIN"),
            make_node("burst3", "DOWN"),
        ]
    )
    reconcile(rig)
    assert states_told(rig.slurm) == {"burst1": "RESUME"}


def test_f02_a_node_left_down_is_not_mended_while_ec2_does_not_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise RetryLater("EC2 does not answer", code="ec2.server")

    rig.look([make_node("burst1", "DOWN", "POWERED_DOWN")])
    with monkeypatch.context() as patch:
        patch.setattr(rig.fleet, "instances", away)
        for step in rig.reconcile.steps():
            with contextlib.suppress(RetryLater):
                step.run()
        assert states_told(rig.slurm) == {}
    reconcile(rig)
    assert states_told(rig.slurm) == {"burst1": "RESUME"}


def test_f07_a_node_that_powers_up_gets_its_own_instances_address(rig: Rig) -> None:
    rig.fleet.listed = [make_instance("burst1", private_ip="10.0.0.5"), make_instance("burst2")]
    rig.look([make_node("burst1", "MIXED", "POWERING_UP"), make_node("burst2", "ALLOCATED")])
    reconcile(rig)
    assert rig.slurm.told == [("node", ("burst1",), {"address": "10.0.0.5", "hostname": "burst1"})]


def test_the_days_bill(rig: Rig) -> None:
    rig.fleet.listed = [
        make_instance("burst1"),
        make_instance("burst2", option=Capacity.ON_DEMAND),
        make_instance("burst3", state="terminated"),
    ]
    nodes = [make_node(f"burst{i}", "ALLOCATED") for i in (1, 2)]
    jobs = [make_queued(7, "RUNNING", nodes="burst1", account="physics", queue="burst")]
    for _ in range(3):
        rig.look(nodes, jobs)
        reconcile(rig)
        rig.hands.pass_by(1800.0)
    usd, by_account = rig.cloud.budget.spent_today()
    assert usd == pytest.approx(3.0)
    assert dict(by_account) == {"physics": pytest.approx(1.0)}
    rig.hands.pass_by(86400.0)
    assert rig.cloud.budget.spent_today()[0] == 0.0


def test_day_one_10_an_instance_that_is_nobodys_costs_all_the_same(rig: Rig) -> None:
    """Until it is given up: the second one of a node, and one without a node."""
    rig.fleet.listed = [
        make_instance("burst1", launch_time=rig.hands.wall),
        make_instance("burst1", instance_id="i-double", launch_time=rig.hands.wall, private_ip="10.9.9.9"),
        make_instance(None, instance_id="i-nobody", launch_time=rig.hands.wall),
    ]
    rig.hands.pass_by(3600.0)
    rig.look([make_node("burst1", "IDLE")])
    rig.reconcile.read_instances()
    rig.reconcile.count_money()
    assert rig.cloud.budget.spent_today()[0] == pytest.approx(3.0)
    assert {piece.instance_id for piece in rig.cloud.budget.paid()} == {"i-burst1", "i-double", "i-nobody"}


def test_the_record_survives_a_restart_and_a_damaged_file(rig: Rig, tmp_path: Path) -> None:
    for seconds in (10.0, 20.0, 30.0):
        rig.cloud.booted(seconds)
    again = CloudRecord(tmp_path, rig.hands.clock)
    assert again.boot_seconds == 30.0
    infinite = '{"boots": {}, "failures_in_a_row": Infinity, "boots_seen": 1, "failures_seen": 1}'
    for content in ('{"boots": {"p": [1, "x"', infinite, "[]"):
        (tmp_path / "cloud.json").write_text(content)
        assert CloudRecord(tmp_path, rig.hands.clock).boot_seconds is None
