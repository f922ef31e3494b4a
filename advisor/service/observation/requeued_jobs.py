"""Jobs that return from the cloud to the on-premise queue, and since when they have waited.

Slurm gives the time of the requeue as their submission. A job that had a placeholder has waited since its
first submission; the wait of other requeued jobs is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.slurm.protocol import QueuedJob


class RequeuedJobs:
    """Remembers first submissions and placeholders' starts from one snapshot of Slurm to the next.

    Args:
        burst: Name of the burst partition.
    """

    def __init__(self, burst: str) -> None:
        self._burst = burst
        self._in_cloud: dict[int, float] = {}  # first submissions, epoch seconds, by job id
        self._submitted: dict[int, float] = {}  # the same, of jobs that came back and had a placeholder
        self._slots_seen: set[int] = set()  # jobs whose placeholder has started

    def update(
        self,
        jobs: Sequence[QueuedJob],
        placeholders: Mapping[int, Sequence[QueuedJob]],
        is_on_premise: Callable[[QueuedJob], bool],
    ) -> None:
        """Take in a snapshot's jobs, and its placeholders by the ids of the jobs whose place they keep."""
        self._slots_seen |= {
            job_id
            for job_id, found in placeholders.items()
            if any(placeholder.holds_processors for placeholder in found)
        }
        for queued in jobs:
            submitted = self._in_cloud.get(queued.job.job_id)
            if submitted is not None and queued.restarts and is_on_premise(queued):
                moved = moved_by_us(queued)
                if moved is not None and moved.hedge is not None:  # a hedged job has a placeholder
                    self._submitted[queued.job.job_id] = submitted
        self._in_cloud = {
            queued.job.job_id: self._in_cloud.get(queued.job.job_id, queued.job.submit_time)
            for queued in jobs
            if self._burst in queued.partitions
            and (queued.restarts == 0 or queued.job.job_id in self._in_cloud)
        }

    def submitted(self, queued: QueuedJob) -> float:
        """Since when a job has waited, epoch seconds."""
        return self._submitted.get(queued.job.job_id, queued.job.submit_time)

    def without_wait(self, job_ids: set[int]) -> set[int]:
        """Those of the jobs from whose start no wait is learned.

        Their wait is unknown, or it was learned when their placeholder started.
        """
        return job_ids - (self._submitted.keys() - self._slots_seen)

    def forget(self, job_id: int) -> None:
        """Drop a job that has ended, or that was requeued after a start on-premise."""
        self._submitted.pop(job_id, None)

    def forget_all_but(self, under_way: Container[int]) -> None:
        """Drop all jobs but those under way."""
        self._submitted = {job_id: time for job_id, time in self._submitted.items() if job_id in under_way}
        self._slots_seen &= self._submitted.keys() | self._in_cloud.keys()
