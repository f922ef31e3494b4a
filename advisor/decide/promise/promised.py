"""A job whose user names the time by which it is to be done: stay as long as that keeps it, then pay. Pure.

Question 2 asks whether it has to start in the cloud now, question 3 whether its worst case may be paid.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from advisor.decide.explanation.reasons import Reason
from advisor.decide.hedge.hedge_offer import ENDING_SECONDS
from advisor.decide.promise.chances import ended_of, kept_here, kept_there, mean_run
from advisor.decide.promise.price_list import Kind, Levels, Outlook, goes, last_start, price_list
from advisor.decide.submission.capacity import boot_seconds, choose, cores_billed, usd_per_core_hour
from advisor.decide.submission.placement import ratio_of, state_unknown
from advisor.model.advice import STAYS, Answer, Capacity, Hedge, Quantity, Question, Verdict
from advisor.model.deadline import deadline_of
from advisor.model.estimate import Estimates, PromiseChances
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.predict.run_times.grid import GRID

_HOUR: Final = 3600.0
_MOMENT: Final = 1.0  # seconds
_LATER: Final = 60.0  # seconds after its submission
_Numbers = tuple[tuple[str, Quantity], ...]


def names_a_time(job: Job, settings: Settings) -> bool:
    """Whether a promise is asked for that can be made: one job, one time."""
    if not settings.promise.enabled or not job.comment or job.array_tasks > 1:
        return False
    deadline = deadline_of(job.comment, job.submit_time, settings.cluster.utc_offset_seconds)
    return deadline is not None and math.isfinite(deadline)


def promised(
    job: Job, first: Answer, state: SiteState, estimates: Estimates, settings: Settings
) -> tuple[tuple[Answer, ...], Capacity | None, Hedge | None]:
    """Ask questions 2 to 4 about a job of :func:`names_a_time`.

    Args:
        job: Question 1 lets it move.
        estimates: The planned wait from now on, and the run time, with ``run_chances`` and ``promise``.
    """
    if state.cluster is None:
        return (first, state_unknown()), None, None
    chances, known = np.array(estimates.run_chances), estimates.promise
    if not estimates.wait.is_usable or known is None:
        return (first, _no(Reason.WAIT_UNKNOWN, ())), None, None
    if chances.shape != GRID.shape or not chances.sum() > 0.0:
        return (first, _no(Reason.RUN_UNKNOWN, ())), None, None
    deadline = deadline_of(job.comment, job.submit_time, settings.cluster.utc_offset_seconds)
    left = -math.inf if deadline is None else deadline - state.time
    outlook, capacity, fourth = _outlook(job, state, estimates, known, settings)
    third = _may_be_paid(job, outlook, state, settings)
    numbers = _numbers(outlook, known, left, may_be_paid=third.verdict not in STAYS)
    if left <= 0.0:
        return (first, _no(Reason.PROMISE_PASSED, numbers)), None, None
    later = last_start(outlook, left, known.levels[Kind.BETWEEN])
    if later > _MOMENT:
        kept = (*numbers, ("last_start_in", Quantity(later)))
        return (first, _no(Reason.PROMISE_WAITS, kept)), None, None
    if not goes(outlook, left, known.strains[Kind.BETWEEN]):
        return (first, _no(Reason.PROMISE_HERE, numbers)), None, None
    second = Answer(
        question=Question.FASTER, verdict=Verdict.YES, reason=Reason.PROMISE_GOES, numbers=numbers
    )
    if third.verdict in STAYS:
        return (first, second, third), None, None
    return (first, second, third, fourth), capacity, None


def _outlook(
    job: Job, state: SiteState, estimates: Estimates, known: PromiseChances, settings: Settings
) -> tuple[Outlook, Capacity | None, Answer]:
    """The job as the price list looks at it; spot, which may be taken back, keeps no promise."""
    ratio = ratio_of(job, state.ratios)
    slowdown = settings.placement.performance_ratio(job.processors) if ratio is None else ratio.factor
    # a run of unknown length is never put on spot
    capacity, fourth = choose(job, math.nan, state.cloud, settings, state.time)
    paid = capacity or Capacity.ON_DEMAND
    usd = usd_per_core_hour(paid, state.cloud, settings) / _HOUR * cores_billed(job, state.cloud)
    outlook = Outlook(
        planned=estimates.wait.seconds,
        waits=np.array(known.waits),
        shares=np.array(known.shares),
        ended=ended_of(np.array(estimates.run_chances)),
        limit=math.inf if job.requested_time is None else job.requested_time,
        start=boot_seconds(state.cloud, settings),
        slowdown=slowdown,
        price=usd,
    )
    return outlook, capacity, fourth


def _numbers(outlook: Outlook, known: PromiseChances, left: float, *, may_be_paid: bool) -> _Numbers:
    offers = {offer.kind: offer for offer in price_list(outlook, Levels(*known.levels))}
    here = kept_here(outlook.waits, outlook.shares, outlook.ended, left, outlook.limit)
    there = kept_there(outlook.ended, left, outlook.start, outlook.slowdown, outlook.limit)
    soonest = offers[Kind.SOONEST].ready if Kind.SOONEST in offers else math.inf
    is_promised = left >= offers[Kind.FREE].ready or (left >= soonest - _MOMENT and may_be_paid)
    numbers: _Numbers = (
        ("deadline_in", Quantity(left)),
        ("is_promised", Quantity(float(is_promised), "")),
        ("confidence", Quantity(known.confidence, "")),
        ("chance_here", Quantity(here, "")),
        ("chance_there", Quantity(there, "")),
        ("free_in", Quantity(offers[Kind.FREE].ready)),
    )
    if Kind.SOONEST in offers:
        numbers += (
            ("soonest_in", Quantity(offers[Kind.SOONEST].ready)),
            ("soonest_costs", Quantity(offers[Kind.SOONEST].cost, "USD")),
        )
    return numbers


def _may_be_paid(job: Job, outlook: Outlook, state: SiteState, settings: Settings) -> Answer:
    """Question 3: what one job may cost, and the budgets."""
    per_second, slowdown = outlook.price, outlook.slowdown
    run = slowdown * mean_run(outlook.ended, outlook.limit)
    longest = slowdown * min(outlook.limit, float(GRID[-1]))
    cost = per_second * (outlook.start + run)
    worst = per_second * (outlook.start + longest + ENDING_SECONDS)
    numbers: _Numbers = (("predicted_cost", Quantity(cost, "USD")), ("worst_cost", Quantity(worst, "USD")))
    if not per_second:
        return _third(Verdict.YES, Reason.PAID_FOR, numbers)
    most = settings.promise.usd_per_job
    if worst > most:
        return _third(
            Verdict.NO, Reason.PROMISE_TOO_DEAR, (*numbers, ("job_may_cost", Quantity(most, "USD")))
        )
    if not settings.budget.is_set:
        return _third(Verdict.NO, Reason.NO_BUDGET, numbers)
    if state.price is None:
        return _third(Verdict.UNSURE, Reason.PRICE_UNKNOWN, numbers)
    tokens = state.price.tokens_of(job.account)
    if not worst <= tokens:
        free = ("budget_left", Quantity(max(0.0, tokens), "USD"))
        return _third(Verdict.NO, Reason.BUDGET_USED_UP, (*numbers, free))
    return _third(Verdict.YES, Reason.PROMISE_PAID, numbers)


def _third(verdict: Verdict, reason: Reason, numbers: _Numbers) -> Answer:
    return Answer(question=Question.WORTH_PAYING, verdict=verdict, reason=reason, numbers=numbers)


def _no(reason: Reason, numbers: _Numbers) -> Answer:
    verdict = Verdict.UNSURE if reason in {Reason.WAIT_UNKNOWN, Reason.RUN_UNKNOWN} else Verdict.NO
    return Answer(question=Question.FASTER, verdict=verdict, reason=reason, numbers=numbers)


def kind_of(values: dict[str, float], waited: float) -> Kind | None:
    """The row of the price list that an advice promised; None where it promised nothing.

    Args:
        values: The advice's numbers.
        waited: Seconds from the job's submission to the advice.
    """
    left, free = values.get("deadline_in", math.nan), values.get("free_in", math.nan)
    if math.isnan(left) or math.isnan(free):
        return None
    if waited > _LATER:  # it has moved since, for a promise that was made at its submission
        return Kind.BETWEEN
    if not values.get("is_promised"):
        return None
    if left >= free:
        return Kind.FREE
    return Kind.BETWEEN if "last_start_in" in values else Kind.SOONEST


def warm() -> None:
    """Compile, or load from the cache, what a promise needs."""
    chances = np.full(len(GRID), 1.0 / len(GRID))
    outlook = Outlook(60.0, np.ones(2), np.full(2, 0.5), ended_of(chances), 60.0, 60.0, 1.0, 1.0)
    price_list(outlook, Levels(0.9, 0.9, 0.9))
    goes(outlook, 60.0, 0.0)
