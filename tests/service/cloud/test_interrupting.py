"""EC2 takes nodes back: no new job there, jobs warned as they asked, the next place a better one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from advisor.ec2.interruptions import Notice, NoticeKind, Received
from advisor.model import Capacity, Mode, Node
from advisor.model.errors import RetryLater
from advisor.model.settings import ClusterSettings, PromiseSettings, Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.interrupting import InterruptionLoop
from advisor.service.cloud.listening import NoticeLoop
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.cloud.reconciling import ReconcileLoop
from advisor.service.exchange.handover import HandoverFolder, decode
from advisor.service.observation.poll_view import SharedView
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.service.state.state_files import INTERRUPTIONS
from advisor.slurm.running_jobs import JobEnd
from advisor.testing.memory_slurm import MemoryJob, MemorySlurm
from tests.service.cloud.rig import comment
from tests.service.doubles import (
    FakeFleet,
    Hands,
    make_instance,
    make_look,
    make_node,
    make_queued,
    states_told,
)
from tests.service.site import make_cluster

TAKEN = {"state": "terminated", "state_reason": "Server.SpotInstanceTermination"}


class Source:
    """EC2's word, as a test wants it."""

    def __init__(self) -> None:
        self.has_queue = True
        self.messages: list[Received] = []
        self.requests: list[Notice] = []
        self.deleted: list[str] = []

    def receive(self) -> list[Received]:
        return list(self.messages)

    def delete(self, received: Sequence[Received]) -> None:
        self.deleted += [item.receipt for item in received]
        self.messages = []

    def poll(self) -> list[Notice]:
        return self.requests

    def says(self, kind: NoticeKind, instance_id: str) -> None:
        notice = Notice(kind=kind, instance_id=instance_id, time=0.0, source="queue")
        self.messages.append(Received(f"r{len(self.messages)}", notice))


class Rig:
    """The loops that have to do with interruptions; `restart` begins anew from the disk."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.hands, self.fleet, self.source = Hands(), FakeFleet(), Source()
        self.slurm = MemorySlurm(now=lambda: self.hands.wall)
        self.settings = Settings(
            cluster=ClusterSettings(default_mode=Mode.ACT), promise=PromiseSettings(enabled=True)
        )
        self.view = SharedView(self.hands.clock, 60.0)
        self.folder = HandoverFolder(folder / "handover")
        self.folder.prepare()
        self.restart()

    def restart(self) -> None:
        self.record = InterruptionRecord(INTERRUPTIONS.at(self.path))
        self.cloud = CloudRecord(self.path, self.hands.clock)
        parts: dict[str, Any] = {
            "fleet": self.fleet,
            "slurm": self.slurm,
            "view": self.view,
            "cloud": self.cloud,
            "clock": self.hands.clock,
            "interruptions": self.record,
        }
        self.context = context = CloudContext(settings=self.settings, **parts)
        self.provision = ProvisionLoop(context, folder=self.folder)
        self.reconcile = ReconcileLoop(context, resuming=tuple, boot_ended=self.provision.boot_ended)
        self.loop = InterruptionLoop(
            self.settings,
            instances=lambda: self.reconcile.last_listed,
            slurm=self.slurm,  # type: ignore[arg-type]
            jobs=self.slurm,
            view=self.view,
            record=self.record,
            clock=self.hands.clock,
            tries=context.spot_tries,
        )

        self.notices = NoticeLoop(
            source=self.source,
            instances=lambda: self.reconcile.last_listed,
            record=self.record,
            heard=lambda: None,
            clock=self.hands.clock,
        )

    def look(self, nodes: Sequence[Node] = (), jobs: Sequence[QueuedJob] = ()) -> None:
        self.slurm.show(nodes, jobs)
        self.view.update(make_look(self.hands.wall, nodes, jobs), make_cluster(time=self.hands.wall))

    def round(self) -> None:
        for step in (*self.reconcile.steps(), *self.notices.steps(), *self.loop.steps()):
            step.run()

    @property
    def warned(self) -> list[int]:
        return [ids[0] for verb, ids, _ in self.slurm.told if verb == "warn"]

    def fails_on_burst1(self, end: JobEnd) -> None:
        """Job 7 has ended on burst1."""
        self.slurm.jobs[7] = MemoryJob(
            job_id=7, seconds=60.0, submit_time=0.0, state=end.state, end_time=end.end_time,
            may_requeue=end.may_requeue, had=("burst1",),
        )  # fmt: skip

    def job_updates(self) -> list[dict[str, str]]:
        return [call[2] for call in self.slurm.told if call[0] == "job"]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.fleet.listed = [make_instance("burst1"), make_instance("burst2")]
    rig.look(
        [make_node("burst1", "MIXED"), make_node("burst2", "MIXED")],
        [make_queued(7, "RUNNING", nodes="burst1", queue="burst"), make_queued(8, "RUNNING", nodes="burst2")],
    )
    rig.round()
    return rig


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


@pytest.mark.parametrize("ended", ["EC2 has told its end", "we gave it up"])
def test_f07_what_was_said_of_a_node_before_it_was_powered_down_is_not_about_its_next_instance(
    rig: Rig, ended: str
) -> None:
    """The list is some seconds old: it has the former instance, alive, and not the next one."""
    rig.source.says(NoticeKind.REBALANCE, "i-burst1")
    rig.round()
    if ended.startswith("EC2"):
        rig.source.says(NoticeKind.ENDED, "i-burst1")
    else:
        message = {"v": 1, "op": "suspend", "id": f"{1:020d}-1-00000000", "time": rig.hands.wall}
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


def test_f25_a_failing_job_on_a_living_instance_is_no_interruption(rig: Rig) -> None:
    rig.look([make_node("burst1", "IDLE")], [make_queued(7, "FAILED", queue="burst")])
    rig.hands.pass_by(40.0)
    rig.round()
    assert rig.record.interruptions_of(7) == 0
    assert rig.slurm.told == []


def job_end(**changes: Any) -> JobEnd:
    values: dict[str, Any] = {"state": "FAILED", "end_time": 1_800_000_010.0, "may_requeue": True}
    return JobEnd(**(values | changes))


@pytest.mark.parametrize(
    ("end", "requeued"),
    [
        (job_end(), 1),
        (job_end(may_requeue=False), 0),
        (job_end(state="COMPLETED"), 0),
        (job_end(state="CANCELLED"), 0),
        (job_end(end_time=1_800_000_015.0 - 300.0), 0),
    ],
)
@pytest.mark.parametrize("how", [TAKEN, {"state": "stopped"}])
def test_f25_a_job_that_fails_with_its_machine_is_an_interrupted_one(
    rig: Rig, how: dict[str, str], end: JobEnd, requeued: int
) -> None:
    rig.hands.pass_by(15.0)
    rig.fleet.listed = [make_instance("burst1", **how), make_instance("burst2")]
    rig.look([make_node("burst1", "IDLE"), make_node("burst2", "MIXED")])
    rig.fails_on_burst1(end)
    rig.round()
    rig.round()
    assert [call for call in rig.slurm.told if call[0] == "requeue_ended"] == [
        ("requeue_ended", (7,), {})
    ] * requeued
    assert rig.record.totals.get("jobs_interrupted", 0) == requeued


def test_f25_a_job_whose_loss_is_counted_already_is_requeued_all_the_same(rig: Rig) -> None:
    rig.record.interrupted([7], "i-burst1")  # by the reconciler, which has powered its node down
    rig.hands.pass_by(15.0)
    rig.fleet.listed = [make_instance("burst1", **TAKEN), make_instance("burst2")]
    rig.look([make_node("burst1", "IDLE"), make_node("burst2", "MIXED")])
    rig.fails_on_burst1(job_end())
    rig.round()
    rig.round()
    assert [call for call in rig.slurm.told if call[0] == "requeue_ended"] == [("requeue_ended", (7,), {})]
    assert rig.record.interruptions_of(7) == 1


def test_f25_a_job_that_fails_by_itself_is_not_run_again_after_a_restart(rig: Rig) -> None:
    """EC2 took an instance of its node long ago; the next process hears of that and of the job at once."""
    rig.hands.pass_by(900.0)
    now = rig.hands.wall
    newer = make_instance("burst1", instance_id="i-newer", launch_time=now - 600.0)
    rig.fleet.listed = [make_instance("burst1", launch_time=now - 2000.0, **TAKEN), newer]
    rig.look([make_node("burst1", "IDLE")])
    rig.fails_on_burst1(job_end(end_time=now - 5.0))
    rig.restart()
    rig.round()
    rig.round()
    assert not [call for call in rig.slurm.told if call[0] == "requeue_ended"]
    assert rig.record.interruptions_of(7) == 0


def interrupt(rig: Rig, job_id: int, times: int) -> None:
    for number in range(times):
        rig.record.interrupted([job_id], f"i-{number}")
        rig.record.interrupted([job_id], f"i-{number}")


def test_f26_a_requeued_job_keeps_its_id_and_starts_at_once(rig: Rig) -> None:
    interrupt(rig, 7, 1)
    waiting = make_queued(7, reason="BeginTime", queue="burst")
    off = make_node("burst1", "IDLE", "POWERED_DOWN")
    rig.look([off], [waiting])
    rig.round()
    assert rig.job_updates() == [{"starttime": "now"}]
    # EC2 has no other node: the provision loop lets the job wait for capacity
    rig.look([off], [make_queued(7, "CONFIGURING", nodes="burst1", queue="burst")])
    rig.round()
    rig.look([off], [waiting])
    rig.round()
    assert rig.job_updates() == [{"starttime": "now"}]
    interrupt(rig, 7, 2)
    rig.round()
    assert [changes["starttime"] for changes in rig.job_updates()] == ["now"] * 2


@pytest.mark.parametrize("reason", ["launch failed requeued held", "launch_failed_requeued_held"])
@pytest.mark.parametrize("moved", [True, False])
def test_f20_a_job_of_ours_that_slurm_holds_after_a_failed_launch_goes_home(
    rig: Rig, reason: str, *, moved: bool
) -> None:
    """Seen after a slurmctld was killed: nobody had interrupted it."""
    ours = {"admin_comment": comment()} if moved else {}
    rig.look([make_node("burst2", "MIXED")], [make_queued(9, reason=reason, queue="burst", **ours)])
    rig.slurm.told.clear()
    for step in rig.loop.steps():
        step.run()
    assert [call for call in rig.slurm.told if call[0] == "release"] == [("release", (9,), {})] * moved
    assert len(rig.job_updates()) == moved


def test_f20_a_held_job_goes_home_without_the_constraint_that_names_nodes_of_the_cloud(rig: Rig) -> None:
    held = make_queued(
        9,
        reason="launch failed requeued held",
        queue="burst",
        admin_comment=comment(),
        features=("on-demand",),
    )
    rig.look([make_node("burst2", "MIXED")], [held])
    rig.loop.place_again()
    assert rig.job_updates() == [{"partition": "onprem", "features": ""}]


def test_a_job_with_checkpoints_goes_on_spot_again_while_that_leaves_time(rig: Rig) -> None:
    interrupt(rig, 7, 2)
    waiting = make_queued(
        7, queue="burst", comment="checkpoint=10min", admin_comment=comment(capacity=Capacity.SPOT)
    )
    rig.look([make_node("burst2", "MIXED")], [waiting])
    rig.round()
    assert rig.job_updates() == []
    late = dataclasses.replace(rig.context, leaves_time=lambda _queued: False)
    for context, capacity in ((rig.context, Capacity.SPOT), (late, Capacity.ON_DEMAND)):
        assert context.spot_choice().advised({"burst3": waiting}, ()) == {"burst3": capacity}
    assert (rig.context.spot_tries(waiting), late.spot_tries(waiting)) == (18, 0)
    other = make_queued(8, queue="burst", comment="checkpoint=10min")
    assert late.spot_tries(other) == 20  # it has lost nothing


def test_after_two_interruptions_the_next_place_is_stable(rig: Rig) -> None:
    interrupt(rig, 7, 2)
    waiting = make_queued(7, queue="burst", admin_comment=comment(capacity=Capacity.SPOT))
    rig.look([make_node("burst2", "MIXED"), make_node("burst3", "IDLE", "POWERING_UP")], [waiting])
    rig.slurm.jobs[7].excluded = "burst9"
    rig.round()
    rig.round()
    assert rig.job_updates() == [{"excnodelist": "burst9,burst[1-2]"}]  # what lives as spot, once
    rig.slurm.jobs[7].excluded = "burst9,burst[1-2]"
    rig.restart()
    rig.fleet.listed = [make_instance("burst2")]
    rig.round()
    assert rig.job_updates()[1:] == [{"excnodelist": "burst9,burst2"}]
    advised = rig.context.spot_choice().advised
    assert advised({"burst3": waiting}, ()) == {"burst3": Capacity.ON_DEMAND}
    other = make_queued(8, admin_comment=comment())
    assert advised({"burst3": other}, ()) == {"burst3": Capacity.SPOT}
    resume = {"jobs": [{"job_id": 7, "nodes": "burst3"}]}
    message = {
        "v": 1,
        "op": "resume",
        "id": f"{1:020d}-1-00000000",
        "time": rig.hands.wall,
        "nodes": "burst3",
    }
    line = json.dumps({**message, "resume_file": json.dumps(resume)}).encode() + b"\n"
    rig.folder.put(decode(line), line)
    rig.provision.act_on_handovers()
    assert rig.fleet.of("resume") == [(("burst3",), {"burst3": Capacity.ON_DEMAND})]


def test_after_one_interruption_a_promised_job_is_not_put_on_spot_again(rig: Rig) -> None:
    interrupt(rig, 7, 1)
    ours = {"queue": "burst", "admin_comment": comment(capacity=Capacity.SPOT)}
    promised = make_queued(7, comment="by=+3h", **ours)
    rig.look([make_node("burst2", "MIXED")], [promised])
    rig.round()
    assert rig.job_updates() == [{"excnodelist": "burst[1-2]"}]
    advised = rig.context.spot_choice().advised
    assert advised({"burst3": promised}, ()) == {"burst3": Capacity.ON_DEMAND}
    assert advised({"burst3": make_queued(7, **ours)}, ()) == {"burst3": Capacity.SPOT}


def test_f20_a_job_left_in_bad_constraints_is_brought_back(rig: Rig) -> None:
    interrupt(rig, 7, 1)
    stuck = make_queued(7, reason="BadConstraints", queue="burst", admin_comment=comment())
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN")], [stuck])
    rig.round()
    assert rig.job_updates() == [{"partition": "onprem"}]
    assert ("release", (7,), {}) in rig.slurm.told


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
