"""A job that starts at once is resumed before it has been seen: its nodes wait for the next look."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.advice import Capacity
from tests.service.cloud.rig import Rig, comment
from tests.service.doubles import make_node, make_queued


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def resumed(rig: Rig) -> list[dict[str, Capacity]]:
    rig.provision.act_on_handovers()
    return [capacity_of for _, capacity_of in rig.fleet.of("resume")]


def test_a_job_younger_than_the_last_look_gets_what_it_was_advised(rig: Rig) -> None:
    rig.look()
    rig.hands.pass_by(0.2)
    rig.hand_over("resume", "burst[1-2]", {7: "burst[1-2]"})
    assert resumed(rig) == []
    assert rig.waiting == 1
    rig.hands.pass_by(0.3)
    rig.look(jobs=[make_queued(7, "CONFIGURING", admin_comment=comment(), queue="burst")])
    assert resumed(rig) == [{"burst1": Capacity.SPOT, "burst2": Capacity.SPOT}]
    assert rig.waiting == 0


def test_a_new_task_of_an_array_gets_what_the_array_was_advised(rig: Rig) -> None:
    """Its own number is as young as its start."""
    array = make_queued(7, admin_comment=comment(), queue="burst")
    rig.look(jobs=[array])
    rig.hands.pass_by(0.2)
    rig.hand_over("resume", "burst1", {9: "burst1"})
    assert resumed(rig) == []
    rig.hands.pass_by(0.3)
    rig.look(jobs=[array, make_queued(9, "CONFIGURING", admin_comment=comment(), queue="burst")])
    assert resumed(rig) == [{"burst1": Capacity.SPOT}]


def test_a_job_that_has_left_the_queue_is_not_waited_for(rig: Rig) -> None:
    rig.hand_over("resume", "burst1", {7: "burst1"})
    assert resumed(rig) == []
    rig.hands.pass_by(0.2)
    rig.look()
    assert resumed(rig) == [{}]


def test_nodes_for_no_job_in_particular_wait_for_nothing(rig: Rig) -> None:
    rig.hand_over("resume", "burst1")
    assert resumed(rig) == [{}]


@pytest.mark.parametrize("was_seen", [True, False])
def test_while_slurm_is_not_to_be_seen_it_is_not_waited_for_long(rig: Rig, *, was_seen: bool) -> None:
    if was_seen:
        rig.look()
    rig.hand_over("resume", "burst1", {7: "burst1"})
    assert resumed(rig) == []
    rig.hands.pass_by(19.0)
    assert resumed(rig) == []
    rig.hands.pass_by(2.0)
    assert resumed(rig) == [{}]
    assert rig.waiting == 0


def test_a_clock_that_is_set_back_makes_nobody_wait_for_ever(rig: Rig) -> None:
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.hands.wall -= 7200.0
    rig.look()
    assert resumed(rig) == []
    rig.hands.pass_by(21.0)
    rig.look()
    assert resumed(rig) == [{}]


def test_who_waits_holds_up_only_what_concerns_its_nodes(rig: Rig) -> None:
    rig.look(jobs=[make_queued(8, "CONFIGURING", admin_comment=comment(), queue="burst")])
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.hand_over("resume", "burst2", {8: "burst2"})
    assert resumed(rig) == [{"burst2": Capacity.SPOT}]
    assert rig.waiting == 1


def test_the_instance_of_a_node_that_waits_is_no_orphan(rig: Rig) -> None:
    """The last look still shows the node powered down."""
    rig.look()
    rig.hand_over("resume", "burst1", {7: "burst1"})
    assert resumed(rig) == []
    assert rig.fleet.of("asked_for") == [("burst1",)]


@pytest.mark.parametrize("jump", [-120.0, 120.0])
def test_f32_a_poll_from_before_a_clock_was_set_does_not_answer_for_a_hand_over(
    rig: Rig, jump: float
) -> None:
    """With the clock set back, the poll looked newer: the hand-over was dropped, or had no job."""
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN"), make_node("burst2", "IDLE", "POWERED_DOWN")])
    rig.hands.pass_by(0.2)
    rig.hands.wall += jump
    rig.hand_over("resume", "burst1")
    rig.hand_over("resume", "burst2", {7: "burst2"})
    assert resumed(rig) == [{}]
    rig.hands.pass_by(0.3)
    rig.look(
        [make_node("burst2", "ALLOCATED", "POWERING_UP")],
        [make_queued(7, "CONFIGURING", admin_comment=comment(), queue="burst")],
    )
    assert resumed(rig) == [{}, {"burst2": Capacity.SPOT}]
    assert [nodes for nodes, _ in rig.fleet.of("resume")] == [("burst1",), ("burst2",)]


@pytest.mark.parametrize(("behind", "is_first"), [(0.0, True), (5.0, True), (25.0, True), (3600.0, False)])
def test_f32_the_clock_of_the_other_controller_makes_no_poll_younger(
    rig: Rig, behind: float, *, is_first: bool
) -> None:
    """Of a hand-over that slurmctld's host leaves in the shared folder, the time is by its own clock.

    The folder that was read before did not have it.
    """
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN")])
    if not is_first:
        rig.hands.pass_by(1.0)
        assert resumed(rig) == []
    rig.hands.pass_by(3.0)
    rig.hands.wall -= behind
    rig.hand_over("resume", "burst1")
    rig.hands.wall += behind
    assert resumed(rig) == [{}]
    assert [nodes for nodes, _ in rig.fleet.of("resume")] == [("burst1",)]
