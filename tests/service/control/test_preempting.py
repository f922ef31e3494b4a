"""What jobs may take from running ones by preemption."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.rules import not_preempting
from advisor.model.settings import Settings
from advisor.model.site import CloudState, SiteState
from advisor.model.snapshot import Partition
from advisor.service.control.preempting import PreemptingFeature
from advisor.service.running.feature import Poll
from tests.decide.cases import make_job
from tests.service.doubles import Hands, make_look, make_node, make_queued
from tests.service.site import make_cluster

BY_PARTITION = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
BY_QOS = {"PreemptType": "preempt/qos", "PreemptMode": "GANG,SUSPEND", "PreemptExemptTime": "00:01:00"}


class Slurm:
    """Its configuration, and two partitions on the same nodes."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config

    def config(self) -> Mapping[str, str]:
        return self._config

    def partitions(self) -> tuple[Partition, ...]:
        onprem = Partition(name="onprem", is_up=True, nodes="", total_processors=8, tier=2)
        low = Partition(name="low", is_up=True, nodes="", total_processors=8, is_preempted=True)
        return (onprem, low, Partition(name="kept", is_up=True, nodes="", total_processors=8))


def qos() -> Mapping[str, frozenset[str]]:
    return {"high": frozenset({"normal"})}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({}, {}),
        ({**BY_PARTITION, "PreemptMode": "OFF"}, {}),
        (BY_PARTITION, {"onprem": {"": 5}}),  # 6 of job 1 and one that is idle, of which job 5 wants 2
        (BY_QOS, {"onprem": {"high": 8}}),  # of jobs 1 and 2; job 3 has run for less than a minute
    ],
)
def test_what_may_be_preempted(config: Mapping[str, str], found: dict[str, dict[str, int]]) -> None:
    there = ("onprem", "low", "kept")
    nodes = (
        make_node("onprem1", "MIXED", processors=10, partitions=there),
        make_node("onprem2", "DOWN", processors=10, partitions=there),
    )
    said = {"nodes": "onprem1", "qos": "normal"}
    jobs = (
        make_queued(1, "RUNNING", processors=6, queue="low", start_time=10.0, **said),
        make_queued(2, "RUNNING", processors=1, queue="onprem", start_time=10.0, **said),
        make_queued(3, "RUNNING", processors=2, queue="kept", start_time=90.0, **said),
        make_queued(4, "RUNNING", processors=9, queue="low", nodes="other1", qos="normal", start_time=10.0),
        make_queued(5, processors=2, queue="onprem", qos="normal", reason="Priority"),
    )
    feature = PreemptingFeature(Settings(), cast("Any", Slurm(config)), qos, Hands().clock)
    site = SiteState(time=100.0, cluster=None)
    assert feature.publish(site) == site
    poll = Poll(snapshot=make_look(100.0, nodes, jobs), cluster=make_cluster(), cloud=CloudState())
    feature.polled(poll)
    feature.read()
    assert feature.publish(site).preemptable == found
    may = [feature.may_preempt(make_job(qos=name), "onprem") for name in ("high", "normal")]
    assert may == [bool(found), "" in found.get("onprem", {})]


def test_a_job_stays_that_may_take_all_it_needs() -> None:
    there = {"onprem": {"high": 8, "": 4}}

    def why(**said: Any) -> str:
        return not_preempting(make_job(**{"queue": "onprem", **said}), there, Settings()).reason

    assert why(processors=8, qos="high") == Reason.PREEMPTS
    assert why(processors=4, qos="normal", queue=None) == Reason.PREEMPTS
    assert why(processors=5, qos="normal") == Reason.MAY_MOVE
    assert why(processors=4, array_tasks=2, qos=None) == Reason.MAY_MOVE
    assert why(processors=4, queue="other") == Reason.MAY_MOVE
