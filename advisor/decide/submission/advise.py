"""The one decision function (docs/designs/0001, idea 1).

`advisor serve` calls it at submissions and for waiting jobs; so do the same server in `advisor rehearse
--shipped`, and `advisor replay placement`.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec.structs import replace

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.capacity import (
    capacity_in_burst,
    must_avoid_spot,
    off_spot_feature,
    preferred_survivors,
)
from advisor.decide.submission.cloud_terms import ratio_of, slowdown_of, stretched
from advisor.decide.submission.policy import moves_nothing
from advisor.decide.submission.published_policies import Decided, ambati2021, cunha2017
from advisor.decide.submission.rules import (
    comment_words,
    let_in,
    may_move,
    not_fallen_back,
    not_limited,
    not_preempting,
    within_limits,
)
from advisor.model.advice import STAYS, Advice, Capacity, Mode, Placement
from advisor.model.estimate import Estimates, SizeEstimate
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState, SiteState

# Members of an enumeration, taken off their class once: Python 3.11 goes through `EnumType.__getattr__` for
# each, 80 ns instead of 2. So do other modules that run inside sbatch.
_ACT: Final = Mode.ACT
_BURST: Final = Placement.BURST
_ON_PREMISE: Final = Placement.ON_PREMISE
_EXPLICIT_BURST: Final = Reason.EXPLICIT_BURST
_FEATURES: Final = {capacity: (capacity.value,) for capacity in Capacity}


def advise(job: Job, state: SiteState, estimates: Estimates, settings: Settings, *, advice_id: str) -> Advice:
    """Decide where a job should start, and say why.

    The four questions (docs/designs/0001) in their order; the first that is not answered YES keeps the job
    on-premise, and later ones are not asked. Pure: no clock, no I/O, no randomness.

    Returns:
        The advice. In shadow mode it has the same answers and changes nothing: no partition, features or
        priority.
    """
    if state.cloud.classes and state.cloud.node_class is None:
        state = replace(state, cloud=state.cloud.for_job(job))
    answers, chosen, hedge = _answers(job, state, estimates, settings)
    moved = chosen is not None
    # in the cloud if every answer is yes, or if the user asked for the burst partition
    is_users = not moved and answers[-1].reason == _EXPLICIT_BURST
    bursts = moved or is_users
    mode = _mode_for(job, settings)
    acts = mode is _ACT
    moves = moved and acts
    size = _size_word(job, estimates.size, settings)
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
        priority_offset=0 if bursts else priority_offset(job, estimates.size, settings),
        time_limit=stretched(job, settings.placement, ratio_of(job, state.ratios)) if moves else None,
        hedge=hedge if moves else None,
        origin=_origin(job, settings) if moves else None,
    )


def _answers(job: Job, state: SiteState, estimates: Estimates, settings: Settings) -> Decided:
    """Question 1, then those of the policy in force, until one keeps the job on-premise."""
    first = may_move(job, state.cloud, settings)
    if first.verdict not in STAYS and state.fallen_back:
        first = not_fallen_back(job, state.fallen_back, settings)
    if first.verdict not in STAYS and state.limits:
        first = not_limited(job, state.limits)
    if first.verdict not in STAYS and state.kept_out:
        first = let_in(job, state.kept_out)
    if first.verdict not in STAYS and state.burst_limits is not None:
        first = within_limits(job, state.burst_limits)
    if first.verdict not in STAYS and state.preemptable:
        first = not_preempting(job, state.preemptable, settings)
    if first.verdict in STAYS:
        return (first,), None, None
    policy = settings.cluster.policy
    if policy == "price":
        # only this policy loads compiled code
        from advisor.decide.submission.priced import priced  # noqa: PLC0415

        return priced(job, first, state, estimates, settings)
    if policy == "cunha2017":
        return cunha2017(job, first, state, estimates, settings)
    if policy == "ambati2021":
        return ambati2021(job, first, state, estimates, settings)
    return (first, moves_nothing(policy)), None, None


def priority_offset(job: Job, size: SizeEstimate, settings: Settings) -> int:
    """What is added to a job's priority where it stays on-premise: a small one goes before all others."""
    is_first = _size_word(job, size, settings) == "small" and _mode_for(job, settings) is _ACT
    return settings.size.small_priority_offset if is_first else 0


def _users_capacity(job: Job, state: SiteState, estimates: Estimates, settings: Settings) -> Capacity | None:
    ratio = ratio_of(job, state.ratios)
    cloud_run = slowdown_of(job, ratio, settings.placement) * estimates.run.seconds
    return capacity_in_burst(job, cloud_run, state.cloud, settings, state.time, ratio)


def _size_word(job: Job, size: SizeEstimate, settings: Settings) -> str:
    """The size class; ``unknown`` without a divider: in the first week, or with size classes switched off."""
    # a placeholder does no work: its run time means nothing, and its place belongs to another job
    if job.placeholder_for is not None or not settings.size.enabled:
        return "unknown"
    if math.isnan(size.divider_seconds):
        return "unknown"
    return "small" if size.is_small else "large"


def _origin(job: Job, settings: Settings) -> str | None:
    """The partition of a moved job; None if it is the first on-premise one: AdminComments are short."""
    first = settings.cluster.on_premise_partitions[0]
    return job.queue if job.queue and job.queue != first else None


def _required_features(job: Job, cloud: CloudState) -> tuple[str, ...]:
    feature = off_spot_feature(job, cloud)
    return () if feature is None else (feature,)


def _preferred_features(
    job: Job, estimates: Estimates, state: SiteState, settings: Settings, chosen: Capacity | None
) -> tuple[str, ...]:
    """The features that a job prefers: an idle node that is likely to last, else the chosen capacity."""
    if state.cluster is not None and (steady := preferred_survivors(job, estimates, state.cloud, settings)):
        return steady
    if chosen is None or not settings.capacity.prefer_features:
        return ()
    kind = state.cloud.node_class
    # without the name of its class, Slurm might put a job of many cores on many small nodes
    return _FEATURES[chosen] if kind is None or not kind.name else (chosen.value, kind.name)


def _mode_for(job: Job, settings: Settings) -> Mode:
    """Act or shadow: by the mode of the job's partition, its user's comment and the pilot."""
    said = settings.cluster.mode_of(job.queue)
    is_acting = said is not Mode.SHADOW and _is_acting(said, job, settings)
    return _ACT if is_acting and _in_pilot(job, settings) else Mode.SHADOW


def _in_pilot(job: Job, settings: Settings) -> bool:
    """Whether jobs of its user or account may be changed: all may where the site names no pilot."""
    users, accounts = settings.cluster.pilot_users, settings.cluster.pilot_accounts
    return not (users or accounts) or job.user in users or job.account in accounts


def _is_acting(said: Mode, job: Job, settings: Settings) -> bool:
    if said is Mode.OPT_IN:
        return settings.cluster.opt_in_comment.casefold() in comment_words(job.comment)
    return said is _ACT


def tells_user(job: Job, settings: Settings) -> bool:
    """Whether the user of a job that is not moved is told what the cloud would save, and how to go there.

    Users outside the pilot are not told. In the mode ``opt-in`` they are told only where a word moves the
    job.
    """
    said = settings.cluster.mode_of(job.queue)
    is_told = said is Mode.ADVISE or (said is Mode.OPT_IN and settings.cluster.opt_in_comment != "")
    return is_told and _in_pilot(job, settings)
