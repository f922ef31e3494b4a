"""Limits of the burst partition alone: slurmctld refuses a job there, or holds it for ever."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, cast

import pytest
from msgspec import structs

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.rules import within_limits
from advisor.model.burst_limits import BurstLimits
from advisor.model.site import SiteState
from advisor.model.snapshot import ClusterSnapshot, Partition
from advisor.service.control.admission import AdmissionFeature
from advisor.service.control.connections import Connections
from advisor.service.running.feature import Poll
from advisor.service.submit.recent import RecentSubmissions, Submission
from advisor.slurm.accounts import limits_in_partition
from tests.decide.cases import make_job, make_settings
from tests.service.doubles import Hands, make_queued
from tests.service.site import make_cluster

QOS = (
    "normal||||||||||||||||\n"
    "there|2-00:00:00|3-00:00:00|cpu=2|cpu=64,gres/gpu=2,mem=256G|cpu=16,mem=64G,node=2|billing=32|node=3|cpu=12"
    "|cpu=1440|mem=1000000M||node=600||9|3|5\n"
)


ASSOCIATIONS = "|chem|7|\nann|phys||\neve|chem|2|\neve|phys|5|1\n"


class Said:
    """sacctmgr, slurm.conf and the burst partition."""

    def __init__(self, enforce: str) -> None:
        self.enforce = enforce

    def text(self, *command: str) -> str:
        return QOS if command[3] == "qos" else ASSOCIATIONS

    def config(self) -> dict[str, str]:
        return {"ClusterName": "here", "AccountingStorageEnforce": self.enforce}

    def partitions(self) -> tuple[Partition, ...]:
        return (Partition(name="burst", is_up=True, nodes="b1", total_processors=4, qos="there"),)


OF_USERS = {"chem\nuser eve": 2.0, "phys\nuser eve": 1.0}


def limits_of(said: Any, qos: str) -> BurstLimits:
    return limits_in_partition(said, "here", "burst", qos, {})


def test_the_limits_of_a_partition() -> None:
    said = cast("Any", Said(""))
    assert limits_of(said, "there") == BurstLimits(
        max_seconds=172_800.0,
        min_processors=2.0,
        max_of_job=(16.0, 2.0, 65_536.0, 2.0),
        max_of_node=(12.0, math.inf, math.inf, math.inf),
        max_resource_seconds=(86_400.0, 36_000.0, 6e7, math.inf),
        max_jobs=9.0,
        max_jobs_of_user=3.0,
        max_jobs_of_account=5.0,
        max_jobs_of_association=OF_USERS,
    )
    for qos in ("", "normal", "gone"):
        assert limits_of(said, qos) == BurstLimits(max_jobs_of_association=OF_USERS)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({}, ""),
        ({"requested_time": 172_801.0}, "MaxWall"),
        ({"requested_time": None}, "MaxWall"),
        ({"processors": 1}, "MinTRES"),
        ({"processors": 17, "nodes": 2}, "MaxTRES"),
        ({"processors": 13}, "MaxTRESPerNode"),
        ({"processors": 13, "nodes": 2}, ""),
        ({"gres": "gpu:2", "nodes": 2}, "MaxTRES"),
        ({"requested_time": 21_601.0}, "MaxTRESMins"),
        ({"requested_time": 21_600.0}, ""),
        ({"requested_time": 18_001.0, "processors": 2, "memory_mb": 3_334}, "MaxTRESMins"),
        ({"nodes": 3}, "MaxTRES"),
        ({"memory_mb": 65_537}, "MaxTRES"),
        ({"memory_mb": 65_536}, ""),
        ({"user": "bob"}, "MaxSubmitJobsPerUser"),
        ({"user": "ann", "array_tasks": 3}, "MaxSubmitJobsPerUser"),
        ({"account": "chem"}, "MaxSubmitJobsPerAccount"),
        ({"user": "eve"}, "MaxSubmitJobs"),
        ({"user": "eve", "account": "bio", "array_tasks": 2}, ""),
        ({"user": None, "account": None, "array_tasks": 4}, "GrpSubmitJobs"),
    ],
)
def test_what_keeps_a_job_here(changes: dict[str, Any], limit: str) -> None:
    jobs = {"user ann": 1, "user bob": 3, "chem": 5, "phys\nuser eve": 1, "": 6}
    limits = structs.replace(limits_of(cast("Any", Said("")), "there"), jobs=jobs)
    asked = {"processors": 4, "requested_time": 60.0, "user": "ann", "account": "phys"} | changes
    answer = within_limits(make_job(**asked), limits)
    assert (answer.reason, answer.detail) == (Reason.BURST_LIMITS if limit else Reason.MAY_MOVE, limit)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({}, ""),
        ({"requested_time": 172_801.0}, "MaxWall of the partition short"),
        ({"processors": 17}, "MaxTRES of the partition short"),
        ({"requested_time": None}, ""),  # slurmctld gives it what MaxWall leaves
        ({"requested_time": 172_801.0, "qos": "long"}, ""),  # which may have OverPartQOS
        ({"requested_time": 172_801.0, "queue": "short,main"}, ""),
        ({"requested_time": 172_801.0, "queue": "main"}, ""),
    ],
)
def test_a_job_that_could_not_come_home_stays(changes: dict[str, Any], limit: str) -> None:
    """It is over a limit of the QOS of its own partition, by which Slurm would hold it here."""
    home = {"short": "there", "main": "normal"}
    limits = limits_in_partition(cast("Any", Said("")), "here", "burst", "", home)
    asked = {"processors": 4, "requested_time": 60.0, "queue": "short"} | changes
    answer = within_limits(make_job(**asked), limits)
    assert (answer.reason, answer.detail) == (Reason.BURST_LIMITS if limit else Reason.MAY_MOVE, limit)


@pytest.mark.parametrize("enforce", ["none", "associations,limits,qos"])
def test_jobs_there_count_and_those_moved_since(enforce: str) -> None:
    said = cast("Any", Said(enforce))
    connections = Connections(slurm=said, limits_in_partition=partial(limits_in_partition, said))
    feature = AdmissionFeature(make_settings(), connections, Hands().clock)
    assert feature.runners[0].run_once()
    queue = (
        make_queued(1, partitions=("burst",), user="ann", account="phys", array_tasks=2),
        make_queued(2, user="ann", account="phys"),
        make_queued(3, user="ann", account="phys", qos="there"),
    )
    snapshot = ClusterSnapshot(time=100.0, jobs=queue, nodes=())
    feature.polled(Poll(snapshot=snapshot, cluster=make_cluster(), cloud=cast("Any", None)))
    site = feature.publish(SiteState(time=100.0, cluster=None))
    if enforce == "none":
        assert site.burst_limits is None
        return
    counts = {"": 3, "phys": 3, "user ann": 3, "phys\nuser ann": 3}
    assert site.burst_limits is not None
    assert site.burst_limits.jobs == counts
    recent = RecentSubmissions()
    recent.rebase(site)
    kept_out, job = [], make_job(user="ann", account="phys", processors=4, requested_time=60.0)
    for more in (1, 2):
        limits = structs.replace(site.burst_limits, max_jobs_of_user=5.0, max_jobs_of_account=9.0)
        recent.rebase(structs.replace(site, burst_limits=limits))
        known = recent.state(102.0).burst_limits
        assert known is not None
        kept_out.append(known.keeps_out(job))
        recent.add(Submission(time=101.0, processors=1, on_premise=False, payers=job.payers, tasks=more))
    known = recent.state(102.0).burst_limits
    assert known is not None
    assert [*kept_out, known.keeps_out(job)] == ["", "", "MaxSubmitJobsPerUser"]
