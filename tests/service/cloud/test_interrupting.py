"""EC2 takes nodes back: no new job there, jobs warned as they asked, the next place a better one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.ec2.interruptions import Notice, NoticeKind
from advisor.model.errors import RetryLater
from advisor.service.exchange.handover import decode
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.service.state.state_files import INTERRUPTIONS
from tests.full_disk import room_for
from tests.service.cloud.spot_rig import TAKEN, Rig, rig
from tests.service.doubles import (
    make_instance,
    make_node,
    make_queued,
    states_told,
)

__all__ = ["rig"]


def test_f22_a_warning_empties_the_node_and_signals_its_jobs_once(rig: Rig) -> None:
    rig.slurm.jobs[7].signal = "USR1"
    rig.source.says(NoticeKind.INTERRUPTION, "i-burst1")
    rig.round()
    assert states_told(rig.slurm) == {"burst1": "POWER_DOWN_ASAP"}
    assert rig.warned == [7]
    assert rig.source.deleted == ["r0"]
    rig.source.says(NoticeKind.INTERRUPTION, "i-burst1")  # messages come more than once
    rig.restart()
    rig.round()
    assert rig.warned == [7]


def test_f22_a_rebalance_recommendation_empties_the_node_and_disturbs_nobody(rig: Rig) -> None:
    rig.source.says(NoticeKind.REBALANCE, "i-burst1")
    rig.round()
    assert states_told(rig.slurm) == {"burst1": "POWER_DOWN_ASAP"}
    assert rig.warned == []
    # marked so, it is up until its job has ended: its instance is nobody's orphan
    drained = make_node("burst1", "MIXED", "DRAIN", "POWER_DOWN")
    for _ in range(3):
        rig.look([drained], [make_queued(7, "RUNNING", nodes="burst1")])
        rig.round()
        rig.hands.pass_by(40.0)
    assert "i-burst1" not in {i for ids in rig.fleet.of("terminate") for i in ids}
    assert len([call for call in rig.slurm.told if call[2].get("state") == "POWER_DOWN_ASAP"]) == 1


def test_a_signal_that_fails_is_tried_again(rig: Rig) -> None:
    rig.source.says(NoticeKind.INTERRUPTION, "i-burst1")
    rig.slurm.fail("never-arrives", call="warn")
    with pytest.raises(RetryLater):
        rig.round()
    rig.round()
    assert rig.warned == [7]


def test_nodes_that_a_user_excludes_are_on_disk_before_ours_join_them(tmp_path: Path) -> None:
    """After a restart ours would be taken for the user's, and stay."""
    record = InterruptionRecord(INTERRUPTIONS.at(tmp_path))
    with room_for(10), pytest.raises(OSError, match="File too large"):
        record.own_exclusions(7, lambda _: "rack1-node3")
    assert record.own_exclusions(7, lambda _: "rack1-node4") == "rack1-node4", (
        "nothing was changed: asked again"
    )
    begun_anew = InterruptionRecord(INTERRUPTIONS.at(tmp_path))
    assert begun_anew.own_exclusions(7, lambda _: "burst1,rack1-node4") == "rack1-node4"


def test_warnings_about_somebody_elses_instance_touch_nothing(rig: Rig) -> None:
    rig.source.says(NoticeKind.INTERRUPTION, "i-foreign")
    rig.source.says(NoticeKind.ENDED, "i-foreign")
    rig.round()
    assert rig.slurm.told == []
    assert rig.warned == []
    assert rig.source.deleted == ["r0", "r1"]


def test_f07_a_warning_about_a_nodes_former_instance_is_not_about_the_node(rig: Rig) -> None:
    rig.fleet.listed = [make_instance("burst1", instance_id="i-old", **TAKEN), make_instance("burst1")]
    rig.source.says(NoticeKind.INTERRUPTION, "i-old")
    rig.round()
    rig.round()
    assert rig.slurm.told == []


def test_f10_of_two_instances_of_a_node_the_one_that_slurm_has_is_warned_about(rig: Rig) -> None:
    """The other one is ended as an orphan, which takes longer than EC2's two minutes."""
    other = make_instance("burst1", instance_id="i-other", private_ip="10.0.0.7")
    rig.fleet.listed = [make_instance("burst1"), other, make_instance("burst2")]
    rig.look(
        [make_node("burst1", "MIXED", address="10.0.0.9"), make_node("burst2", "MIXED")],
        [make_queued(7, "RUNNING", nodes="burst1")],
    )
    rig.source.says(NoticeKind.INTERRUPTION, "i-other")
    rig.round()
    assert (states_told(rig.slurm), rig.warned) == ({}, [])
    rig.source.says(NoticeKind.INTERRUPTION, "i-burst1")
    rig.round()
    assert (states_told(rig.slurm), rig.warned) == ({"burst1": "POWER_DOWN_ASAP"}, [7])


@pytest.mark.parametrize("ended", ["EC2 has told its end", "suspend", "resume_fail"])
def test_f07_what_was_said_of_a_node_before_it_was_powered_down_is_not_about_its_next_instance(
    rig: Rig, ended: str
) -> None:
    """The list is some seconds old: it has the former instance, alive, and not the next one."""
    rig.source.says(NoticeKind.REBALANCE, "i-burst1")
    rig.round()
    if ended.startswith("EC2"):
        rig.source.says(NoticeKind.ENDED, "i-burst1")
    else:
        message = {"v": 1, "op": ended, "id": f"{1:020d}-1-00000000", "time": rig.hands.wall}
        line = json.dumps({**message, "nodes": "burst1", "resume_file": None}).encode() + b"\n"
        rig.folder.put(decode(line), line)
        rig.provision.act_on_handovers()
        rig.restart()
        rig.reconcile.read_instances()
    rig.notices.receive()
    rig.slurm.told.clear()
    rig.look([make_node("burst1", "MIXED"), make_node("burst2", "MIXED")])
    for step in rig.loop.steps():
        step.run()
    assert rig.slurm.told == []


def test_f19_a_reclaimed_nodes_jobs_are_requeued_within_two_looks(rig: Rig) -> None:
    """Slurm itself would find out after SlurmdTimeout: five minutes."""
    rig.source.says(NoticeKind.INTERRUPTION, "i-burst1")
    rig.round()
    rig.slurm.told.clear()
    rig.fleet.listed = [make_instance("burst1", **TAKEN), make_instance("burst2")]
    for looked in range(2):
        assert states_told(rig.slurm) == {}, looked
        rig.hands.pass_by(15.0)
        rig.look(
            [make_node("burst1", "MIXED", "DRAIN", "POWER_DOWN"), make_node("burst2", "MIXED")],
            [make_queued(7, "RUNNING", nodes="burst1")],
        )
        rig.round()
    assert states_told(rig.slurm) == {"burst1": "POWER_DOWN_FORCE"}
    assert rig.record.interruptions_of(7) == 1
    assert rig.record.interruptions_of(8) == 0


def test_f24_a_lost_message_is_found_by_the_poll(rig: Rig) -> None:
    rig.source.has_queue = False
    rig.fleet.listed = [make_instance("burst1", **TAKEN), make_instance("burst2")]
    rig.source.requests = [Notice(kind=NoticeKind.ENDED, instance_id="i-burst1", time=0.0, source="poll")]
    for _ in range(4):
        rig.hands.pass_by(15.0)
        rig.look([make_node("burst1", "MIXED")], [make_queued(7, "RUNNING", nodes="burst1")])
        rig.round()
    assert states_told(rig.slurm)["burst1"] == "POWER_DOWN_FORCE"
    assert rig.record.interruptions_of(7) >= 1


def test_f24_the_end_of_an_instance_is_not_missed_before_the_first_listing(rig: Rig) -> None:
    rig.restart()
    rig.source.says(NoticeKind.ENDED, "i-burst1")
    rig.source.says(NoticeKind.ENDED, "i-foreign")
    rig.notices.receive()
    assert rig.source.deleted == []
    rig.reconcile.read_instances()
    rig.notices.receive()
    assert rig.source.deleted == ["r0", "r1"]
    assert rig.record.said("i-burst1", NoticeKind.ENDED)
    assert not rig.record.said("i-foreign", NoticeKind.ENDED)


def test_f06_a_node_with_a_new_instance_that_is_not_listed_yet_is_left_alone(rig: Rig) -> None:
    rig.source.says(NoticeKind.ENDED, "i-burst1")
    rig.notices.receive()
    assert rig.record.said("i-burst1", NoticeKind.ENDED)
    rig.fleet.listed = [make_instance("burst1", **TAKEN), make_instance("burst2")]
    rig.fleet.unlisted = frozenset({"burst1"})
    for _ in range(3):
        rig.hands.pass_by(15.0)
        rig.look([make_node("burst1", "MIXED"), make_node("burst2", "MIXED")])
        rig.reconcile.read_instances()
        rig.reconcile.give_up_lost()
    assert states_told(rig.slurm) == {}


def test_what_concerns_nobody_any_more_is_forgotten(rig: Rig) -> None:
    rig.source.says(NoticeKind.INTERRUPTION, "i-burst1")
    rig.round()
    rig.record.interrupted([7], "i-burst1")
    rig.look([make_node("burst2", "MIXED")], [])
    rig.round()
    assert rig.record.interruptions_of(7) == 1  # it may be on its way back into the queue
    rig.fleet.listed = [make_instance("burst2")]
    rig.look([make_node("burst2", "MIXED")], [])
    rig.hands.pass_by(10.0)
    rig.round()
    assert rig.record.said("i-burst1", NoticeKind.INTERRUPTION)  # may be too young to be listed
    rig.hands.pass_by(600.0)
    rig.look([make_node("burst2", "MIXED")], [])
    rig.round()
    assert rig.record.notices() == {}
    assert rig.record.interruptions_of(7) == 0
    rig.restart()
    assert rig.record.totals["interruption"] == 1


@pytest.mark.parametrize(
    "text",
    ["", "[]", "nonsense", '{"jobs": {"x": 1, "7": "y"}, "notices": [1], "warned": 3, "to_place": ["a"]}'],
)
def test_a_damaged_record_is_an_empty_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "interruptions.json"
    path.write_text(text)
    record = InterruptionRecord(INTERRUPTIONS.at(tmp_path))
    assert record.interruptions_of(7) == 0
    assert record.to_place() == frozenset()
