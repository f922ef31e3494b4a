"""Which jobs may start in the cloud and keep a place on-premise, and for how long. Pure.

A job is hedged where it would wait on-premise and the cloud is better or in doubt (docs/designs/0013); it
runs speculatively where question 3 doubts its length (Ambati et al. 2021, section 3.2). Either way it may be
requeued once: so only jobs qualify that may be requeued, are not interactive, and are no part of a larger
piece of work.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from advisor.decide.explanation.reasons import Reason
from advisor.decide.hedge.hedge_budget import ENDING_SECONDS
from advisor.decide.submission.capacity import cores_billed, requeueable, usd_per_core_hour
from advisor.decide.submission.placement import PlacementCase
from advisor.decide.submission.rules import comment_words
from advisor.model.advice import Answer, Capacity, Hedge, HedgeKind, Quantity, Verdict
from advisor.model.cluster import ClusterState
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState, SiteState

if TYPE_CHECKING:
    from advisor.decide.hedge.hedging import HedgeCase


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


def hedged(
    answer: Answer, case: PlacementCase, job: Job, state: SiteState, settings: Settings
) -> tuple[Answer, Hedge | None]:
    """Question 2 of a site that hedges: a doubt about a job that would wait on-premise may be hedged.

    Returns:
        answer: As given, or YES where the doubt is hedged.
        hedge: The job's hedge, should it be moved.
    """
    hedge = hedge_of(job, state.cloud, settings)
    hedge = within_budget(hedge, job, state.cloud, case.boot_seconds, state.hedge_left_core_seconds)
    if hedge is None or answer.verdict is not Verdict.UNSURE:
        return answer, hedge
    hedge = priced(hedge, case, state.hedge_price)
    if hedge is None or state.cluster is None or not would_wait(job, state.cluster):
        return answer, hedge
    return _instead(answer, Reason.HEDGED, hedge), hedge


def hedge_of(job: Job, cloud: CloudState, settings: Settings) -> Hedge | None:
    """The hedge a job would have; None when nobody asked for one or it may not be brought back."""
    hedge = settings.hedge
    if not hedge.enabled or not may_be_brought_back(job, settings):
        return None
    queue = job.queue or settings.cluster.on_premise_partitions[0]
    asked = hedge.opt_in_comment.casefold() in comment_words(job)
    if not (asked or hedge.by_default or queue in hedge.partitions):
        return None
    return Hedge(kind=HedgeKind.HEDGE, stop_seconds=_stop_seconds(job, cloud, settings))


def worst_core_seconds(hedge: Hedge, job: Job, cloud: CloudState, boot: float) -> float:
    """What a hedge uses at worst before its stop-loss ends it: core-seconds of whole nodes, boot included."""
    return cores_billed(job, cloud) * (boot + hedge.stop_seconds + ENDING_SECONDS)


def within_budget(
    hedge: Hedge | None, job: Job, cloud: CloudState, boot: float, left: float | None
) -> Hedge | None:
    """Stop a hedge by the time its worst case uses up what is left of the budget; None where nothing is.

    Args:
        hedge, job, cloud: What it would take.
        boot: Seconds until a cloud node is up.
        left: Core-seconds that may be reserved; None without a budget.
    """
    if hedge is None or left is None:
        return hedge
    most = left * (1.0 - 1e-6) / cores_billed(job, cloud) - boot - ENDING_SECONDS
    return replace(hedge, stop_seconds=min(hedge.stop_seconds, most)) if most > 0.0 else None


def priced(hedge: Hedge | None, case: PlacementCase, price: float | None) -> Hedge | None:
    """The hedge of a job in doubt where a core-second must bring something.

    Args:
        hedge: With the setting's stop-loss, the longest in any case.
        case: What is forecast of the job.
        price: Seconds of turnaround that a core-second must bring, as learned
            (`advisor.decide.hedge.pacing`). Without it, or without a forecast, the setting's stop-loss holds.

    Returns:
        None where no stop-loss is worth the price: the job waits.
    """
    if hedge is None or price is None:
        return hedge
    from advisor.decide.hedge.hedging import plan  # noqa: PLC0415 - as in `hedge_case`

    found = hedge_case(case)
    if found is None:
        return hedge
    # planned from the launch on; a job is stopped by the time it has run there, its boot over
    most = hedge.stop_seconds + found.boot_seconds
    stop = plan(found, price, most).stop_seconds - found.boot_seconds
    return replace(hedge, stop_seconds=min(hedge.stop_seconds, stop)) if stop > 0.0 else None


def hedge_case(case: PlacementCase) -> HedgeCase | None:
    """The forecasts for a hedge of the job; None where there are none."""
    # A process that only reads advice, such as the place helper, does not load the compiled curves.
    from advisor.decide.hedge.hedging import case_of  # noqa: PLC0415 - only a hedge needs it

    return case_of(
        Estimates(wait=case.wait, run=case.run),
        processors=case.processors,
        slowdown=case.performance_ratio,
        boot_seconds=case.boot_seconds,
        requested_time=case.requested_time,
    )


def _stop_seconds(job: Job, cloud: CloudState, settings: Settings) -> float:
    """The stop-loss as a time: whole nodes are paid for, by the dearest price the job could meet."""
    hours = settings.hedge.stop_loss_core_hours
    price = usd_per_core_hour(Capacity.ON_DEMAND, cloud, settings)
    if settings.hedge.stop_loss_usd and price > 0.0:
        hours = min(hours, settings.hedge.stop_loss_usd / price)
    return 3600.0 * hours / cores_billed(job, cloud)


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


def _instead(answer: Answer, reason: Reason, hedge: Hedge) -> Answer:
    stop = ("stop_loss", Quantity(hedge.stop_seconds))
    return replace(
        answer,
        verdict=Verdict.YES,
        reason=reason,
        numbers=(*answer.numbers, stop),
        detail=answer.reason,
    )
