"""Which job each node is for that slurmctld wants to be resumed.

A job that starts as soon as it is submitted is younger than our last look at Slurm, and so is the task that
slurmctld has just split from an array. What it was advised is not known then: launched at once, all its nodes
would be on-demand, the only option that is right for every job, however cheap the advised one is. A boot
takes a minute or more and a look comes every few seconds: the hand-over waits for it.
"""

from __future__ import annotations

from typing import Final

import structlog

from advisor.model.errors import RetryLater
from advisor.service.exchange.handover import HandOver
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.slurm.protocol import QueuedJob

log = structlog.get_logger(__name__)

_PATIENCE_SECONDS: Final = 20.0
"""Some looks of the default period, should one fail; slurmctld gives a node up after a minute or more."""


class ResumedJobs:
    """Finds the jobs of hand-overs in what was last seen of Slurm.

    Parameters
    ----------
    view : SharedView
        What was seen.
    clock : Clock
        Time.
    """

    def __init__(self, view: SharedView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._first_asked: dict[str, float] = {}  # hand-over: monotonic seconds

    def of(self, hand_over: HandOver) -> dict[str, QueuedJob] | None:
        """The job each node is for, as far as Slurm has said and has been seen.

        Returns
        -------
        dict of node to QueuedJob, or None
            None: some have not been seen yet, and the next look will show them. It is not waited for long:
            while Slurm is not to be seen, nodes are launched without.
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
        # what a look that began later does not show has left the queue
        if len(found) == len(hand_over.jobs) or seen_at > hand_over.time or not self._may_wait(hand_over):
            return found
        return None

    def done(self, hand_over: HandOver) -> None:
        """It has been acted upon."""
        self._first_asked.pop(hand_over.identity, None)

    def _may_wait(self, hand_over: HandOver) -> bool:
        """Whether a look is still worth waiting for; counted from when we first heard, not by its clock."""
        now = self._clock.monotonic()
        first = self._first_asked.setdefault(hand_over.identity, now)
        if first == now:
            log.info("handover.waits_for_a_look", nodes=list(hand_over.nodes))
        return now - first < _PATIENCE_SECONDS
