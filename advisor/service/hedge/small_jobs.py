"""The safeguard of the size classes: a job that ran first as small and still runs at the divider is large.

The watch loop checks in each round. The job is requeued as large once, with the age of its first submission,
if it may be requeued; otherwise it is left and counted. A wrong "small" then costs at most the divider
(Zrigui et al. 2022, section 4.2).
"""

from __future__ import annotations

import math

import structlog

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.submission.rules import may_be_brought_back
from advisor.model.snapshot import RUNNING, QueuedJob
from advisor.service.hedge.watch_context import WatchContext
from advisor.service.running.isolating import for_each
from advisor.service.state.records import RequeuedSmallJobs
from advisor.service.state.state_files import SMALL_JOBS

log = structlog.get_logger(__name__)


class SmallJobs:
    """Requeues jobs that ran first as small and are not."""

    def __init__(self, context: WatchContext) -> None:
        self._settings, self._slurm = context.settings, context.slurm
        self._places, self._view, self._clock = context.places, context.view, context.clock
        self._ask_divider = context.divider
        self._state = SMALL_JOBS.at(context.settings.paths.state)
        self._dividers: dict[int, float] = {}
        self._requeued = self._state.read().requeued
        self._left: set[int] = set()
        self.requeued_jobs = 0
        self.left_jobs = 0

    def check(self) -> None:
        """Requeue jobs that have reached the divider; restore the age of requeued jobs."""
        if not (self._settings.size.enabled and self._settings.size.safeguard):
            return
        snapshot = self._view.fresh()
        first = [queued for queued in snapshot.jobs if self._was_put_first(queued)]
        overdue = [queued for queued in first if self._is_overdue(queued)]
        for_each(overdue, self._requeue)
        waiting = [q for q in snapshot.jobs if q.job.job_id in self._requeued and not q.holds_processors]
        for_each(waiting, self._place)
        self._forget({queued.job.job_id for queued in snapshot.jobs})

    def _was_put_first(self, queued: QueuedJob) -> bool:
        # a job that is on record but was not requeued because of a crash is still in its first run
        if queued.state != RUNNING or queued.restarts or queued.job.placeholder_for is not None:
            return False
        if queued.is_held:  # it would not start again
            return False
        advice = parse_admin_comment(queued.admin_comment)
        fixed = self._settings.cluster.on_premise_partitions
        return (
            advice is not None
            and (advice.size, advice.mode, advice.placement) == ("small", "act", "on-premise")
            and self._settings.size.small_priority_offset > 0
            and queued.partitions[0] in fixed
        )

    def _is_overdue(self, queued: QueuedJob) -> bool:
        if queued.start_time is None:
            return False
        return self._clock.wall() - queued.start_time >= self._divider(queued.job.job_id)

    def _divider(self, job_id: int) -> float:
        known = self._dividers.get(job_id)
        if known is None:
            known = self._ask_divider(job_id)
            if math.isnan(known):  # its advice is still on its way to the ledger
                return math.inf
            self._dividers[job_id] = known
        return known

    def _requeue(self, queued: QueuedJob) -> None:
        job_id = queued.job.job_id
        is_plain = not queued.is_array_or_task and may_be_brought_back(queued.job, self._settings)
        if not is_plain:
            if job_id not in self._left:
                self._left.add(job_id)
                self.left_jobs += 1
                log.info("small.left", job=job_id)
            return
        self._requeued[job_id] = queued.job.submit_time
        self._write()  # before the requeue, which overwrites the submission time
        view = self._places.view(job_id)
        if view is None or view.state != RUNNING or view.restarts:
            return  # the snapshot was older than an earlier requeue: the job is not requeued twice
        self._slurm.requeue([job_id])
        self.requeued_jobs += 1
        log.info("small.requeued_as_large", job=job_id, divider=self._divider(job_id))

    def _place(self, queued: QueuedJob) -> None:
        """Give a requeued job the priority of a large one: without the offset, with its age."""
        job_id = queued.job.job_id
        view = self._places.view(job_id)
        if view is None or not view.is_pending:
            return
        if view.reason == "BeginTime":  # Slurm makes a requeued job wait two minutes
            self._slurm.update_job([job_id], {"starttime": "now"})
        age = self._places.age_points(view.ages_since - self._requeued[job_id])
        self._places.raise_priority(job_id, by=age, to=None)

    def _forget(self, present: set[int]) -> None:
        gone = self._requeued.keys() - present
        if gone:
            self._requeued = {job: time for job, time in self._requeued.items() if job in present}
            self._write()
        self._dividers = {job: value for job, value in self._dividers.items() if job in present}
        self._left &= present

    def _write(self) -> None:
        self._state.write(RequeuedSmallJobs(requeued=self._requeued))
