"""Jobs of the cloud as they would have been on-premise: what the estimators are asked about, and learn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from advisor.history.store import HistoryStore
from advisor.model.job import Job, JobOutcome
from advisor.model.settings import Settings
from advisor.service.observation.accounting import SOURCE
from advisor.service.observation.advice_of_jobs import home_of, moved_by_us
from advisor.slurm.protocol import QueuedJob

AskRatio: TypeAlias = Callable[[Job], float]


def outcome_here(
    outcome: JobOutcome, settings: Settings, store: HistoryStore, ratio: AskRatio | None = None
) -> JobOutcome:
    """A finished job; one that ran in the cloud with the run time and the partition it would have had here.

    The run time is Cunha et al., Eq. 1, solved for the on-premise one. Accounting says ``burst`` of the
    partition, by which nobody's next submission would be told from a stranger's: the ledger knows where its
    user had submitted it. ``ratio`` tells s(c) of a job as learned; without it the settings do.
    """
    if outcome.partition != settings.cluster.burst_partition:
        return outcome
    record = store.advice_of(outcome.job.job_id, source=SOURCE)
    job = outcome.job
    if record is not None and record.job.queue:
        job = replace(job, queue=record.job.queue.partition(",")[0])
    slower = settings.placement.performance_ratio(job.processors) if ratio is None else ratio(job)
    return replace(outcome, job=job, end_time=outcome.start_time + outcome.run_seconds / slower)


def queued_here(queued: QueuedJob, settings: Settings) -> QueuedJob:
    """A job in the queue; one that was moved to the cloud as its user had submitted it."""
    if queued.job.queue != settings.cluster.burst_partition:
        return queued
    moved = moved_by_us(queued)
    if moved is None:
        return queued
    limit = moved.users_limit(queued.job.requested_time)
    home = home_of(moved, settings).partition(",")[0]
    return dataclasses.replace(queued, job=replace(queued.job, queue=home, requested_time=limit))
