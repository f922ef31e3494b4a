"""A job that may not be requeued outlives a node that does not come, and may again not be requeued then."""

from __future__ import annotations

import errno
from pathlib import Path
from unittest.mock import Mock

import pytest

from advisor.files.state_file import StateFile
from advisor.model.errors import RetryLater, TellAdmin
from advisor.model.snapshot import Partition, QueuedJob
from tests.service.cloud.rig import EMPTY_POOL, Rig, comment
from tests.service.doubles import make_instance, make_node, make_queued, states_told

RESUME_SECONDS = 600


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    rig = Rig(tmp_path)
    burst = Partition(name="burst", is_up=True, nodes="", total_processors=8, resume_seconds=RESUME_SECONDS)
    monkeypatch.setattr(rig.slurm, "partitions", lambda: (burst,))
    rig.slurm.told.clear()
    return rig


def shown(rig: Rig, state: str, *, requeue: bool = False, since: float = 0.0, job_id: int = 7) -> QueuedJob:
    return make_queued(
        job_id, state, admin_comment=comment(), queue="burst", requeue=requeue,
        nodes="" if state == "PENDING" else "burst1", start_time=rig.hands.wall - since,
    )  # fmt: skip


def pass_by(rig: Rig, seconds: float, job: QueuedJob, *, node: str = "IDLE") -> None:
    rig.hands.pass_by(seconds)
    rig.look([make_node("burst1", node)], jobs=[job])
    for step in rig.provision.unbegun.steps():
        step.run()


@pytest.mark.parametrize(("boots", "is_kept"), [(200.0, False), (320.0, True)])
def test_a_job_whose_node_does_not_boot_is_kept_before_slurmctld_gives_it_up(
    rig: Rig, boots: float, *, is_kept: bool
) -> None:
    pass_by(rig, 5.0, shown(rig, "CONFIGURING", since=boots))
    assert rig.slurm.told == ([("job", (7,), {"requeue": "1"})] if is_kept else [])
    pass_by(rig, 5.0, shown(rig, "CONFIGURING", since=boots))
    assert len(rig.slurm.told) == is_kept


def test_a_job_is_kept_once_its_node_takes_much_longer_than_others(rig: Rig) -> None:
    """A control process that dies then, and only then, leaves slurmctld a job that it requeues."""
    for _ in range(3):
        rig.cloud.booted(60.0)
    pass_by(rig, 5.0, shown(rig, "CONFIGURING", since=100.0))
    assert rig.slurm.told == []
    pass_by(rig, 5.0, shown(rig, "CONFIGURING", since=130.0))
    assert rig.slurm.told == [("job", (7,), {"requeue": "1"})]


@pytest.mark.parametrize(("boots", "is_kept"), [(200.0, False), (500.0, True)])
def test_the_time_of_a_node_goes_on_when_it_is_given_to_another_job(
    rig: Rig, boots: float, *, is_kept: bool
) -> None:
    pass_by(rig, 5.0, shown(rig, "CONFIGURING", requeue=True, job_id=6), node="ALLOCATED+CLOUD+POWERING_UP")
    pass_by(rig, boots, shown(rig, "CONFIGURING", since=5.0), node="ALLOCATED+CLOUD+POWERING_UP")
    assert rig.slurm.told == ([("job", (7,), {"requeue": "1"})] if is_kept else [])


@pytest.mark.parametrize(("state", "requeue"), [("RUNNING", False), ("CONFIGURING", True)])
def test_a_job_that_runs_or_may_be_requeued_is_left_alone(rig: Rig, state: str, *, requeue: bool) -> None:
    pass_by(rig, 5.0, shown(rig, state, requeue=requeue, since=500.0))
    assert rig.slurm.told == []


def test_a_job_that_runs_at_last_may_again_not_be_requeued(rig: Rig) -> None:
    pass_by(rig, 5.0, shown(rig, "CONFIGURING", since=500.0))
    pass_by(rig, 0.0, shown(rig, "RUNNING", requeue=True))  # a poll from before that was done
    pass_by(rig, 5.0, shown(rig, "PENDING", requeue=True))  # slurmctld tries other nodes
    pass_by(rig, 5.0, shown(rig, "CONFIGURING", requeue=True))
    rig.slurm.told.clear()
    pass_by(rig, 5.0, shown(rig, "RUNNING", requeue=True))
    pass_by(rig, 5.0, shown(rig, "RUNNING"))
    assert rig.slurm.told == [("job", (7,), {"requeue": "0"})]


@pytest.mark.parametrize("jump", [-600.0, 600.0])
def test_f32_a_job_that_runs_may_not_be_requeued_whatever_the_clock_says(rig: Rig, jump: float) -> None:
    """With the clock set back it could be requeued until the clock had caught up."""
    pass_by(rig, 5.0, shown(rig, "CONFIGURING", since=500.0))
    rig.hands.wall += jump
    pass_by(rig, 5.0, shown(rig, "RUNNING", requeue=True))
    assert rig.slurm.told[-1] == ("job", (7,), {"requeue": "0"})


def test_a_restart_does_not_leave_a_job_requeueable_for_ever(rig: Rig) -> None:
    pass_by(rig, 5.0, shown(rig, "CONFIGURING", since=500.0))
    rig.restart()
    rig.slurm.told.clear()
    pass_by(rig, 5.0, shown(rig, "CONFIGURING", requeue=True))
    assert rig.slurm.told == []
    pass_by(rig, 5.0, shown(rig, "RUNNING", requeue=True))
    assert rig.slurm.told == [("job", (7,), {"requeue": "0"})]
    rig.restart()
    pass_by(rig, 5.0, shown(rig, "RUNNING", requeue=True))  # by its user, meanwhile
    assert rig.slurm.told == [("job", (7,), {"requeue": "0"})]


def test_a_job_is_kept_after_a_restart_that_came_before_slurmctld_was_told(rig: Rig) -> None:
    rig.slurm.fail("never-arrives", call="update_job")
    with pytest.raises(RetryLater):
        pass_by(rig, 5.0, shown(rig, "CONFIGURING", since=500.0))
    assert rig.slurm.told == []
    rig.restart()
    pass_by(rig, 5.0, shown(rig, "CONFIGURING", since=505.0))
    assert rig.slurm.told == [("job", (7,), {"requeue": "1"})]


def test_a_full_disk_makes_no_job_requeueable_and_ends_none(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart nothing would say that its user wants it not to be requeued."""
    rig.fleet.refusals = {"burst1": EMPTY_POOL}
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.hands.wall += 1.0
    rig.look([make_node("burst1", "ALLOCATED", "POWERING_UP")], [shown(rig, "CONFIGURING")])
    with monkeypatch.context() as disk:
        disk.setattr(StateFile, "write", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(TellAdmin, match="Make room on the disk"):
            rig.provision.act_on_handovers()
    assert rig.slurm.told == []
    rig.provision.act_on_handovers()
    assert rig.slurm.told[0] == ("job", (7,), {"requeue": "1"})
    assert states_told(rig.slurm) == {"burst1": "POWER_DOWN_FORCE"}


@pytest.mark.parametrize(("reason", "failed_boots"), [("Server.SpotInstanceTermination", 0), ("", 1)])
def test_a_job_is_not_lost_with_an_instance_that_ends_while_it_boots(
    rig: Rig, reason: str, failed_boots: int
) -> None:
    rig.fleet.listed = [make_instance("burst1", state="terminated", state_reason=reason)]
    for _ in range(2):
        rig.look(
            [make_node("burst1", "ALLOCATED", "POWERING_UP", "NOT_RESPONDING")],
            [shown(rig, "CONFIGURING", since=20.0)],
        )
        rig.reconcile.read_instances()
        rig.reconcile.give_up_lost()
        rig.hands.pass_by(20.0)
    assert rig.slurm.told[0] == ("job", (7,), {"requeue": "1"})
    assert states_told(rig.slurm) == {"burst1": "POWER_DOWN_FORCE"}
    assert rig.cloud.boot_failures == failed_boots


def test_a_job_that_no_poll_has_shown_is_not_lost_with_a_launch_that_is_refused(rig: Rig) -> None:
    """The job started as it was submitted, and polls of Slurm take long."""
    rig.fleet.refusals = {"burst1": EMPTY_POOL}
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.provision.act_on_handovers()  # it waits for a poll
    rig.hands.pass_by(1.0)
    rig.look()
    rig.slurm.show([make_node("burst1", "ALLOCATED", "POWERING_UP")], [shown(rig, "CONFIGURING")])
    rig.provision.act_on_handovers()
    assert states_told(rig.slurm) == {"burst1": "POWER_DOWN_FORCE"}
    assert rig.slurm.told[0] == ("job", (7,), {"requeue": "1"})


def test_a_later_job_on_a_node_that_is_refused_is_not_lost_with_it(rig: Rig) -> None:
    """The node still booted for job 6 when slurmctld gave it to job 7: of that there is no hand-over."""
    rig.fleet.refusals = {"burst1": EMPTY_POOL}
    rig.hand_over("resume", "burst1", {6: "burst1"})
    rig.provision.act_on_handovers()  # it waits for a poll
    rig.hands.pass_by(5.0)
    rig.look(jobs=[shown(rig, "CONFIGURING")])
    rig.provision.act_on_handovers()
    assert states_told(rig.slurm) == {"burst1": "POWER_DOWN_FORCE"}
    assert rig.slurm.told[0] == ("job", (7,), {"requeue": "1"})
    rig.hands.wall += 5.0
    rig.look(jobs=[shown(rig, "PENDING", requeue=True)])
    rig.provision.return_jobs()
    assert rig.slurm.told[-1] == ("job", (7,), {"partition": "onprem", "starttime": "now", "requeue": "0"})


def test_f28_a_job_that_is_refused_does_not_end_the_others(rig: Rig) -> None:
    """The first one has ended since the last poll."""
    late = [shown(rig, "CONFIGURING", since=500.0, job_id=job_id) for job_id in (7, 8)]
    rig.hands.pass_by(5.0)
    rig.look([make_node("burst1", "IDLE")], jobs=late)
    rig.slurm.fail("never-arrives", call="update_job", times=1)
    with pytest.raises(RetryLater):
        rig.provision.unbegun.keep_jobs_of_late_nodes()
    assert rig.slurm.told == [("job", (8,), {"requeue": "1"})]


def test_f28_a_job_that_is_refused_leaves_no_other_requeueable(rig: Rig) -> None:
    for state in ("CONFIGURING", "RUNNING"):
        rig.hands.pass_by(5.0)
        is_running = state == "RUNNING"
        jobs = [shown(rig, state, since=500.0, requeue=is_running, job_id=job_id) for job_id in (7, 8)]
        rig.look([make_node("burst1", "IDLE")], jobs=jobs)
        if not is_running:
            rig.provision.unbegun.keep_jobs_of_late_nodes()
    rig.slurm.told.clear()
    rig.slurm.fail("never-arrives", call="update_job", times=1)
    with pytest.raises(RetryLater):
        rig.provision.unbegun.take_back()
    assert rig.slurm.told == [("job", (8,), {"requeue": "0"})]
    rig.provision.unbegun.take_back()
    assert rig.slurm.told[1:] == [("job", (7,), {"requeue": "0"})]
