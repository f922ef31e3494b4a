"""The on-premise equivalents of jobs in the cloud, from which the estimators learn.

The estimators forecast run times and waits on-premise. A job that ran in the cloud teaches them the run time,
the partition and the time limit that it would have had on-premise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from advisor.decide.submission.cloud_terms import configured_slowdown
from advisor.history.store import HistoryStore
from advisor.model.checkpoint_word import NO_CHECKPOINT
from advisor.model.job import Job, JobOutcome
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.observation.accounting import SOURCE
from advisor.service.observation.advice_of_jobs import home_of, moved_by_us

AskRatio: TypeAlias = Callable[[Job], float]
"""Function from a job to s(c), its run time in the cloud over its run time on-premise."""


def went_on(outcome: JobOutcome, submitted: Job) -> bool:
    """Whether a job's last run went on from a checkpoint, by what its user said at its submission."""
    return outcome.restarts > 0 and submitted.at_risk_seconds < NO_CHECKPOINT


def on_premise_outcome(
    outcome: JobOutcome, settings: Settings, store: HistoryStore, ratio: AskRatio | None = None
) -> JobOutcome:
    """A finished job; if it ran in the cloud, with the run time and partition it would have had on-premise.

    The run time on-premise is that in the cloud divided by s(c) (Cunha et al. 2017, Eq. 1). Slurm's
    accounting names the burst partition; the ledger names the partition to which the user submitted the job,
    and the comment by which its user says that it goes on from a checkpoint.

    Args:
        ratio: Returns the learned s(c); None: s(c) of the settings.
    """
    is_burst = outcome.partition == settings.cluster.burst_partition
    record = store.advice_of(outcome.job.job_id, source=SOURCE) if is_burst or outcome.restarts else None
    if record is not None and went_on(outcome, record.job):
        outcome = replace(outcome, goes_on=True)
    if not is_burst:
        return outcome
    job = outcome.job
    if record is not None and record.job.queue:
        job = replace(job, queue=record.job.queue.partition(",")[0])
    slower = configured_slowdown(job.processors, settings.placement) if ratio is None else ratio(job)
    return replace(outcome, job=job, end_time=outcome.start_time + outcome.run_seconds / slower)


def on_premise_job(queued: QueuedJob, settings: Settings) -> QueuedJob:
    """A job in the queue; if it was moved to the cloud, with the partition and time limit of its user."""
    if queued.job.queue != settings.cluster.burst_partition:
        return queued
    moved = moved_by_us(queued)
    if moved is None:
        return queued
    limit = moved.users_limit(queued.job.requested_time)
    home = home_of(moved, settings).partition(",")[0]
    return dataclasses.replace(queued, job=replace(queued.job, queue=home, requested_time=limit))
