"""Jobs that have not begun and may not be requeued: slurmctld ends them with a node that does not come.

While Requeue is 1 it requeues such a job instead, which repeats nothing. So that is set before a node is
given up, by us or by slurmctld (ResumeTimeout), and taken back once the job runs. It is a loop of its own:
launches that take long, one after the other, are what makes a node late.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import structlog

from advisor.decide.submission.rules import requeueable
from advisor.model.cluster import NodePower
from advisor.model.snapshot import CONFIGURING, RUNNING, ClusterSnapshot, QueuedJob
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.observation.site_view import burst_nodes
from advisor.service.running.isolating import for_each
from advisor.service.running.loops import Step
from advisor.slurm.records import leading

log = structlog.get_logger(__name__)

_ASK_SECONDS: Final = 3600.0
_LATE_SHARE: Final = 0.5
_LATE_BOOTS: Final = 2.0
"""A node is late after this share of ResumeTimeout, or so many times the usual boot. The sooner that is, the
less often this process is dead from then until ResumeTimeout, and the job with it."""


class UnbegunJobs:
    """Keeps jobs alive that slurmctld would end before they have begun. Thread-safe."""

    name = "unbegun"

    def __init__(self, context: CloudContext) -> None:
        self._settings, self._slurm = context.settings, context.slurm
        self._view, self._clock, self._record = context.view, context.clock, context.cloud
        self.period_seconds = context.settings.loops.snapshot_seconds
        self._lock = threading.RLock()
        self._told: set[int] = set()  # jobs of the record that this process told Slurm of
        self._noted_at: dict[int, float] = {}  # job that this process put into the record: monotonic seconds
        self._booting: dict[str, float] = {}  # node: the first snapshot that shows it so, epoch seconds
        self._resume_seconds: float | None = None
        self._asked_at = -_ASK_SECONDS

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("late nodes", self.keep_jobs_of_late_nodes), Step("running jobs", self.take_back))

    def keep_alive(self, job_ids: Iterable[int]) -> None:
        """Let slurmctld requeue these jobs, until they run.

        Raises:
            AdvisorError: One of them could not be changed, or that not be written down: it is as it was.
        """
        with self._lock:
            wanted = set(job_ids) - self._told
            found = self._queue(wanted) if wanted else ()
            for_each([queued for queued in found if queued.job.job_id in wanted], self._keep_one)

    def _keep_one(self, queued: QueuedJob) -> None:
        job_id = queued.job.job_id
        if requeueable(queued.job, self._settings):
            return
        self._record.set_requeueable(job_id, self._clock.wall())
        self._noted_at[job_id] = self._clock.monotonic()
        self._slurm.update_job([job_id], {"requeue": "1"})
        self._told.add(job_id)
        log.info("job.requeued_unbegun", job=job_id)

    def _queue(self, wanted: AbstractSet[int]) -> Sequence[QueuedJob]:
        """The queue as last polled, or as it is now where a wanted job was submitted since."""
        found = self._view.fresh().jobs
        if wanted <= {queued.job.job_id for queued in found}:
            return found
        return self._slurm.snapshot(self._clock.wall()).jobs

    def on_nodes(self, nodes: Collection[str]) -> set[int]:
        """Ids of the jobs that have got these nodes and have not begun."""
        if not nodes:
            return set()  # without a look at the whole queue
        there = self._view.fresh().jobs_on
        return {
            queued.job.job_id
            for node in nodes
            for queued in there.get(node, ())
            if queued.state == CONFIGURING
        }

    def taken_back(self, job_id: int) -> dict[str, str]:
        """The change by which a job may again not be requeued; `forget` it then."""
        return {"requeue": "0"} if job_id in self._record.requeueable() else {}

    def forget(self, job_id: int) -> None:
        """Requeue has been taken back, or the job is gone."""
        with self._lock:
            self._told.discard(job_id)
            self._noted_at.pop(job_id, None)
            self._record.end_requeueable(job_id)

    def keep_jobs_of_late_nodes(self) -> None:
        """Keep the jobs alive whose nodes slurmctld will soon give up."""
        snapshot = self._view.fresh()
        longest = self._longest_boot()
        if longest is None:
            return
        boots = _LATE_BOOTS * (self._record.boot_seconds or math.inf)
        before = snapshot.time - min(_LATE_SHARE * longest, boots)
        late = {
            queued.job.job_id
            for queued in snapshot.jobs
            if queued.state == CONFIGURING
            and queued.job.queue == self._settings.cluster.burst_partition
            and queued.start_time is not None
            and queued.start_time < before
        }
        # a node that boots already may be given to another job, and its time goes on
        self.keep_alive(late | self.on_nodes(self._booting_since(snapshot, before)))

    def _booting_since(self, snapshot: ClusterSnapshot, before: float) -> list[str]:
        booting = (
            node.name for node in burst_nodes(snapshot, self._settings) if node.power is NodePower.POWERING_UP
        )
        self._booting = {node: self._booting.get(node, snapshot.time) for node in booting}
        return [node for node, since in self._booting.items() if since < before]

    def take_back(self) -> None:
        """Let the jobs that run by now again not be requeued."""
        if not self._record.requeueable():
            return
        snapshot, polled = self._view.fresh_poll()
        known = {queued.job.job_id: queued for queued in snapshot.jobs}

        def take_back_one(job_id: int) -> None:
            queued = known.get(job_id)
            is_older = polled <= self._noted_at.get(job_id, -math.inf)
            if is_older or (queued is not None and queued.state != RUNNING):
                return
            if queued is not None:
                self._slurm.update_job([job_id], self.taken_back(job_id))
            self.forget(job_id)

        with self._lock:
            for_each(self._record.requeueable(), take_back_one)

    def _longest_boot(self) -> float | None:
        """ResumeTimeout of the burst partition, seconds; None where the scheduler has none."""
        now = self._clock.monotonic()
        if now - self._asked_at >= _ASK_SECONDS:
            burst = self._settings.cluster.burst_partition
            own = (one.resume_seconds for one in self._slurm.partitions() if one.name == burst)
            known = next((one for one in own if one is not None), None)
            self._resume_seconds = known or leading(self._slurm.config().get("ResumeTimeout", ""))
            self._asked_at = now
        return self._resume_seconds
