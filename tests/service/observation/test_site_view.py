"""From Slurm's queue to the state a submission meets."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.model.job import PLACEHOLDER_COMMENT
from advisor.model.settings import Settings
from advisor.service.observation.site_view import StateLog, cluster_state
from tests.service.doubles import make_look, make_node, make_queued
from tests.service.site import make_cluster

NOW = 1_800_000_000.0


def test_only_what_competes_on_premise_counts() -> None:
    nodes = [
        make_node("onprem1", "ALLOCATED"),
        make_node("onprem2"),
        make_node("onprem3", "DOWN"),
        make_node("onprem4", "IDLE", "DRAIN"),
        make_node("burst1", "ALLOCATED"),
    ]
    jobs = [
        make_queued(1, "RUNNING", start_time=NOW - 60.0, requested_time=100.0),
        make_queued(2, "COMPLETING", start_time=NOW - 10.0, requested_time=10.0, processors=1),
        make_queued(3, requested_time=50.0),
        make_queued(4, requested_time=10.0, array_tasks=10, processors=1),
        make_queued(5, reason="JobHeldUser"),
        make_queued(6, reason="Dependency"),
        make_queued(7, "RUNNING", queue="burst", start_time=NOW - 5.0),
        make_queued(8, "COMPLETED", start_time=NOW - 500.0),
        make_queued(9, "LEVITATING"),
        make_queued(
            10, "SUSPENDED", start_time=NOW - 60.0, requested_time=100.0
        ),  # others get its processors
    ]
    state = cluster_state(make_look(NOW, nodes, jobs), Settings())
    assert state.total_processors == 8
    assert state.free_processors == 8 - 3
    assert state.running_jobs == 2
    assert state.queue_size == 11
    assert state.queued_work_core_seconds == 2 * 50.0 + 10 * 10.0
    assert state.remaining_work_core_seconds == 2 * 40.0
    assert state.time == NOW


def test_a_job_and_its_placeholder_wait_once() -> None:
    """A placeholder stands for a job that is in the cloud; when that waits here again, it counts itself."""
    placeholder = make_queued(8, name="place-of-7", comment=PLACEHOLDER_COMMENT)
    sizes = [
        cluster_state(make_look(NOW, [make_node("onprem1")], jobs), Settings()).queue_size
        for jobs in (
            [make_queued(7, "RUNNING", queue="burst", start_time=NOW), placeholder],
            [make_queued(7), placeholder],
            [placeholder],
        )
    ]
    assert sizes == [1, 1, 1]


@pytest.mark.parametrize(
    "forged",
    [
        {"user": "mallory", "comment": PLACEHOLDER_COMMENT},
        {"comment": None},
        {"comment": PLACEHOLDER_COMMENT, "id": 6},
    ],
)
def test_nobody_hides_a_job_by_its_name(forged: dict[str, Any]) -> None:
    own = make_queued(forged.pop("id", 8), name="place-of-7", **({"user": "eva"} | forged))
    state = cluster_state(
        make_look(NOW, [make_node("onprem1")], [make_queued(7, user="eva"), own]), Settings()
    )
    assert state.queue_size == 2


def test_the_state_a_submission_met() -> None:
    log = StateLog(max_gap_seconds=60.0)
    for time in (100.0, 105.0, 110.0):
        log.add(make_cluster(time=time))
    assert log.at(99.0) is None
    assert log.at(107.0) == make_cluster(time=105.0)
    assert log.at(160.0) == make_cluster(time=110.0)
    assert log.at(200.0) is None


def test_f32_a_clock_set_back_adds_nothing() -> None:
    log = StateLog(max_gap_seconds=60.0)
    log.add(make_cluster(time=100.0))
    log.add(make_cluster(time=50.0))
    assert log.at(60.0) is None
    assert log.at(101.0) == make_cluster(time=100.0)
