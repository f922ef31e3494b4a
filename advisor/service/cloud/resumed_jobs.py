"""Find the job for which slurmctld resumes each node, and those whose nodes do not come.

The provision loop asks before a launch. A hand-over is the list of nodes that Slurm's ResumeProgram gives to
`advisor control`; it waits for the next poll where a job of it is in no snapshot yet. That is so for a job
that starts as soon as it is submitted, and for a task that slurmctld has just split from an array. Launched
without their advice, all nodes would be on-demand, the only capacity that suits every job; and a poll comes
within seconds, while a boot takes a minute or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from advisor.model.cluster import NodePower
from advisor.model.errors import RetryLater
from advisor.model.snapshot import CONFIGURING, QueuedJob
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.exchange.handover import HandOver
from advisor.service.observation.advice_of_jobs import limit_there, moved_by_us
from advisor.service.state.budget_records import limits_of

log = structlog.get_logger(__name__)

_PATIENCE_SECONDS: Final = 20.0
"""Longest wait of a hand-over: several polls at the default period, in case one fails.

slurmctld waits a minute or more for a node.
"""
_CLOCKS_SECONDS: Final = 30.0
"""By so much the clocks of two controllers may differ."""
_FAILED_BOOTS: Final = 2


class ResumedJobs:
    """Finds the jobs of hand-overs in the last snapshot of Slurm."""

    def __init__(self, context: CloudContext) -> None:
        self._has_payers = any(limit.payers for limit in limits_of(context.settings))
        self._view, self._record, self._clock = context.view, context.cloud, context.clock
        self._first_asked: dict[str, float] = {}  # hand-over: monotonic seconds
        self._asked_at: dict[str, float] = {}  # hand-over: when slurmctld asked, monotonic seconds
        self._newest: dict[str, str] = {}  # node: its newest hand-over
        self._job_of: dict[str, int] = {}  # node that boots: its job
        self._read_at = -math.inf  # when the hand-overs were read last, monotonic seconds
        self._knows_boots = False  # also those that an earlier process has begun

    def note_newest(self, waiting: Iterable[HandOver]) -> None:
        """Note which of the hand-overs that wait, oldest first, is the last word about each node."""
        waiting = tuple(waiting)
        for asked in waiting:
            if asked.operation == "resume" and asked.identity not in self._asked_at:
                self._note_boots(asked)
        self._newest = {node: asked.identity for asked in waiting for node in asked.nodes}
        self._asked_at = {asked.identity: self.asked_at(asked) for asked in waiting}
        self._read_at = self._clock.monotonic()
        if not self._knows_boots:
            self._recall_boots()

    def asked_at(self, hand_over: HandOver) -> float:
        """When slurmctld asked, monotonic seconds; later where the clock of its host may be behind ours.

        A poll is older or newer than that whatever the wall clock was set to between the two (docs/faults.md,
        F32). One that is taken for newer and is not would show the nodes powered down: they would never be
        launched.
        """
        age = max(0.0, self._clock.wall() - hand_over.time - _CLOCKS_SECONDS)
        asked = max(self._clock.monotonic() - age, self._read_at)  # else it had been read then
        return self._asked_at.setdefault(hand_over.identity, asked)

    def wanted(self, hand_over: HandOver) -> list[str]:
        """Its nodes, less those that slurmctld has given up: no job of the hand-over waits for them.

        A later hand-over of a node says so, or a later snapshot. By then the node may be another job's, whose
        account was not asked for money: that job's own hand-over asks it.
        """
        nodes = [
            node
            for node in hand_over.nodes
            if self._newest.get(node, hand_over.identity) == hand_over.identity
        ]
        try:
            snapshot, polled = self._view.fresh_poll()
        except RetryLater:
            return nodes
        if polled <= self.asked_at(hand_over):
            return nodes
        gone = {node.name for node in snapshot.nodes if node.is_cloud and node.power is NodePower.DOWN}
        return [node for node in nodes if node not in gone]

    def of(self, hand_over: HandOver) -> dict[str, QueuedJob] | None:
        """Node to job; None while some jobs are unknown and the next poll is expected to show them.

        The wait is limited: while Slurm does not answer, nodes are launched without their jobs' advice. Where
        accounts or users have budgets it is not: it is not known whose money the node would cost.
        """
        if not hand_over.jobs:
            return {}
        known: dict[int, QueuedJob] = {}
        try:
            snapshot, polled = self._view.fresh_poll()
        except RetryLater:
            polled = -math.inf
        else:
            for queued in snapshot.jobs:
                known[queued.job.job_id] = queued
                known.setdefault(queued.array_job_id, queued)
        found = {node: known[job] for node, job in hand_over.jobs.items() if job in known}
        # a job that a later poll does not show has left the queue
        is_all = len(found) == len(hand_over.jobs) or polled > self.asked_at(hand_over)
        return found if is_all or not self._may_wait(hand_over) else None

    def ends(self, nodes: Iterable[str], jobs: Mapping[str, QueuedJob], up_at: float) -> dict[str, float]:
        """When the last job of each node ends at the latest, epoch seconds.

        Args:
            nodes: The nodes; a node of a job without a time limit is left out of the result.
            jobs: Node to the job for which it is resumed.
            up_at: When the nodes are up, epoch seconds.
        """
        snapshot = self._view.if_fresh()
        on_node = {} if snapshot is None else snapshot.jobs_on
        found = {node: [*on_node.get(node, ()), *([jobs[node]] if node in jobs else [])] for node in nodes}
        longest = {
            node: max(limit_there(each.job, moved_by_us(each)) or math.inf for each in there)
            for node, there in found.items()
            if there
        }
        return {node: up_at + limit for node, limit in longest.items() if limit < math.inf}

    def _note_boots(self, hand_over: HandOver) -> None:
        """Note for which jobs the nodes of a hand-over boot."""
        for node in hand_over.nodes:
            self._job_of.pop(node, None)
        self._job_of.update(hand_over.jobs)

    def booted(self, node: str) -> None:
        """A node has come."""
        self._record.end_failed_boots([self._job_of.pop(node, -1)])

    def not_booted(self, nodes: Iterable[str]) -> list[int]:
        """The jobs of nodes that have not come that should go home: this was their second in a row.

        A first one may be one bad machine, and slurmctld tries another.
        """
        jobs = {self._job_of.pop(node) for node in nodes if node in self._job_of}
        home = [job for job in sorted(jobs) if self._record.job_not_booted(job) >= _FAILED_BOOTS]
        self._record.end_failed_boots({*home, *self._gone(self._record.failed_boots().keys() - jobs)})
        return home

    def _gone(self, job_ids: Iterable[int]) -> set[int]:
        """Those of the jobs that have left the queue."""
        snapshot = self._view.if_fresh()
        return set() if snapshot is None else set(job_ids) - {one.job.job_id for one in snapshot.jobs}

    def _recall_boots(self) -> None:
        """Find the jobs of the nodes that an earlier process has launched."""
        snapshot = self._view.if_fresh()
        if snapshot is None:
            return
        self._knows_boots = True
        for node, jobs in snapshot.jobs_on.items():
            for queued in jobs:
                if queued.state == CONFIGURING:
                    self._job_of.setdefault(node, queued.job.job_id)

    def done(self, hand_over: HandOver) -> None:
        """Forget a hand-over that has been acted upon."""
        self._first_asked.pop(hand_over.identity, None)

    def _may_wait(self, hand_over: HandOver) -> bool:
        """Whether to wait longer; the wait counts from the first call here, not from the hand-over's time."""
        now = self._clock.monotonic()
        first = self._first_asked.setdefault(hand_over.identity, now)
        if first == now:
            log.info("handover.waits_for_a_poll", nodes=list(hand_over.nodes))
        return self._has_payers or now - first < _PATIENCE_SECONDS
