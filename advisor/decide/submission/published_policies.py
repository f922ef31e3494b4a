"""Questions 2 to 4 under the published rules that move jobs: `cunha2017` and `ambati2021`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.capacity import choose, wait_and_boot
from advisor.decide.submission.cloud_terms import (
    boot_seconds,
    cost_usd,
    ratio_of,
    slowdown_of,
    start_of,
)
from advisor.decide.submission.placement import (
    PlacementCase,
    answer,
    as_case,
    no_room_there,
    published,
    state_unknown,
)
from advisor.decide.submission.policy import not_asked
from advisor.decide.submission.rules import may_be_brought_back
from advisor.decide.submission.waiting import WaitingCase, worth_paying
from advisor.model.advice import STAYS, Answer, Capacity, Hedge, HedgeKind, Verdict
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import SiteState

AT_ONCE_SECONDS: Final = 1.0
Decided: TypeAlias = tuple[tuple[Answer, ...], Capacity | None, Hedge | None]
"""The answers, the capacity (None: the job stays), and a hedge if it moves and keeps its place on-premise."""


def cunha2017(job: Job, first: Answer, state: SiteState, estimates: Estimates, settings: Settings) -> Decided:
    """Expected turnarounds, and a cutoff on the variance of the wait (Cunha et al. 2017, section IV).

    Args:
        job: Question 1 lets it move.
        estimates: The forecasts of wait and run time, with variances.
    """
    return _asked(job, first, state, estimates, settings, published)


def ambati2021(
    job: Job, first: Answer, state: SiteState, estimates: Estimates, settings: Settings
) -> Decided:
    """Long jobs wait, short waits wait, and speculation (Ambati et al. 2021); arguments: as `cunha2017`."""
    return _asked(job, first, state, estimates, settings, _unless_at_once)


def _unless_at_once(case: PlacementCase) -> Answer:
    """A job that starts at once needs no cloud; of any other the rule does not ask which is faster.

    Coverage 1 marks a wait from the simulated queue. What similar jobs waited does not show free nodes.
    """
    if case.wait.coverage >= 1.0 and case.wait.seconds <= AT_ONCE_SECONDS:
        return answer(case, Verdict.NO, Reason.ROOM_HERE)
    return not_asked("ambati2021")


def _asked(
    job: Job,
    first: Answer,
    state: SiteState,
    estimates: Estimates,
    settings: Settings,
    is_faster: Callable[[PlacementCase], Answer],
) -> Decided:
    if state.cluster is None:
        return (first, state_unknown()), None, None
    case = _case(job, state, estimates, settings)
    # no job moves to where no node could take it
    second = no_room_there(case) if case.cloud_wait_seconds == math.inf else is_faster(case)
    if second.verdict in STAYS:
        return (first, second), None, None
    # what it costs depends on which capacity it would get, so question 4 is worked out before 3 is answered
    cloud_run = case.performance_ratio * estimates.run.seconds
    chosen, fourth = choose(job, cloud_run, state.cloud, settings, state.time, ratio_of(job, state.ratios))
    third, trial = _worth(job, case, state, estimates, chosen, settings)
    if third.verdict in STAYS:
        return (first, second, third), None, None
    return (first, second, third, fourth), chosen, trial


def _case(job: Job, state: SiteState, estimates: Estimates, settings: Settings) -> PlacementCase:
    cloud, ratio = state.cloud, ratio_of(job, state.ratios)
    slowdown = slowdown_of(job, ratio, settings.placement)
    there, boots = wait_and_boot(job, slowdown * estimates.run.seconds, cloud, settings, state.time)
    return as_case(
        processors=job.processors,
        estimates=estimates,
        boot=boot_seconds(cloud, settings) if boots else 0.0,
        settings=settings.placement,
        cutoff=state.cutoff,
        cloud_wait=there,
        ratio=ratio,
        staging=start_of(job, cloud, settings, boots=boots).staging_seconds,
    )


def speculation_of(job: Job, settings: Settings) -> Hedge | None:
    """The job's trial of t seconds in the cloud, if question 3 grants it; None: it cannot have one."""
    limit = settings.waiting.long_job_seconds
    if not settings.speculates or math.isinf(limit) or not may_be_brought_back(job, settings):
        return None
    return Hedge(kind=HedgeKind.SPECULATION, stop_seconds=limit)


def _worth(
    job: Job,
    case: PlacementCase,
    state: SiteState,
    estimates: Estimates,
    chosen: Capacity | None,
    settings: Settings,
) -> tuple[Answer, Hedge | None]:
    """Question 3 of a job that would get a capacity; with the speculative start, if it gets one."""
    ratio, run = case.performance_ratio, case.performance_ratio * estimates.run.seconds
    trial = speculation_of(job, settings)
    cost = trial_cost = 0.0  # where there is no capacity: question 4 says why
    if chosen is not None:
        cost = cost_usd(job, run, chosen, state.cloud, settings)
        if trial is not None:
            seconds = trial.stop_seconds if math.isnan(run) else min(run, trial.stop_seconds)
            trial_cost = cost_usd(job, seconds, chosen, state.cloud, settings)
    waiting = WaitingCase(
        job=job,
        estimates=estimates,
        capacity=chosen,
        cost_usd=cost if math.isfinite(cost) else math.nan,
        trial=trial,
        trial_cost_usd=trial_cost,
        waited_seconds=max(0.0, state.time - job.submit_time),
        performance_ratio=ratio,
    )
    found, tries = worth_paying(waiting, state.cloud, settings.waiting, settings.budget)
    return found, trial if tries else None
