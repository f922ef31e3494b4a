"""What the earlier runs of jobs with checkpoints have kept, from polls and from the accounting.

The decision about the next slice of such a job asks for it.

A job whose user names the time between two checkpoints goes on from the last one when it is started again, so
less is left of it to do (`advisor.model.checkpoint_word`). Slurm does not say how long its earlier runs were,
nor when it was submitted first, from which a time such as ``by=+3h`` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from advisor.history.store import Attempt
from advisor.model.checkpoint_word import NO_CHECKPOINT
from advisor.model.deadline import deadline_of
from advisor.model.job import Job
from advisor.model.snapshot import RUNNING, QueuedJob


class _Known(NamedTuple):
    """A job as the last poll saw it.

    Attributes:
        kept: Seconds of on-premise run time that the runs before ``restarts`` have kept.
        submitted: When it was submitted first, epoch seconds.
        ran, slowdown: Seconds of the run that the last poll saw, and how many times longer it takes there.
    """

    restarts: int
    kept: float
    submitted: float
    ran: float = 0.0
    slowdown: float = 1.0


class WorkKept:
    """Adds up what jobs keep. Called by the poll's thread; :meth:`of` by any.

    Args:
        attempts: The ended runs of a job that was requeued, oldest first, as the accounting has them.
        slowdown: How many times longer a job runs in the cloud than on-premise.
    """

    def __init__(
        self,
        *,
        attempts: Callable[[int], Sequence[Attempt]],
        slowdown: Callable[[QueuedJob], float],
        burst_partition: str,
    ) -> None:
        self._attempts = attempts
        self._slowdown = slowdown
        self._burst = burst_partition
        self._known: dict[int, _Known] = {}

    def see(self, jobs: Sequence[QueuedJob], now: float) -> None:
        """Take in a poll; `now` in epoch seconds. Jobs that have left are forgotten."""
        seen = [queued for queued in jobs if _is_followed(queued.job)]
        self._known = {queued.job.job_id: self._next(queued, now) for queued in seen}

    def of(self, queued: QueuedJob, elapsed_seconds: float = 0.0) -> float:
        """What a job would go on from if it were started now, seconds of on-premise run time.

        Args:
            elapsed_seconds: The part of its present run that counts; 0: only earlier runs do.
        """
        known = self._known.get(queued.job.job_id)
        if known is None or known.restarts != queued.restarts:
            return 0.0
        # a job that has just been requeued may not be counted as restarted yet
        ran = elapsed_seconds if queued.state == RUNNING else known.ran
        return known.kept + _kept(queued, ran, known.slowdown)

    def submitted(self, queued: QueuedJob) -> float:
        """When a job was submitted first, epoch seconds: a requeue sets Slurm's time anew."""
        known = self._known.get(queued.job.job_id)
        return queued.job.submit_time if known is None else known.submitted

    def _next(self, queued: QueuedJob, now: float) -> _Known:
        known = self._known.get(queued.job.job_id)
        submitted = queued.job.submit_time if known is None else known.submitted
        if known is None:
            runs = self._attempts(queued.job.job_id)[-queued.restarts :] if queued.restarts else ()
            kept = self._kept_by(queued, runs)
            submitted = runs[0].first_submit_time if runs else submitted
        elif queued.restarts > known.restarts:
            kept = known.kept + _kept(queued, known.ran, known.slowdown)
        else:
            kept = known.kept
        if queued.state == RUNNING and queued.start_time is not None:
            slower = self._slowdown(queued) if self._burst in queued.partitions else 1.0
            return _Known(queued.restarts, kept, submitted, max(0.0, now - queued.start_time), slower)
        if known is not None and queued.restarts == known.restarts:
            return known
        return _Known(queued.restarts, kept, submitted)

    def _kept_by(self, queued: QueuedJob, runs: Sequence[Attempt]) -> float:
        """What the runs before this process have kept; those that the accounting does not have yet are 0."""
        slower = self._slowdown(queued)
        return sum(
            _kept(queued, run.end_time - run.start_time, slower if run.partition == self._burst else 1.0)
            for run in runs
            if run.start_time is not None
        )


def _is_followed(job: Job) -> bool:
    return bool(job.comment) and (
        job.at_risk_seconds < NO_CHECKPOINT or deadline_of(job.comment, job.submit_time, None) is not None
    )


def _kept(queued: QueuedJob, seconds: float, slowdown: float) -> float:
    """What a run of some seconds has kept at its end, seconds of on-premise run time."""
    return max(0.0, seconds - queued.job.at_risk_seconds) / slowdown
