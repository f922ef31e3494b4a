"""Which job each node is for that slurmctld resumes.

A job that starts as soon as it is submitted is in no snapshot of Slurm yet, nor is a task that slurmctld has
just split from an array. Its advice is unknown then: launched at once, all its nodes would be on-demand, the
only capacity that suits every job, whatever the advice says. A boot takes a minute or more and a poll comes
every few seconds, so the hand-over waits for the next poll.
"""

from __future__ import annotations

from typing import Final

import structlog

from advisor.model.errors import RetryLater
from advisor.model.snapshot import QueuedJob
from advisor.service.exchange.handover import HandOver
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock

log = structlog.get_logger(__name__)

_PATIENCE_SECONDS: Final = 20.0
"""Several polls at the default period, should one fail; slurmctld waits a minute or more for a node."""


class ResumedJobs:
    """Finds the jobs of hand-overs in the last snapshot of Slurm."""

    def __init__(self, view: SharedView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._first_asked: dict[str, float] = {}  # hand-over: monotonic seconds

    def of(self, hand_over: HandOver) -> dict[str, QueuedJob] | None:
        """The job of each node, by node; None while some are unknown and the next poll will show them.

        The wait is short: while Slurm does not answer, nodes are launched without their jobs' advice.
        """
        if not hand_over.jobs:
            return {}
        known: dict[int, QueuedJob] = {}
        seen_at = float("-inf")
        try:
            snapshot = self._view.fresh()
        except RetryLater:
            pass
        else:
            seen_at = snapshot.time
            for queued in snapshot.jobs:
                known[queued.job.job_id] = queued
                known.setdefault(queued.array_job_id, queued)
        found = {node: known[job] for node, job in hand_over.jobs.items() if job in known}
        # a job that a later poll does not show has left the queue
        if len(found) == len(hand_over.jobs) or seen_at > hand_over.time or not self._may_wait(hand_over):
            return found
        return None

    def done(self, hand_over: HandOver) -> None:
        """Forget a hand-over that has been acted upon."""
        self._first_asked.pop(hand_over.identity, None)

    def _may_wait(self, hand_over: HandOver) -> bool:
        """Whether to go on waiting; counted from when we first saw the hand-over, not by its own clock."""
        now = self._clock.monotonic()
        first = self._first_asked.setdefault(hand_over.identity, now)
        if first == now:
            log.info("handover.waits_for_a_poll", nodes=list(hand_over.nodes))
        return now - first < _PATIENCE_SECONDS
