"""The time limits of moved jobs, raised once they run in the cloud."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from advisor.model.advice import TimeLimit
from advisor.model.scheduler import Scheduler
from advisor.model.settings import Settings
from advisor.model.snapshot import CONFIGURING, RUNNING, ClusterSnapshot
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.service.running.feature import Feature, Poll
from advisor.service.running.isolating import for_each
from advisor.service.waiting.unadvised import raised_minutes

_HAS_BEGUN: Final = frozenset({RUNNING, CONFIGURING})

log = structlog.get_logger(__name__)


class RaisingFeature(Feature):
    """Raises the limit of each moved job when it has begun in the burst partition.

    Not before: slurmctld holds a waiting job for ever, or refuses it, whose limit is above the MaxWall of its
    QOS or association, and cancels one that would end after its ``--deadline``. Nor ever where there is a
    deadline: slurmctld cancels the job once it is requeued. Once for each time in the cloud, as long as this
    process lives: a user who sets the first limit again means it.

    Args:
        has_deadline: Whether a job has a deadline; None: no job has.
    """

    def __init__(
        self, settings: Settings, slurm: Scheduler, has_deadline: Callable[[int], bool] | None = None
    ) -> None:
        self._burst = settings.cluster.burst_partition
        self._slurm = slurm
        self._has_deadline = has_deadline or (lambda _: False)
        self._done: set[int] = set()  # jobs whose limits are raised, or have no room below MaxTime

    def polled(self, poll: Poll) -> None:
        """See :class:`Feature`."""
        there = (queued for queued in poll.snapshot.jobs if self._burst in queued.partitions)
        self._done.intersection_update(queued.job.job_id for queued in there)
        due = dict(self._due(poll.snapshot))
        if not due:
            return
        burst = next((each for each in self._slurm.partitions() if each.name == self._burst), None)
        jobs_by_limit = defaultdict[int, list[int]](list)
        for job_id, limit in due.items():
            minutes = raised_minutes(math.ceil(limit.given_seconds / 60.0), limit.asked_seconds, burst)
            if minutes is None:
                self._done.add(job_id)
            else:
                jobs_by_limit[minutes].append(job_id)

        def raise_to(minutes: int) -> None:
            jobs = [job_id for job_id in jobs_by_limit[minutes] if not self._has_deadline(job_id)]
            if jobs:
                self._slurm.update_job(jobs, {"timelimit": str(minutes)})
                log.info("limits.raised", jobs=jobs, minutes=minutes)
            self._done.update(jobs_by_limit[minutes])

        for_each(jobs_by_limit, raise_to)

    def _due(self, snapshot: ClusterSnapshot) -> Iterator[tuple[int, TimeLimit]]:
        """Jobs that run with their users' limits, with that limit and the one advised."""
        for queued in snapshot.jobs:
            job_id = queued.job.job_id
            if queued.state not in _HAS_BEGUN or self._burst not in queued.partitions or job_id in self._done:
                continue
            moved = moved_by_us(queued)
            limit = moved.time_limit if moved is not None else None
            if limit is not None and queued.job.requested_time == limit.asked_seconds:
                yield job_id, limit
