"""A new job is not the last of the queue where Slurm ranks jobs by their users, QOS and partitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from advisor.model.job import ANYBODY, Job
from advisor.model.machine import Machine
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.submit.recent import QueueForecast, Submission
from advisor.service.submit.state_holder import profiles_of
from tests.service.site import make_snapshot

NOW = 1_800_000_000.0
HOUR = 3600.0
WAITING = 40
PRIORITIES = np.linspace(10_000.0, 100.0, WAITING)


def snapshot_of(*, before_small: int | None = None, **known: float) -> Snapshot:
    """A machine of one processor; its job and each of the 40 that wait run for an hour."""
    one = np.array([[1.0, NOW, HOUR, HOUR]])
    queue = SeenQueue.of(
        Machine(("cpu",), 1), one, np.array([[1.0, HOUR, HOUR]] * WAITING), priorities=PRIORITIES
    )
    queue = structs.replace(queue, before_small=before_small)
    priorities = {key.replace("|", "\n"): value for key, value in known.items()}
    return replace(make_snapshot(NOW), queues=(queue,), first_priorities=priorities)


def forecast_of(snapshot: Snapshot, small_offset: int = 0) -> QueueForecast:
    return QueueForecast(snapshot.queues, profiles_of(snapshot), snapshot.first_priorities, small_offset)


def job_of(user: str = "ann", **changes: str) -> Job:
    job = Job(job_id=0, submit_time=NOW, processors=1, user=user, queue="cpu", requested_time=HOUR)
    return structs.replace(job, **changes)


def hours(snapshot: Snapshot, job: Job, small_offset: int = 0, *, is_small: bool = False) -> float:
    wait = forecast_of(snapshot, small_offset).waits(job, NOW, is_small=is_small)[0]
    return round(wait / HOUR, 6)


@pytest.mark.parametrize(
    ("priority", "rows"),
    [(20_000.0, 0), (10_000.0, 5), (8_999.0, 5), (8_000.0, 10), (5_200.0, 20), (4_000.0, 40), (1.0, 40)],
)
def test_it_waits_for_the_jobs_that_are_before_it(priority: float, rows: int) -> None:
    """The queue is known at an eighth, a quarter, a half of its rows and at its end; the next one counts."""
    assert hours(snapshot_of(**{"ann|cpu": priority}), job_of()) == 1.0 + rows


def test_a_few_rows_of_many_are_not_an_eighth_of_them() -> None:
    one = np.array([[1.0, NOW, HOUR, HOUR]])
    queue = SeenQueue.of(
        Machine(("cpu",), 1),
        one,
        np.array([[1.0, HOUR, HOUR]] * 640),
        priorities=np.linspace(10_000.0, 100.0, 640),
    )
    known = replace(make_snapshot(NOW), queues=(queue,), first_priorities={"ann\ncpu": 9_950.0})
    assert hours(known, job_of()) == 11.0


def test_account_and_qos_count_where_they_are_said() -> None:
    known = snapshot_of(**{"ann|cpu": 1.0, "ann|cpu|chem|urgent": 20_000.0})
    assert hours(known, job_of(account="chem", qos="urgent")) == 1.0
    assert hours(known, job_of(account="chem", qos="normal")) == 41.0
    assert hours(known, job_of()) == 41.0


def test_a_user_who_is_not_known_is_placed_as_most_are_or_last() -> None:
    assert hours(snapshot_of(**{"ann|cpu": 20_000.0, ANYBODY: 5_200.0}), job_of("bob")) == 21.0
    assert hours(snapshot_of(**{"ann|cpu": 20_000.0}), job_of("bob")) == 41.0
    assert hours(snapshot_of(), job_of()) == 41.0


def test_a_small_job_goes_before_those_that_its_offset_overtakes() -> None:
    known = snapshot_of(**{"ann|cpu": 1.0}, before_small=3)
    assert hours(known, job_of(), 5_200, is_small=True) == 21.0
    assert hours(known, job_of("bob"), 5_200, is_small=True) == 4.0
    assert hours(known, job_of("bob"), 5_200) == 41.0


def test_a_job_that_stays_delays_those_behind_it_alone() -> None:
    snapshot = snapshot_of(**{"ann|cpu": 5_200.0, "bob|cpu": 20_000.0})
    forecast = forecast_of(snapshot)
    ann, bob = job_of(), job_of("bob")
    stays = Submission(time=NOW, processors=1, requested_seconds=HOUR, queue="cpu", keys=ann.priority_keys)
    forecast.join(stays)
    assert forecast.waits(ann, NOW)[0] == 22 * HOUR
    assert forecast.waits(bob, NOW)[0] == HOUR
    forecast.join(structs.replace(stays, keys=bob.priority_keys))
    assert forecast.waits(bob, NOW)[0] == 2 * HOUR
    assert forecast.waits(ann, NOW)[0] == 23 * HOUR
    assert forecast_of(snapshot).waits(ann, NOW)[0] == 21 * HOUR  # the snapshot's own are as they were


def test_very_short_and_very_long_queues_are_known_at_their_ends_alone() -> None:
    snapshot = snapshot_of(**{"ann|cpu": 20_000.0})
    short = structs.replace(snapshot.queues[0], waiting=np.array([[1.0, HOUR, HOUR]] * 3).tobytes())
    assert len(profiles_of(replace(snapshot, queues=(short,)))[0].levels) == 1
    assert len(profiles_of(snapshot)[0].levels) == 5
    assert len(profiles_of(replace(snapshot, first_priorities={}))[0].levels) == 1


@pytest.mark.parametrize(("before_small", "levels"), [(None, 1), (2000, 1), (1980, 1), (1960, 2), (0, 2)])
def test_a_few_rows_behind_a_small_job_are_no_level_of_their_own(
    before_small: int | None, levels: int
) -> None:
    """Of 12,000 rows each level takes seconds of every snapshot."""
    one, many = np.array([[1.0, NOW, HOUR, HOUR]]), np.array([[1.0, HOUR, HOUR]] * 2000)
    queue = structs.replace(SeenQueue.of(Machine(("cpu",), 1), one, many), before_small=before_small)
    (found,) = profiles_of(replace(make_snapshot(NOW), queues=(queue,)))
    assert len(found.levels) == levels
