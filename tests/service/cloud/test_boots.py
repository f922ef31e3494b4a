"""Boots: those that fail, those that come late, and how long they take."""

from __future__ import annotations

import contextlib

import pytest

from advisor.model.errors import RetryLater
from tests.service.cloud.rig import Rig, comment, rig
from tests.service.doubles import (
    POOL,
    make_instance,
    make_node,
    make_queued,
    states_told,
)

__all__ = ["rig"]


def test_f02_a_failed_boot_is_counted_and_its_node_usable_again(rig: Rig) -> None:
    rig.hand_over("resume_fail", "burst[1-2]")
    rig.provision.act_on_handovers()
    assert rig.fleet.of("suspend") == [("burst1", "burst2")]
    assert states_told(rig.slurm) == {"burst1": "RESUME", "burst2": "RESUME"}
    assert rig.cloud.boot_failures == 2
    assert rig.cloud.protected == ""


def test_f02_a_moved_job_goes_home_after_its_second_failed_boot_in_a_row(rig: Rig) -> None:
    """Else slurmctld tries one node after the other while the job could run on-premise."""
    waiting = make_queued(7, admin_comment=comment(), queue="burst")

    def try_one(node: str, *, comes: bool) -> list[tuple[str, ...]]:
        rig.look(jobs=[make_queued(7, "CONFIGURING", admin_comment=comment(), queue="burst")])
        rig.hand_over("resume", node, {7: node})
        rig.provision.act_on_handovers()
        rig.hands.pass_by(30.0)
        if comes:
            rig.look([make_node(node, "ALLOCATED")])
            rig.provision.watch_boots()
        else:
            rig.look(jobs=[waiting])
            rig.hand_over("resume_fail", node)
            rig.provision.act_on_handovers()
        rig.look(jobs=[waiting])
        rig.provision.return_jobs()
        return [call for call in rig.slurm.told if call[0] == "job"]

    assert try_one("burst1", comes=False) == []
    assert try_one("burst2", comes=True) == []
    assert try_one("burst1", comes=False) == []
    home = ("job", (7,), {"partition": "onprem", "starttime": "now"})
    assert try_one("burst2", comes=False) == [home]
    assert try_one("burst1", comes=False) == [home]  # moved again, it begins anew


def test_f02_a_moved_job_goes_home_while_ec2_does_not_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No hand-over is done then, for hours if keys have expired; slurmctld tries node after node."""

    def away(*_: object, **__: object) -> None:
        raise RetryLater("EC2 does not answer", code="ec2.server")

    monkeypatch.setattr(rig.fleet, "resume", away)
    monkeypatch.setattr(rig.fleet, "suspend", away)
    waiting = make_queued(7, admin_comment=comment(), queue="burst")
    for failed in (1, 2):  # of one node, whose hand-overs queue up
        rig.look(jobs=[make_queued(7, "CONFIGURING", admin_comment=comment(), queue="burst")])
        rig.hand_over("resume", "burst1", {7: "burst1"})
        for _ in range(3):
            with pytest.raises(RetryLater):
                rig.provision.act_on_handovers()
        rig.hands.pass_by(600.0)
        rig.look(jobs=[waiting])
        rig.hand_over("resume_fail", "burst1")
        for _ in range(3):
            with pytest.raises(RetryLater):
                rig.provision.act_on_handovers()
        assert rig.cloud.boot_failures == failed
    rig.provision.return_jobs()
    assert ("job", (7,), {"partition": "onprem", "starttime": "now"}) in rig.slurm.told
    assert rig.waiting == 4


@pytest.mark.parametrize("is_during_the_boot", [True, False])
def test_f02_a_restart_forgets_no_failed_boot(rig: Rig, *, is_during_the_boot: bool) -> None:
    waiting = make_queued(7, admin_comment=comment(), queue="burst")
    for node in ("burst1", "burst2"):
        rig.look(jobs=[make_queued(7, "CONFIGURING", admin_comment=comment(), queue="burst", nodes=node)])
        rig.hand_over("resume", node, {7: node})
        rig.provision.act_on_handovers()
        if is_during_the_boot:
            rig.restart()
            rig.provision.act_on_handovers()
        rig.hands.pass_by(30.0)
        rig.look(jobs=[waiting])
        rig.hand_over("resume_fail", node)
        rig.provision.act_on_handovers()
        assert rig.provision.returning == ({7} if node == "burst2" else set())
        if node == "burst1":
            rig.restart()
    rig.restart()
    assert rig.cloud.job_not_booted(7) == 1  # it begins anew


def test_f02_failed_boots_of_jobs_that_have_left_are_forgotten(rig: Rig) -> None:
    rig.cloud.job_not_booted(6)
    rig.look(jobs=[make_queued(7, "CONFIGURING", admin_comment=comment(), queue="burst")])
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.provision.act_on_handovers()
    rig.hand_over("resume_fail", "burst1")
    rig.provision.act_on_handovers()
    assert rig.cloud.failed_boots() == {7: 1}


@pytest.mark.parametrize(
    ("node", "job", "spared"),
    [
        (("ALLOCATED", "CLOUD"), "RUNNING", True),
        (("ALLOCATED", "CLOUD"), "CONFIGURING", True),
        (("ALLOCATED", "CLOUD", "POWERING_UP"), "CONFIGURING", False),
        (("DOWN", "CLOUD"), "RUNNING", False),
    ],
)
def test_f02_a_machine_that_came_late_is_not_ended_under_its_job(
    rig: Rig, node: tuple[str, ...], job: str, *, spared: bool
) -> None:
    """Seen on a busy machine: the hand-over had its turn a minute after ResumeTimeout."""
    rig.hand_over("resume_fail", "burst[1-2]")
    rig.look([make_node("burst1", *node)], [make_queued(7, job, queue="burst", nodes="burst1")])
    rig.provision.act_on_handovers()
    assert rig.fleet.of("suspend") == [("burst2",) if spared else ("burst1", "burst2")]
    assert rig.cloud.boot_failures == (1 if spared else 2)
    assert ("burst1" in states_told(rig.slurm)) is not spared
    assert rig.waiting == 0


def test_a_failed_boot_counts_once_however_often_slurmctld_must_be_told(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise RetryLater("slurmctld is away", code="slurm.away")

    rig.hand_over("resume_fail", "burst1")
    with monkeypatch.context() as patch:
        patch.setattr(rig.slurm, "update_node", away)
        for _ in range(12):
            with pytest.raises(RetryLater):
                rig.provision.act_on_handovers()
    rig.provision.act_on_handovers()
    assert rig.waiting == 0
    assert rig.cloud.boot_failures == 1
    rig.hand_over("resume_fail", "burst1")
    rig.provision.act_on_handovers()
    assert rig.cloud.boot_failures == 2


def test_an_instance_that_ends_in_its_boot_counts_once_however_often_slurmctld_must_be_told(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise RetryLater("slurmctld is away", code="slurm.away")

    rig.fleet.listed = [make_instance("burst1", state="terminated", state_reason="Server.InternalError")]
    monkeypatch.setattr(rig.slurm, "update_node", away)
    for _ in range(4):
        rig.look([make_node("burst1", "ALLOCATED", "POWERING_UP", "NOT_RESPONDING")])
        rig.reconcile.read_instances()
        with contextlib.suppress(RetryLater):
            rig.reconcile.give_up_lost()
        rig.hands.pass_by(20.0)
    assert (rig.cloud.boot_failures, rig.reconcile.nodes_lost) == (1, 0)


def test_a_node_whose_failure_slurmctld_has_forgotten_is_not_held_up(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen at a takeover: the backup's state was older, and the node powered up for another job."""

    def refuse(*_: object, **__: object) -> None:
        raise RetryLater("Invalid node state specified", code="slurm.command_failed")

    monkeypatch.setattr(rig.slurm, "update_node", refuse)
    rig.hand_over("resume_fail", "burst1")
    for states in (("DOWN", "POWERED_DOWN"), ("DOWN", "POWERED_DOWN")):
        with pytest.raises(RetryLater):
            rig.provision.act_on_handovers()
        rig.hands.pass_by(1.0)
        rig.look([make_node("burst1", *states)])
    rig.hands.pass_by(1.0)
    rig.look([make_node("burst1", "ALLOCATED", "POWERING_UP")])
    rig.provision.act_on_handovers()
    assert rig.waiting == 0
    assert rig.cloud.boot_failures == 1


def test_f18_ten_failed_boots_protect_and_one_good_boot_ends_it(rig: Rig) -> None:
    for _ in range(5):
        rig.hand_over("resume_fail", "burst[1-2]")
    rig.provision.act_on_handovers()
    assert "10 cloud nodes in a row" in rig.cloud.protected
    rig.hand_over("resume", "burst3")
    rig.provision.act_on_handovers()
    rig.hands.pass_by(40.0)
    rig.look([make_node("burst3", "ALLOCATED")])
    rig.provision.watch_boots()
    assert rig.cloud.protected == ""


def test_boot_times_are_learned(rig: Rig) -> None:
    for node, seconds in (("burst1", 60.0), ("burst2", 80.0), ("burst3", 100.0)):
        rig.hand_over("resume", node)
        rig.provision.act_on_handovers()
        rig.look([make_node(node, "MIXED", "POWERING_UP")])
        rig.provision.watch_boots()
        rig.hands.pass_by(seconds)
        rig.look([make_node(node, "MIXED")])
        rig.provision.watch_boots()
    assert rig.cloud.boot_seconds == 100.0  # four of five boots are not longer
    assert rig.cloud.boot_times()[POOL.key].median_seconds == 80.0


@pytest.mark.parametrize("jump", [-600.0, 600.0])
def test_f32_a_boot_is_as_long_as_it_was_whatever_the_clock_says(rig: Rig, jump: float) -> None:
    for node in ("burst1", "burst2", "burst3"):
        rig.hand_over("resume", node)
        rig.provision.act_on_handovers()
        rig.hands.wall += jump
        rig.hands.pass_by(60.0)
        rig.look([make_node(node, "MIXED")])
        rig.provision.watch_boots()
    assert rig.cloud.boot_seconds == 60.0
