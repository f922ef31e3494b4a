"""Jobs that come back from the cloud into the queue here, and since when they have waited.

Slurm says that they were submitted when they were requeued. While their place here was kept they have waited
since their first submission; of all others nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.slurm.protocol import QueuedJob


class CameBack:
    """Follows the looks at Slurm.

    Parameters
    ----------
    burst : str
        The cloud's partition.
    """

    def __init__(self, burst: str) -> None:
        self._burst = burst
        self._in_cloud: dict[int, float] = {}  # first submissions, epoch seconds
        self._submitted: dict[int, float] = {}
        self._turn_told: set[int] = set()

    def look(
        self,
        jobs: Sequence[QueuedJob],
        places: Mapping[int, Sequence[QueuedJob]],
        concerns: Callable[[QueuedJob], bool],
    ) -> None:
        """Take in what Slurm shows, its placeholders, and which jobs wait or run here."""
        self._turn_told |= {
            other for other, found in places.items() if any(place.holds_processors for place in found)
        }
        for queued in jobs:
            submitted = self._in_cloud.get(queued.job.job_id)
            if submitted is not None and queued.restarts and concerns(queued):
                moved = moved_by_us(queued)
                if moved is not None and moved.hedge is not None:
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

    def starts_anew(self, job_ids: set[int]) -> set[int]:
        """Which requeued jobs have their first wait behind them when they start, or one that nobody knows.

        A wait is told once: by the start of the placeholder where a look has shown it, else by the job's.
        """
        return job_ids - (self._submitted.keys() - self._turn_told)

    def forget(self, job_id: int) -> None:
        """A job has ended, or was requeued here."""
        self._submitted.pop(job_id, None)

    def forget_all_but(self, under_way: Container[int]) -> None:
        """Nothing more will be heard of the others."""
        self._submitted = {job_id: time for job_id, time in self._submitted.items() if job_id in under_way}
        self._turn_told &= self._submitted.keys() | self._in_cloud.keys()
