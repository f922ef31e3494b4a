"""Which jobs may start in the cloud and keep a place on-premise, and for how long. Pure.

A job is bought a slice where that is worth its price (docs/designs/0019); it runs speculatively where
question 3 doubts its length (Ambati et al. 2021, section 3.2). Either way it may be requeued: so only
jobs qualify that may be requeued, are not interactive, and are no part of a larger piece of work.
"""

from __future__ import annotations

import math
from typing import Final

from advisor.decide.submission.capacity import requeueable
from advisor.decide.submission.rules import comment_words
from advisor.model.advice import Hedge, HedgeKind
from advisor.model.job import Job
from advisor.model.settings import Settings

ENDING_SECONDS: Final = 60.0
"""From a slice's stop to the end of its processes: a poll, a requeue, and slurmctld's KillWait of 30 s."""


def may_be_brought_back(job: Job, settings: Settings) -> bool:
    """Whether the job can be stopped and started again elsewhere without known harm.

    A job with a shape that a placeholder cannot have (devices, licences, a reservation, named nodes) cannot.
    """
    shape = job.gres or job.licenses or job.reservation or job.node_list
    return (
        requeueable(job, settings)
        and job.array_tasks == 1
        and not (job.interactive or job.dependency or job.heterogeneous or shape)
        and settings.hedge.opt_out_comment.casefold() not in comment_words(job)
    )


def keeps_place(job: Job, settings: Settings) -> bool:
    """Whether the job keeps its place on-premise while it runs in the cloud."""
    return settings.hedge.enabled and may_be_brought_back(job, settings)


def speculation_of(job: Job, settings: Settings) -> Hedge | None:
    """The job's trial of t seconds in the cloud, if question 3 grants it; None: it cannot have one."""
    limit = settings.waiting.long_job_seconds
    if not settings.speculates or math.isinf(limit) or not may_be_brought_back(job, settings):
        return None
    return Hedge(kind=HedgeKind.SPECULATION, stop_seconds=limit)
