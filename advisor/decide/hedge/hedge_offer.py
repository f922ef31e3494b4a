"""Which jobs may start in the cloud and keep a place on-premise, and for how long. Pure.

A job is hedged where it would wait on-premise and the cloud is better or in doubt (docs/designs/0013); it
runs speculatively where question 3 doubts its length (Ambati et al. 2021, section 3.2). Either way it may be
requeued once: so only jobs qualify that may be requeued, are not interactive, and are no part of a larger
piece of work.
"""

from __future__ import annotations

import math

from advisor.decide.hedge.hedge_budget import ENDING_SECONDS
from advisor.decide.submission.capacity import cores_billed, requeueable
from advisor.decide.submission.rules import comment_words
from advisor.model.advice import Hedge, HedgeKind
from advisor.model.cluster import ClusterState
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState


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


def worst_core_seconds(hedge: Hedge, job: Job, cloud: CloudState, boot: float) -> float:
    """What a hedge uses at worst before its stop-loss ends it: core-seconds of whole nodes, boot included."""
    return cores_billed(job, cloud) * (boot + hedge.stop_seconds + ENDING_SECONDS)


def would_wait(job: Job, cluster: ClusterState) -> bool:
    """Whether the free processors on-premise do not suffice for the job and all waiting jobs."""
    waiting = cluster.queue_size * cluster.waiting_mean_processors
    return cluster.free_processors < waiting + job.processors


def speculation_of(job: Job, settings: Settings) -> Hedge | None:
    """The job's trial of t seconds in the cloud, if question 3 grants it; None: it cannot have one."""
    limit = settings.waiting.long_job_seconds
    if not settings.waiting.speculate or math.isinf(limit) or not may_be_brought_back(job, settings):
        return None
    return Hedge(kind=HedgeKind.SPECULATION, stop_seconds=limit)
