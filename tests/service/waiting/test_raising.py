"""Limits of moved jobs, raised once the jobs have begun in the cloud."""

from __future__ import annotations

from typing import Any, cast

import pytest

from advisor.model.errors import RetryLater
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.model.snapshot import Partition, QueuedJob
from advisor.service.running.feature import Poll
from advisor.service.waiting.raising import RaisingFeature
from tests.service.doubles import make_look, make_queued
from tests.service.site import make_cluster

MOVED = '{"burst_advisor":1,"id":"a","to":"burst","mode":"act","why":"capacity.spot","limit":[3600,%d]}'


class Slurm:
    """Notes the limits that it is told; its burst partition has a MaxTime of 70 minutes."""

    def __init__(self) -> None:
        self.limits: dict[int, str] = {}
        self.dies = False

    def partitions(self) -> tuple[Partition, ...]:
        return (Partition(name="burst", is_up=True, nodes="", total_processors=4, max_minutes=70),)

    def update_job(self, job_ids: list[int], changes: dict[str, str]) -> None:
        if self.dies:
            raise RetryLater("no answer", code="slurm.timeout")
        self.limits |= dict.fromkeys(job_ids, changes["timelimit"])


def moved(job_id: int, state: str = "RUNNING", *, given: int = 3960, **changes: Any) -> QueuedJob:
    said = {"queue": "burst", "requested_time": 3600.0, "admin_comment": MOVED % given}
    return make_queued(job_id, state, **{**said, **changes})


def polled(feature: RaisingFeature, *jobs: QueuedJob) -> None:
    snapshot = make_look(time=100.0, jobs=jobs)
    feature.polled(Poll(snapshot=snapshot, cluster=make_cluster(), cloud=CloudState()))


def test_limits_are_raised_where_jobs_run_with_their_users_own() -> None:
    slurm = Slurm()
    jobs = (
        moved(1),
        moved(2, "CONFIGURING", given=3961),
        moved(3, given=7200),  # MaxTime
        moved(4, "PENDING"),
        moved(5, "COMPLETING"),
        moved(6, requested_time=3000.0),  # its user has changed it since
        moved(7, requested_time=3960.0),
        moved(8, queue="onprem"),
        moved(9, admin_comment="its user's"),
    )
    polled(RaisingFeature(Settings(), cast("Any", slurm)), *jobs)
    assert slurm.limits == {1: "66", 2: "67", 3: "70"}


def test_a_job_with_a_deadline_keeps_its_limit_with_which_it_may_begin_anew() -> None:
    slurm, asked = Slurm(), list[int]()

    def has_deadline(job_id: int) -> bool:
        asked.append(job_id)
        return job_id == 1

    feature = RaisingFeature(Settings(), cast("Any", slurm), has_deadline)
    for _ in range(2):
        polled(feature, moved(1), moved(2))
    assert slurm.limits == {2: "66"}
    assert asked == [1, 2]


def test_a_user_who_lowers_the_limit_again_is_obeyed() -> None:
    slurm = Slurm()
    feature = RaisingFeature(Settings(), cast("Any", slurm))
    slurm.dies = True
    with pytest.raises(RetryLater):
        polled(feature, moved(1))
    slurm.dies = False
    polled(feature, moved(1))
    assert slurm.limits.pop(1) == "66"
    polled(feature, moved(1))
    assert slurm.limits == {}
    polled(feature)  # it has ended
    polled(feature, moved(1))  # another job has its number
    assert slurm.limits == {1: "66"}


def test_a_job_that_has_come_home_and_goes_again_gets_its_longer_limit_again() -> None:
    slurm = Slurm()
    feature = RaisingFeature(Settings(), cast("Any", slurm))
    polled(feature, moved(1))
    assert slurm.limits.pop(1) == "66"
    polled(feature, moved(1, "PENDING", queue="onprem"))
    polled(feature, moved(1, "PENDING"))
    assert slurm.limits == {}
    polled(feature, moved(1))
    assert slurm.limits == {1: "66"}
