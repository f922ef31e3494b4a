"""How many waiting jobs a small job that is submitted now does not overtake."""

from __future__ import annotations

import json
from typing import Any

from advisor.model.settings import ClusterSettings, Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.control.small_first import rows_before_small
from advisor.service.price.queue_view import on_premise_queue
from tests.service.doubles import make_look, make_queued


def waits(job_id: int, priority: int, size: str = "large", mode: str = "act", **changes: Any) -> QueuedJob:
    advice = {"burst_advisor": 1, "id": str(job_id), "to": "on-premise", "mode": mode, "size": size}
    return make_queued(job_id, priority=priority, admin_comment=json.dumps(advice), **changes)


def rows(*jobs: QueuedJob, **size: Any) -> int | None:
    settings = Settings(size=size)
    (found,) = rows_before_small(on_premise_queue(make_look(1_800_000_000.0, jobs=jobs), settings), settings)
    return found


def test_small_jobs_that_wait_are_before_it_and_large_ones_behind() -> None:
    large = [waits(number, 1) for number in range(1, 4)]
    assert rows(*large) == 0
    assert rows(*large, waits(4, 1000, "small"), waits(5, 1000, "small")) == 2  # Slurm's 1 is a 0 here
    assert rows(*large, waits(4, 1000, "small", array_tasks=7)) == 7


def test_where_the_sites_own_priorities_are_larger_it_overtakes_a_part_of_them() -> None:
    jobs = [waits(1, 9000), waits(2, 5000), waits(3, 4500, "small"), waits(4, 4200), waits(5, 4000)]
    assert rows(*jobs) == 1 + 1  # 9,000 and 5,000 are no less than its 4,000 and 1,000


def test_none_is_overtaken() -> None:
    assert rows() is None
    assert rows(waits(1, 1000, "small")) is None
    assert rows(waits(1, 1), small_priority_offset=0) is None
    assert rows(waits(1, 1), enabled=False) is None
    assert rows(waits(1, 0)) is None  # its priority is not known


def test_a_job_called_small_in_shadow_mode_was_not_put_first() -> None:
    assert rows(waits(1, 1, "small", "shadow"), waits(2, 1000, "small")) == 1


def test_each_machine_has_its_own_jobs_before_a_small_one() -> None:
    settings = Settings(cluster=ClusterSettings(on_premise_partitions=("cpu", "gpu", "idle")))
    jobs = [
        waits(1, 1, queue="cpu"),
        waits(2, 1000, "small", queue="cpu"),
        waits(3, 3000, queue="gpu"),
        waits(4, 9000, queue="gpu"),
        waits(5, 4500, "small", queue="gpu"),
    ]
    queue = on_premise_queue(make_look(1_800_000_000.0, jobs=jobs), settings)
    assert rows_before_small(queue, settings) == [1, 2, None]
