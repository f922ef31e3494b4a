"""The one decision function: submissions, replays and what-ifs all call it (docs/designs/0001, idea 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from advisor.decide.explanation.reasons import Reason
from advisor.decide.hedge.hedge_offer import hedged, speculation_of
from advisor.decide.submission.capacity import (
    boot_seconds,
    capacity_in_burst,
    choose,
    cost_usd,
    kind_of_node,
    must_avoid_spot,
    off_spot_feature,
    preferred_survivors,
)
from advisor.decide.submission.placement import (
    PlacementCase,
    PlacementRule,
    as_case,
    no_room_there,
    published,
    ratio_of,
    state_unknown,
    stretched,
)
from advisor.decide.submission.policy import MOVES_NOTHING, moves_nothing, not_asked
from advisor.decide.submission.proven import proven
from advisor.decide.submission.room import cloud_wait, room_here
from advisor.decide.submission.rules import may_move
from advisor.decide.submission.waiting import WaitingCase, waited_long_enough, worth_paying
from advisor.model.advice import STAYS, Advice, Answer, Capacity, Hedge, Mode, Placement
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState, Ratio, SiteState

# Members of an enumeration, taken off their class once: Python 3.11 goes through `EnumType.__getattr__` for
# each, 80 ns instead of 2. So do other modules that run inside sbatch.
_ACT: Final = Mode.ACT
_BURST: Final = Placement.BURST
_ON_PREMISE: Final = Placement.ON_PREMISE
_EXPLICIT_BURST: Final = Reason.EXPLICIT_BURST
_STARTS_SECONDS: Final = 120.0
"""Where there is room a job starts within two passes of Slurm's scheduler; one that still waits has none."""
# A new rule is a function and a line here (and a word in PlacementSettings.rule).
PLACEMENT_RULES: Final[Mapping[str, PlacementRule]] = MappingProxyType(
    {"published": published, "advisor": proven}
)
"""The placement rules by name (``placement.rule``)."""
_FEATURES: Final = {capacity: (capacity.value,) for capacity in Capacity}


def advise(job: Job, state: SiteState, estimates: Estimates, settings: Settings, *, advice_id: str) -> Advice:
    """Decide where a job should start, and say why.

    The four questions (docs/designs/0001) in their order; the first that is not answered YES keeps the job
    on-premise, and later ones are not asked. Pure: no clock, no I/O, no randomness.

    Args:
        job: The submission.
        state: Cluster and cloud as it meets them.
        estimates: Predicted wait, run time and size.
        settings: The site's settings.
        advice_id: Unique name of this advice.

    Returns:
        In shadow mode the same answers with nothing to change: no partition, features or priority.
    """
    answers, chosen, hedge = _answers(job, state, estimates, settings)
    moved = chosen is not None
    # in the cloud when every question let it go there, or when the user asked for the burst partition
    is_users = not moved and answers[-1].reason == _EXPLICIT_BURST
    bursts = moved or is_users
    mode = settings.cluster.mode_of(job.queue)
    acts = mode is _ACT
    moves = moved and acts
    size = _size_word(job, estimates, settings)
    return Advice(
        advice_id=advice_id,
        time=state.time,
        placement=_BURST if bursts else _ON_PREMISE,
        partition=settings.cluster.burst_partition if moves else None,
        capacity=_users_capacity(job, state, estimates, settings) if is_users and acts else chosen,
        mode=mode,
        answers=answers,
        size=size,
        prefer=_preferred_features(job, estimates, state, settings, chosen) if bursts and acts else (),
        require=_required_features(job, state.cloud) if moves and must_avoid_spot(job, settings) else (),
        # small jobs first (Zrigui et al., section 4): only in the on-premise queue, where there is one
        priority_offset=settings.size.small_priority_offset if size == "small" and acts and not bursts else 0,
        time_limit=stretched(job, settings.placement, ratio_of(job, state.ratios)) if moves else None,
        hedge=hedge if moves else None,
        origin=_origin(job, settings) if moves else None,
    )


def _answers(
    job: Job, state: SiteState, estimates: Estimates, settings: Settings
) -> tuple[tuple[Answer, ...], Capacity | None, Hedge | None]:
    """Ask until one keeps the job here; a doubt may be hedged. A capacity where none does."""
    cloud = state.cloud
    first = may_move(job, cloud, settings)
    if first.verdict in STAYS:
        return (first,), None, None
    policy = settings.cluster.policy
    if policy == "price":
        # only this policy loads compiled code
        from advisor.decide.submission.priced import priced  # noqa: PLC0415

        return priced(job, first, state, estimates, settings)
    if policy in MOVES_NOTHING:
        return (first, moves_nothing(policy)), None, None
    if state.cluster is None:
        return (first, state_unknown()), None, None
    waited = max(0.0, state.time - job.submit_time)
    has_room = settings.placement.stay_where_room and waited < _STARTS_SECONDS
    if has_room and (here := room_here(job, state)) is not None:
        return (first, here), None, None
    ratio = ratio_of(job, state.ratios)
    cloud_run = _slower(job, ratio, settings) * estimates.run.seconds
    there = 0.0
    if cloud.rooms:
        there = cloud_wait(kind_of_node(job, cloud, settings), job, cloud_run, cloud, state.time)
    case = as_case(
        processors=job.processors,
        requested_time=job.requested_time,
        estimates=estimates,
        boot=boot_seconds(cloud, settings),
        settings=settings.placement,
        record=state.record,
        tasks=job.array_tasks,
        cutoff=state.cutoff,
        cloud_wait=there,
        ratio=ratio,
    )
    second, hedge = _faster(case, waited, settings), None
    if settings.hedge.enabled:
        second, hedge = hedged(second, case, job, state, settings)
    if second.verdict in STAYS:
        return (first, second), None, None
    # What it costs depends on which capacity it would get, so question 4 is worked out before 3 is answered.
    # Where there is none nothing will be paid; question 4 says why.
    chosen, fourth = choose(job, cloud_run, cloud, settings, state.time)
    cost = 0.0 if chosen is None else cost_usd(job, cloud_run, chosen, cloud, settings)
    third, trial = _worth(job, state, estimates, chosen, cost, settings)
    if third.verdict in STAYS:
        return (first, second, third), None, None
    return (first, second, third, fourth), chosen, hedge if trial is None else trial


def _users_capacity(job: Job, state: SiteState, estimates: Estimates, settings: Settings) -> Capacity | None:
    run = _slower(job, ratio_of(job, state.ratios), settings) * estimates.run.seconds
    return capacity_in_burst(job, run, state.cloud, settings, state.time)


def _worth(
    job: Job,
    state: SiteState,
    estimates: Estimates,
    chosen: Capacity | None,
    cost: float,
    settings: Settings,
) -> tuple[Answer, Hedge | None]:
    """Question 3 of a job that would get a capacity at a cost; with the speculative start, if it gets one."""
    trial = speculation_of(job, settings) if settings.waiting.speculate else None
    ratio, trial_cost = _slower(job, ratio_of(job, state.ratios), settings), math.nan
    if trial is not None and chosen is not None:
        run = ratio * estimates.run.seconds
        seconds = trial.stop_seconds if math.isnan(run) else min(run, trial.stop_seconds)
        trial_cost = cost_usd(job, seconds, chosen, state.cloud, settings)
    case = WaitingCase(
        job=job,
        estimates=estimates,
        capacity=chosen,
        cost_usd=cost if math.isfinite(cost) else math.nan,
        trial=trial,
        trial_cost_usd=trial_cost,
        waited_seconds=max(0.0, state.time - job.submit_time),
        price=state.waiting_price,
        performance_ratio=ratio,
    )
    answer, tries = worth_paying(case, state.cloud, settings.waiting)
    return answer, trial if tries else None


def _slower(job: Job, ratio: Ratio | None, settings: Settings) -> float:
    """How many times longer it runs in the cloud: as learned, else as set."""
    return settings.placement.performance_ratio(job.processors) if ratio is None else ratio.factor


def _faster(case: PlacementCase, waited: float, settings: Settings) -> Answer:
    """Question 2; a job that has waited b is not kept by doubts any more.

    Where no cloud node could take the job there is no doubt to hedge, and no wait that would be long enough.
    """
    if case.cloud_wait_seconds == math.inf:
        return no_room_there(case)
    policy = settings.cluster.policy
    if policy == "ambati2021":
        return not_asked(policy)
    if waited and (answer := waited_long_enough(case, waited, settings.waiting)) is not None:
        return answer
    return PLACEMENT_RULES[case.settings.rule](case)


def _size_word(job: Job, estimates: Estimates, settings: Settings) -> str:
    """``unknown`` while there is no divider: the first week, or size classes switched off."""
    # a placeholder does no work: how long it runs says nothing, and its place is another job's
    if job.placeholder_for is not None or not settings.size.enabled:
        return "unknown"
    size = estimates.size
    if math.isnan(size.divider_seconds):
        return "unknown"
    return "small" if size.is_small else "large"


def _origin(job: Job, settings: Settings) -> str | None:
    """Not said where it is the first one: that is taken for granted, and an AdminComment is short."""
    first = settings.cluster.on_premise_partitions[0]
    return job.queue if job.queue and job.queue != first else None


def _required_features(job: Job, cloud: CloudState) -> tuple[str, ...]:
    feature = off_spot_feature(job, cloud)
    return () if feature is None else (feature,)


def _preferred_features(
    job: Job, estimates: Estimates, state: SiteState, settings: Settings, chosen: Capacity | None
) -> tuple[str, ...]:
    """An idle node that will stay, where a long job can have one: nothing is launched then, of no kind."""
    if state.cluster is not None and (steady := preferred_survivors(job, estimates, state.cloud, settings)):
        return steady
    return _FEATURES[chosen] if chosen is not None and settings.capacity.prefer_features else ()
