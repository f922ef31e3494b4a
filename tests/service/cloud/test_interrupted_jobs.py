"""Jobs whose nodes EC2 has taken: run again with their ids, and next on a better place or at home."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from advisor.ec2.interruptions import Notice, NoticeKind
from advisor.model.advice import Capacity
from advisor.model.errors import RetryLater
from advisor.model.snapshot import Reservation
from advisor.service.cloud.spot_choice import SpotChoice
from advisor.service.exchange.handover import decode
from advisor.slurm.running_jobs import JobEnd
from tests.service.cloud.rig import comment
from tests.service.cloud.spot_rig import TAKEN, Rig, rig
from tests.service.doubles import (
    make_instance,
    make_node,
    make_queued,
)
from tests.service.site import make_cluster

__all__ = ["rig"]


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


@pytest.mark.parametrize(("end_time", "requeued"), [(1_800_000_010.0, 1), (1_799_999_900.0, 0)])
@pytest.mark.parametrize("restarts", [False, True])
def test_f25_a_job_that_was_lost_while_control_was_away_is_requeued(
    rig: Rig, end_time: float, requeued: int, *, restarts: bool
) -> None:
    """EC2 says when it took the machine; the list of instances, read five minutes later, does not."""
    rig.hands.pass_by(300.0)
    if restarts:
        rig.restart()
    rig.fleet.listed = [make_instance("burst1", **TAKEN), make_instance("burst2")]
    rig.source.requests = [
        Notice(kind=NoticeKind.ENDED, instance_id="i-burst1", time=1_800_000_008.0, source="poll")
    ]
    rig.look([make_node("burst1", "IDLE"), make_node("burst2", "MIXED")])
    rig.fails_on_burst1(job_end(end_time=end_time))
    rig.round()
    rig.round()
    assert len([call for call in rig.slurm.told if call[0] == "requeue_ended"]) == requeued


def interrupt(rig: Rig, job_id: int, times: int) -> None:
    for number in range(times):
        rig.record.interrupted([job_id], f"i-{number}")
        rig.record.interrupted([job_id], f"i-{number}")


def test_f26_the_run_that_it_loses_is_not_its_next_place(rig: Rig) -> None:
    """The last poll is older than the requeue: it shows the job where it was."""
    for leaves in (lambda: rig.record.interrupted([7], "i-burst1"), lambda: rig.record.leaves(7)):
        start = rig.hands.wall
        runs = make_queued(7, "RUNNING", queue="burst", nodes="burst1", start_time=start)
        rig.look([make_node("burst1", "MIXED")], [runs])
        leaves()
        rig.round()
        rig.look([make_node("burst1", "MIXED")], [make_queued(7, reason="BeginTime", queue="burst")])
        rig.round()
        assert rig.job_updates() == [{"starttime": "now"}]
        rig.slurm.told.clear()
        rig.look([make_node("burst1", "MIXED")], [dataclasses.replace(runs, start_time=start + 300.0)])
        rig.round()
        assert rig.record.to_place() == frozenset()


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


@pytest.mark.parametrize(
    "reason", ["launch failed requeued held", "launch_failed_requeued_held", "BadConstraints"]
)
@pytest.mark.parametrize("moved", [True, False])
def test_f20_a_job_of_ours_that_slurm_holds_after_a_failed_launch_goes_home(
    rig: Rig, reason: str, *, moved: bool
) -> None:
    """Seen after a slurmctld was killed, and without the hook where no cloud node is as the job asks for."""
    rig.fleet.listed = []
    ours = {"admin_comment": comment()} if moved else {}
    rig.look([make_node("burst2", "MIXED")], [make_queued(9, reason=reason, queue="burst", **ours)])
    rig.slurm.told.clear()
    for step in rig.loop.steps():
        step.run()
    assert [call for call in rig.slurm.told if call[0] == "release"] == [("release", (9,), {})] * moved
    assert len(rig.job_updates()) == moved


@pytest.mark.parametrize(("together", "rounds"), [(1, 10), (3, 8)])
def test_nodes_that_boot_and_start_no_job_are_good_boots_of_none(
    rig: Rig, together: int, rounds: int
) -> None:
    """A Prolog fails on each, or the image does not know the users: every moved job would pay for a boot."""
    rig.fleet.listed = []
    for number in range(rounds):
        assert rig.cloud.protected == ""
        for _ in range(together):
            rig.cloud.booted(60.0)
        for node in range(together):
            held = make_queued(
                10 * number + node,
                reason="launch failed requeued held",
                queue="burst",
                admin_comment=comment(),
            )
            rig.look([make_node("burst2", "MIXED")], [held])
            for _ in range(3):  # until the next poll
                rig.loop.place_again()
    assert "could not start their jobs" in rig.cloud.protected


def test_a_job_that_could_not_be_started_now_and_then_stops_nothing(rig: Rig) -> None:
    for number in range(40):
        rig.cloud.booted(60.0)
        rig.cloud.launch_failed()
        for _ in range(2):
            rig.cloud.booted(60.0)
        assert rig.cloud.protected == "", number


def test_f20_a_moved_job_that_no_node_here_is_fit_for_is_released_here_once(rig: Rig) -> None:
    def told(*queues: str, reason: str = "BadConstraints") -> list[str]:
        rig.slurm.told.clear()
        jobs = [make_queued(9, reason=reason, queue=queue, admin_comment=comment()) for queue in queues]
        rig.look(jobs=jobs)
        rig.loop.place_again()
        return [call[0] for call in rig.slurm.told]

    assert told("burst") == ["job", "release"]
    assert told("onprem") == ["release"]  # it may be the old hold still
    assert [told("onprem", reason="None"), told("onprem"), told("onprem")] == [[], [], []]
    assert [told(), told("onprem")] == [[], ["release"]]


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("QOSMaxWallDurationPerJobLimit", [{"partition": "onprem"}]),
        ("QOSMinCpuNotSatisfied", [{"partition": "onprem"}]),
        ("PartitionDown", [{"partition": "onprem"}]),
        ("QOSGrpCpuLimit", []),
        ("Resources", []),
    ],
)
def test_a_moved_job_that_a_limit_never_lets_start_there_goes_home(
    rig: Rig, reason: str, changes: list[dict[str, str]]
) -> None:
    """The burst partition's QOS may have changed, or the job."""
    for queue, ours in (("burst", {"admin_comment": comment()}), ("onprem", {"admin_comment": comment()})):
        rig.look(jobs=[make_queued(9, reason=reason, queue=queue, **ours)])
        rig.loop.place_again()
    rig.look(jobs=[make_queued(9, reason=reason, queue="burst")])  # its user has sent it there
    rig.loop.place_again()
    assert rig.job_updates() == changes
    assert [call for call in rig.slurm.told if call[0] == "release"] == []


@pytest.mark.parametrize(
    ("begin", "name", "nodes", "goes"),
    [
        (-60.0, "maintenance", 1, True),
        (600.0, "maintenance", 1, True),
        (7200.0, "maintenance", 1, False),
        (-60.0, "advisor_portfolio", 1, False),
        (600.0, "course", 1, False),
        (600.0, "course", 2, True),
    ],
)
def test_a_moved_job_to_which_a_reservation_leaves_too_few_nodes_goes_home(
    rig: Rig, begin: float, name: str, nodes: int, *, goes: bool
) -> None:
    """Reservations are known a minute late, and may be made after the move."""
    there = tuple(make_node(f"burst{n}", "IDLE", "POWERED_DOWN", processors=4) for n in (1, 2, 3))
    kept = {"burst1", "burst2", "" if name == "course" else "burst3"} - {""}
    asked = {"processors": 4 * nodes, "requested_time": 3600.0}
    reason = "ReqNodeNotAvail, May be reserved for other job"
    rig.look(there, [make_queued(9, reason=reason, queue="burst", admin_comment=comment(), **asked)])
    now = rig.hands.wall
    taken = Reservation(name=name, begin=now + begin, end=now + 1e6, nodes=frozenset(kept))
    found = dataclasses.replace(rig.view.fresh(), reservations=(taken,))
    rig.view.update(found, make_cluster(time=now))
    rig.loop.place_again()
    assert rig.job_updates() == ([{"partition": "onprem"}] if goes else [])


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
        assert SpotChoice(context).advised({"burst3": waiting}, ()) == {"burst3": capacity}
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
    advised = SpotChoice(rig.context).advised
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


def test_a_job_is_kept_off_spot_once_slurmctld_answers_again(rig: Rig) -> None:
    interrupt(rig, 7, 2)
    waiting = make_queued(7, queue="burst", admin_comment=comment(capacity=Capacity.SPOT))
    rig.look([make_node("burst2", "MIXED")], [waiting])
    rig.slurm.fail("never-arrives", call="update_job")
    with pytest.raises(RetryLater):
        rig.round()
    rig.round()
    assert [update["excnodelist"] for update in rig.job_updates()] == ["burst[1-2]"]


def test_after_one_interruption_a_promised_job_is_not_put_on_spot_again(rig: Rig) -> None:
    interrupt(rig, 7, 1)
    ours = {"queue": "burst", "admin_comment": comment(capacity=Capacity.SPOT)}
    promised = make_queued(7, comment="by=+3h", **ours)
    rig.look([make_node("burst2", "MIXED")], [promised])
    rig.round()
    assert rig.job_updates() == [{"excnodelist": "burst[1-2]"}]
    advised = SpotChoice(rig.context).advised
    assert advised({"burst3": promised}, ()) == {"burst3": Capacity.ON_DEMAND}
    assert advised({"burst3": make_queued(7, **ours)}, ()) == {"burst3": Capacity.SPOT}


def test_f20_a_job_left_in_bad_constraints_is_brought_back(rig: Rig) -> None:
    interrupt(rig, 7, 1)
    stuck = make_queued(7, reason="BadConstraints", queue="burst", admin_comment=comment())
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN")], [stuck])
    rig.round()
    assert rig.job_updates() == [{"partition": "onprem"}]
    assert ("release", (7,), {}) in rig.slurm.told
