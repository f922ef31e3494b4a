"""The one decision function: live submissions, replays and what-ifs all call it (DESIGN.md, idea 1)."""

from __future__ import annotations

import math

from advisor.decide import capacity as question_4
from advisor.decide.demand import boot_seconds, cost_usd
from advisor.decide.hedge_offer import hedge_of, in_doubt, priced, speculated, speculation_of
from advisor.decide.placement import as_case, state_unknown
from advisor.decide.placement_rules import faster
from advisor.decide.reasons import Reason
from advisor.decide.rules import may_move
from advisor.decide.steady import steady_wish
from advisor.decide.time_limit import stretched
from advisor.decide.waiting import worth_paying
from advisor.model.advice import STAYS, Advice, Answer, Capacity, Hedge, Mode, Placement, Verdict
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState, SiteState


def advise(job: Job, state: SiteState, estimates: Estimates, settings: Settings, *, advice_id: str) -> Advice:
    """Decide where a job should start, and say why.

    The four questions of DESIGN.md in their order; the first that is not answered YES keeps the job
    on-premise, and later ones are not asked. Pure: no clock, no I/O, no randomness.

    Parameters
    ----------
    job : Job
        The submission.
    state : SiteState
        Cluster and cloud as it meets them.
    estimates : Estimates
        Predicted wait, run time and size.
    settings : Settings
        The site's settings.
    advice_id : str
        Unique name of this advice.

    Returns
    -------
    Advice
        In shadow mode the same answers with nothing to change: no partition, features or priority.
    """
    answers, chosen, hedge = _answers(job, state, estimates, settings)
    placement = _placement_of(answers)
    moved = placement is Placement.BURST and chosen is not None
    mode = settings.cluster.mode_of(job.queue)
    acts = mode is Mode.ACT
    # a placeholder does no work: how long it runs says nothing, and its place is another job's
    size = "unknown" if job.keeps_place_of is not None else _size_word(estimates, settings)
    return Advice(
        advice_id=advice_id,
        time=state.time,
        placement=placement,
        partition=settings.cluster.burst_partition if moved and acts else None,
        capacity=chosen if moved else None,
        mode=mode,
        answers=tuple(answers),
        size=size,
        prefer=_preferred_features(job, estimates, state, settings, chosen if moved else None)
        if acts and placement is Placement.BURST
        else (),
        require=_required_features(job, state.cloud, settings) if moved and acts else (),
        priority_offset=_priority_offset(placement, size, settings) if acts else 0,
        time_limit=stretched(job, settings.placement) if moved and acts else None,
        hedge=hedge if moved and acts else None,
        origin=_origin(job, settings) if moved and acts else None,
    )


def _answers(
    job: Job, state: SiteState, estimates: Estimates, settings: Settings
) -> tuple[list[Answer], Capacity | None, Hedge | None]:
    """Ask until one keeps the job here; a doubt may be hedged."""
    cloud = state.cloud
    answers = [may_move(job, cloud, settings)]
    if _stays(answers[-1]):
        return answers, None, None
    if state.cluster is None:
        return [*answers, state_unknown()], None, None
    case = as_case(
        processors=job.processors,
        requested_time=job.requested_time,
        estimates=estimates,
        boot=boot_seconds(cloud, settings),
        settings=settings.placement,
        record=state.record,
        tasks=job.array_tasks,
    )
    hedge, answer = hedge_of(job, cloud, settings), faster(case)
    if answer.verdict is Verdict.UNSURE:
        hedge = priced(hedge, case, state.hedge_price)
    answers.append(in_doubt(answer, job, state.cluster, hedge))
    if _stays(answers[-1]):
        return answers, None, None
    cloud_run = case.performance_ratio * estimates.run.seconds
    # What it costs depends on which capacity it would get, so question 4 is worked out before 3 is answered.
    chosen, capacity_answer = question_4.choose(job, cloud_run, cloud, settings)
    cost = _predicted_cost(job, cloud_run, chosen, cloud, settings)
    worth = worth_paying(job, estimates, cost, cloud, settings.waiting)
    chance = speculation_of(job, estimates, case.performance_ratio, settings)
    answers.append(speculated(worth, chance))
    if _stays(answers[-1]):
        return answers, None, None
    return [*answers, capacity_answer], chosen, hedge if answers[-1] is worth else chance


def _stays(answer: Answer) -> bool:
    return answer.verdict in STAYS


def _predicted_cost(
    job: Job, cloud_run: float, chosen: Capacity | None, cloud: CloudState, settings: Settings
) -> float:
    if chosen is None:  # nothing will be paid; question 4 says why
        return 0.0
    cost = cost_usd(job, cloud_run, chosen, cloud, settings)
    return cost if math.isfinite(cost) else math.nan


def _placement_of(answers: list[Answer]) -> Placement:
    """In the cloud when every question let it go there, or when the user asked for the burst partition."""
    if answers[-1].reason == Reason.EXPLICIT_BURST:
        return Placement.BURST
    return Placement.ON_PREMISE if _stays(answers[-1]) else Placement.BURST


def _size_word(estimates: Estimates, settings: Settings) -> str:
    """``unknown`` while there is no divider: the first week, or size classes switched off."""
    if not settings.size.enabled or math.isnan(estimates.size.divider_seconds):
        return "unknown"
    return "small" if estimates.size.is_small else "large"


def _priority_offset(placement: Placement, size: str, settings: Settings) -> int:
    """Small jobs first (Zrigui et al., section 4): only in the on-premise queue, where there is one."""
    if placement is Placement.ON_PREMISE and size == "small":
        return settings.size.small_priority_offset
    return 0


def _origin(job: Job, settings: Settings) -> str | None:
    """Not said where it is the first one: that is taken for granted, and an AdminComment is short."""
    first = settings.cluster.on_premise_partitions[0]
    return job.queue if job.queue and job.queue != first else None


def _required_features(job: Job, cloud: CloudState, settings: Settings) -> tuple[str, ...]:
    if not question_4.must_be_stable(job, settings):
        return ()
    feature = question_4.stable_feature(job, cloud)
    return () if feature is None else (feature,)


def _preferred_features(
    job: Job, estimates: Estimates, state: SiteState, settings: Settings, chosen: Capacity | None
) -> tuple[str, ...]:
    """An idle node that will stay, where a long job can have one: nothing is launched then, of no kind."""
    if state.cluster is not None and (steady := steady_wish(job, estimates, state.cloud, settings)):
        return steady
    return (chosen.value,) if chosen is not None and settings.capacity.prefer_features else ()
