"""A job that no hook has advised: as it was submitted, and how it may be changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.model.job import Job
from advisor.model.snapshot import Partition, SubmittedJob
from advisor.service.exchange.protocol import AdviseReply
from advisor.service.waiting.unadvised import (
    as_submitted,
    changes_here,
    changes_of,
    obstacle,
    raised_minutes,
)
from tests.service.doubles import make_queued
from tests.service.site import NOW

HOME = Partition(name="onprem", is_up=True, nodes="", total_processors=64, is_default=True, max_minutes=600)
BURST = Partition(name="burst", is_up=True, nodes="", total_processors=64, max_minutes=90)
OTHER = Partition(name="other", is_up=True, nodes="", total_processors=64)
PARTITIONS = {each.name: each for each in (HOME, BURST, OTHER)}


def submitted(**fields: Any) -> SubmittedJob:
    own = {name: fields.pop(name) for name in ("nice", "prefer", "eligible_time") if name in fields}
    return SubmittedJob(queued=make_queued(7, **({"requested_time": 600.0} | fields)), **own)


def described(one: SubmittedJob, **changed: Any) -> Job:
    return as_submitted(
        one,
        PARTITIONS,
        default_memory=changed.pop("default_memory", (None, None)),
        now=changed.pop("now", NOW),
    )


@pytest.mark.parametrize(
    ("fields", "field", "value"),
    [
        ({}, "explicit_partition", False),
        ({"queue": "other"}, "explicit_partition", True),
        ({"partitions": ("onprem", "other")}, "explicit_partition", True),
        ({"partitions": ("unknown",)}, "explicit_partition", True),
        ({}, "explicit_time_limit", True),
        ({"requested_time": 36_000.0}, "explicit_time_limit", False),
        ({"requested_time": None}, "explicit_time_limit", False),
        ({"reason": "JobHeldUser"}, "deferred", True),
        ({"eligible_time": NOW + 60.0}, "deferred", True),
        ({"eligible_time": NOW - 1.0}, "deferred", False),
        ({"dependency": "afterok:5(unfulfilled),after:6(unfulfilled)"}, "dependency", "afterok:5,after:6"),
        ({"memory_mb": 200}, "memory_mb", None),
        ({"memory_mb": 300}, "memory_mb", 300),
        ({"memory_mb_per_node": 0}, "memory_mb_per_node", 0),  # --mem=0
        ({"prefer": "a&b"}, "prefer", ("a", "b")),
    ],
)
def test_what_equals_a_default_was_not_asked_for(fields: dict[str, Any], field: str, value: object) -> None:
    job = described(submitted(**fields), default_memory=(None, 100))
    assert getattr(job, field) == value


def test_all_memory_of_a_node_is_not_asked_for_where_each_job_gets_it() -> None:
    assert described(submitted(memory_mb_per_node=0)).memory_mb_per_node is None


def test_a_partitions_own_default_memory_comes_first() -> None:
    home = replace(HOME, default_memory=(700, None))
    one = submitted(memory_mb=700, memory_mb_per_node=700)
    job = as_submitted(one, {"onprem": home}, default_memory=(None, 350), now=NOW)
    assert (job.memory_mb, job.memory_mb_per_node) == (None, None)


@pytest.mark.parametrize(
    ("job", "partition", "fits"),
    [
        ({}, {}, True),
        ({}, {"is_up": False}, False),
        ({"requested_time": 7200.0, "explicit_time_limit": True}, {"max_minutes": 60}, False),
        ({"requested_time": 7200.0}, {"max_minutes": 60}, False),  # slurmctld: PartitionTimeLimit, for ever
        ({"requested_time": None}, {"max_minutes": 60}, False),  # --time=UNLIMITED, the same
        ({"requested_time": None}, {"max_minutes": None}, True),
        ({"processors": 65}, {}, False),
        ({"nodes": 3}, {"max_nodes": 2}, False),
        ({"nodes": 3}, {"total_nodes": 2}, False),
        ({"most_nodes": 3}, {"max_nodes": 2}, False),  # slurmctld: PartitionNodeLimit, for ever
        ({"most_nodes": 3}, {"total_nodes": 2}, True),
        ({"nodes": 1, "most_nodes": 3}, {"min_nodes": 2}, True),
        ({"nodes": 1}, {"min_nodes": 2}, False),
        ({"memory_mb": 900}, {"max_memory_per_processor_mb": 400}, False),
        ({"memory_mb": 900, "memory_mb_per_node": 900}, {"max_memory_per_node_mb": 800}, False),
        ({"account": "Chem"}, {"allowed": {"accounts": frozenset({"chem"})}}, True),
        ({"account": None}, {"allowed": {"accounts": frozenset({"chem"})}}, False),
        ({"qos": "long"}, {"denied": {"qos": frozenset({"long"})}}, False),
        ({"qos": "short"}, {"denied": {"qos": frozenset({"long"})}}, True),
        ({"qos": None}, {"denied": {"qos": frozenset({"long"})}}, False),
    ],
)
def test_a_job_is_not_moved_where_it_would_not_start(
    job: dict[str, Any], partition: dict[str, Any], *, fits: bool
) -> None:
    asked = Job(job_id=7, submit_time=0.0, **({"processors": 2, "requested_time": 3600.0} | job))
    assert (obstacle(asked, replace(BURST, **partition)) == "") is fits


def test_a_partition_that_is_not_there_takes_no_job() -> None:
    assert obstacle(Job(job_id=7, submit_time=0.0, processors=1), None)


def test_limits_are_raised_to_the_partitions_own_and_never_lowered() -> None:
    reply = AdviseReply(v=1, seq=1, partition="burst", time_limit=120)
    assert raised_minutes(reply.time_limit, 3600.0, BURST) == 90
    assert raised_minutes(reply.time_limit, 3600.0, OTHER) == 120
    assert raised_minutes(reply.time_limit, 7200.0, OTHER) is None
    assert raised_minutes(reply.time_limit, None, OTHER) is None


def test_a_users_preference_stays_and_forbids_what_it_would_replace() -> None:
    prefers = AdviseReply(v=1, seq=1, partition="burst", prefer="spot")
    requires = AdviseReply(v=1, seq=1, partition="burst", features="on-demand")
    common: dict[str, Any] = {"asked_seconds": None, "partition": BURST}
    assert changes_of(prefers, prefer="fast", **common) == {"partition": "burst", "admincomment": ""}
    assert changes_of(requires, prefer="fast", **common) is None
    assert (changes_of(requires, prefer="", **common) or {})["features"] == "on-demand"


def test_a_users_own_nice_value_stays() -> None:
    reply = AdviseReply(v=1, seq=1, admin_comment="{}", site_factor=500, nice=40)
    assert changes_here(reply, nice=0) == {"admincomment": "{}", "sitefactor": "500", "nice": "40"}
    assert changes_here(reply, nice=3) == {"admincomment": "{}", "sitefactor": "500"}
