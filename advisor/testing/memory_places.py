"""Placeholders in memory: takes the place of `advisor.slurm.placeholders.Placeholders` before the loops."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.model.errors import RetryLater
from advisor.model.job import PLACEHOLDER_COMMENT, PLACEHOLDER_PREFIX, Job
from advisor.model.snapshot import JobView, QueuedJob
from advisor.model.submit_limits import SubmitKey
from advisor.slurm.placeholders import PlaceholderRequest
from advisor.testing.memory_slurm import MemorySlurm
from advisor.testing.memory_slurm_records import ENDED, MemoryJob


class MemoryPlaces:
    """Submits and watches placeholders in a `MemorySlurm`.

    A placeholder ages from its job's submission on, so that it needs no points of age; a job whose priority
    is set anew gets back the age that a requeue took.
    """

    knows_site_factors = True
    may_requeue_booting = True
    recalculation_seconds = 0.0

    def __init__(self, slurm: MemorySlurm) -> None:
        self._slurm = slurm

    def prepare(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

    def view(self, job_id: int) -> JobView | None:
        """See :class:`~advisor.slurm.placeholders.Placeholders`."""
        job = self._slurm.jobs.get(job_id)
        if job is None or job.state in ENDED:
            return None
        advice = parse_admin_comment(job.admin_comment)
        waits = job.state == "PENDING" and job.begin_time > self._slurm.now()
        return JobView(
            job_id=job_id,
            state=job.state,
            reason="BeginTime" if waits and not job.is_held else job.reason,
            partition=job.partition,
            priority=1000 + job.priority_offset,
            start_time=job.start_time,
            submit_time=job.queued_at,
            restarts=job.restarts,
            limit_seconds=job.limit_seconds,
            name=(job.described and job.described.name) or "",
            advice_id=None if advice is None else advice.advice_id,
            ages_since=job.ages_since,
            processors=job.size,
            nodes=job.nodes_wanted,
            processors_asked=job.size,
        )

    def killed(self, job_id: int) -> JobView | None:  # noqa: ARG002 -- this slurmctld forgets no requeue
        """See :class:`~advisor.slurm.placeholders.Placeholders`."""
        return None

    def submitted_by(self, users: Collection[int], partition: str) -> tuple[QueuedJob, ...]:  # noqa: ARG002
        """See :class:`~advisor.slurm.placeholders.Placeholders`; jobs of all users."""
        shown = self._slurm.snapshot(self._slurm.now()).jobs
        return tuple(queued for queued in shown if partition in queued.partitions)

    def place(self, placeholder: int, job_id: int) -> JobView | None:
        """See :class:`~advisor.slurm.placeholders.Placeholders`."""
        view = self.view(placeholder)
        return view if view is not None and view.name == f"{PLACEHOLDER_PREFIX}{job_id:d}" else None

    def reserve(self, request: PlaceholderRequest) -> int:
        """See :class:`~advisor.slurm.placeholders.Placeholders`."""
        own = self.view(request.job_id)
        if own is None or (request.advice_id and own.advice_id != request.advice_id):
            raise RetryLater(f"Slurm no longer has job {request.job_id}", code="hedge.job_gone")
        job = self._slurm.jobs[request.job_id]
        said = job.described or Job(job_id=0, submit_time=0.0, processors=job.size)
        limit = (
            job.limit_seconds
            if request.limit_seconds is None
            else 60.0 * math.ceil(request.limit_seconds / 60)
        )
        place: MemoryJob = self._slurm.submit(
            request.held_seconds,
            partition=request.partition,
            processors=job.size,
            nodes_wanted=job.nodes_wanted,
            limit_seconds=limit,
            ages_since=job.ages_since,
            described=Job(
                job_id=0,
                submit_time=self._slurm.now(),
                processors=job.size,
                user=said.user,
                group=said.group,
                account=said.account,
                name=f"{PLACEHOLDER_PREFIX}{request.job_id:d}",
                comment=PLACEHOLDER_COMMENT,
            ),
        )
        return place.job_id

    def cancel(self, placeholder: int, job_id: int) -> None:
        """See :class:`~advisor.slurm.placeholders.Placeholders`."""
        if self.place(placeholder, job_id) is not None:
            self._slurm.cancel([placeholder])

    def submits_left(
        self,
        users: Collection[str] = (),  # noqa: ARG002 -- no limits
        qos: Collection[str] = (),  # noqa: ARG002
    ) -> Mapping[SubmitKey, float]:
        """See :class:`~advisor.slurm.placeholders.Placeholders`."""
        return {}

    def raise_priority(self, job_id: int, *, by: int, to: int | None) -> None:  # noqa: ARG002 -- it has factors
        """See :class:`~advisor.slurm.placeholders.Placeholders`."""
        job = self._slurm.jobs.get(job_id)
        if job is None or job.state in ENDED:
            raise RetryLater("Invalid job id specified", code="slurm.command_failed")
        job.priority_offset, job.ages_since = by, job.submit_time
        self._slurm.queue_anew(job)

    def age_points(self, seconds: float) -> int:  # noqa: ARG002 -- see the class
        """None: see the class."""
        return 0
