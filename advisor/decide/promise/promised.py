"""A job whose user names the time by which it is to be done. Pure.

It waits on-premise while it will likely be done in time there, then its start in the cloud is paid for. The
policy "price" asks at its submission and again while it waits; `advisor control` asks before it is requeued.
Question 2 asks whether it has to start in the cloud now, question 3 whether its worst case may be paid. A job
that may be requeued keeps its place on-premise while it runs there, if the site allows hedged starts
(``hedge.enabled``): when its slot comes and it will be in time here as well, it begins anew here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from advisor.arrays import Floats
from advisor.decide.explanation.reasons import Reason, used_up
from advisor.decide.promise.chances import ended_of, kept_here, kept_there, late_by_loss, mean_run, rest_of
from advisor.decide.promise.price_list import (
    Levels,
    Outlook,
    PromisedStart,
    SpotLives,
    last_start,
    late_on_spot,
    price_list,
    start_for,
)
from advisor.decide.spot.pools import lives_of
from advisor.decide.submission.capacity import checkpoint_number, choose, pools_worth, wait_and_boot
from advisor.decide.submission.cloud_terms import (
    Start,
    money_short,
    ratio_of,
    slowdown_of,
    start_of,
    stretched,
    usd_per_second,
)
from advisor.decide.submission.placement import state_unknown
from advisor.decide.submission.rules import keeps_place
from advisor.model.advice import (
    ENDING_SECONDS,
    STAYS,
    Answer,
    Capacity,
    Hedge,
    HedgeKind,
    Quantity,
    Question,
    Verdict,
)
from advisor.model.estimate import Estimates, PromiseChances
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState, SiteState
from advisor.predict.promised.levels import Kind, may_be_lost
from advisor.predict.run_times.grid import GRID

_MOMENT: Final = 1.0  # seconds
_OFF_SPOT: Final = "the loss of a spot instance could make it late"
_Numbers = tuple[tuple[str, Quantity], ...]


class _OnSpot(NamedTuple):
    """A start on spot: how long instances last, and the answers to questions 3 and 4."""

    lives: SpotLives
    third: Answer
    fourth: Answer


def promised(
    job: Job, deadline: float, first: Answer, state: SiteState, estimates: Estimates, settings: Settings
) -> tuple[tuple[Answer, ...], Capacity | None, Hedge | None]:
    """Ask questions 2 to 4 about a job whose user names a time.

    Args:
        job: Question 1 lets it move.
        deadline: :func:`deadline_for`.
        estimates: The planned wait from now on, and the run time, with ``run_chances`` and ``promise``.
    """
    if state.cluster is None:
        return (first, state_unknown()), None, None
    chances, known = np.array(estimates.run_chances), estimates.promise
    if not estimates.wait.is_usable or known is None:
        return (first, _no(Reason.WAIT_UNKNOWN, ())), None, None
    if chances.shape != GRID.shape or not chances.sum() > 0.0:
        return (first, _no(Reason.RUN_UNKNOWN, ())), None, None
    left = deadline - state.time
    outlook, capacity, fourth = _outlook(job, state, estimates, known, settings)
    start = start_of(job, state.cloud, settings)
    cost, worst = _costs(job, outlook, start, outlook.price, state, settings)
    third = _may_be_paid(job, cost, worst, start, state, settings)
    may_start = capacity is not None and third.verdict not in STAYS
    numbers = _numbers(outlook, start, known, left, may_start=may_start)
    if left <= 0.0:
        return (first, _no(Reason.PROMISE_PASSED, numbers)), None, None
    on_spot = None
    if capacity is Capacity.ON_DEMAND:  # where a job that loses its spot instance goes
        on_spot = _on_spot(job, outlook, start, left, (cost, worst), known, state, settings)
    latest = last_start(outlook, left, known.levels[Kind.BETWEEN])
    seen = outlook if on_spot is None else outlook._replace(spot=on_spot.lives)
    begins = start_for(seen, left, latest, known.strains[Kind.BETWEEN], Kind.BETWEEN)
    if begins.capacity is None:
        return (first, _waits(begins, numbers)), None, None
    if on_spot is not None and begins.capacity is Capacity.SPOT:
        capacity, third, fourth = Capacity.SPOT, on_spot.third, on_spot.fourth
    second = Answer(
        question=Question.FASTER, verdict=Verdict.YES, reason=Reason.PROMISE_GOES, numbers=numbers
    )
    if third.verdict in STAYS:
        return (first, second, third), None, None
    hedge = None
    if capacity is not None and outlook.keeps_place:
        hedge = Hedge(kind=HedgeKind.PROMISE, stop_seconds=math.inf)
    return (first, second, third, fourth), capacity, hedge


def _outlook(
    job: Job, state: SiteState, estimates: Estimates, known: PromiseChances, settings: Settings
) -> tuple[Outlook, Capacity | None, Answer]:
    """The job as the price list looks at it: on-demand, so that what it says is never too cheap."""
    ratio, cloud, now = ratio_of(job, state.ratios), state.cloud, state.time
    slowdown = slowdown_of(job, ratio, settings.placement)
    run = slowdown * estimates.run.seconds
    capacity, fourth = choose(job, run, cloud, settings, now, ratio, off_spot=_OFF_SPOT)
    wait_there, _ = wait_and_boot(job, run, cloud, settings, now)
    outlook = Outlook(
        planned=estimates.plan.seconds,
        waits=np.array(known.waits),
        shares=np.array(known.shares),
        ended=ended_of(np.array(estimates.run_chances)),
        limit=math.inf if job.requested_time is None else job.requested_time,
        start=wait_there + start_of(job, cloud, settings).seconds,
        slowdown=slowdown,
        price=usd_per_second(job, capacity or Capacity.ON_DEMAND, cloud, settings),
        keeps_place=keeps_place(job, settings, state.full),
        thrift=known.thrift,
    )
    return outlook, capacity, fourth


def _numbers(
    outlook: Outlook, start: Start, known: PromiseChances, left: float, *, may_start: bool
) -> _Numbers:
    *paid, free = price_list(outlook, Levels(*known.levels))
    here = kept_here(outlook.waits, outlook.shares, outlook.ended, left, outlook.limit)
    there = kept_there(outlook.ended, left, outlook.start, outlook.slowdown, outlook.limit)
    is_promised = left >= free.ready or (bool(paid) and left >= paid[0].ready - _MOMENT and may_start)
    numbers: _Numbers = (
        ("deadline_in", Quantity(left)),
        ("is_promised", Quantity(float(is_promised), "")),
        ("confidence", Quantity(known.confidence, "chance")),
        ("chance_here", Quantity(here, "chance")),
        ("chance_there", Quantity(there, "chance")),
        ("free_in", Quantity(free.ready)),
    )
    if paid:
        numbers += (
            ("soonest_in", Quantity(paid[0].ready)),
            ("soonest_costs", Quantity(paid[0].cost + start.usd, "USD")),
        )
    return (*numbers, *start.numbers)


def _on_spot(
    job: Job,
    outlook: Outlook,
    start: Start,
    left: float,
    on_demand: tuple[float, float],
    known: PromiseChances,
    state: SiteState,
    settings: Settings,
) -> _OnSpot | None:
    """What a start on spot is like; None: it is not worth its money, may not be paid, or is not known.

    Args:
        left: Seconds until the deadline.
        on_demand: The expected and the largest cost of the run that follows a loss, US dollars.
    """
    cloud, run = state.cloud, outlook.slowdown * mean_run(outlook.ended, outlook.limit)
    pools = pools_worth(job, run, cloud, settings)
    if not pools:
        return None
    capacity, fourth = choose(job, run, cloud, settings, state.time, ratio_of(job, state.ratios))
    if capacity is not Capacity.SPOT:
        return None
    at_risk = job.at_risk_seconds
    lives = SpotLives(lives_of(pools, GRID), may_be_lost(known.confidence), at_risk)
    usd = usd_per_second(job, Capacity.SPOT, cloud, settings)
    lost = 1.0 - float(np.interp(start.seconds + run, GRID, lives.alive))
    cost, worst = _costs(job, outlook, start, usd, state, settings)
    # with checkpoints no more is paid twice than a start and what a loss undoes
    twice = usd * (start.seconds + at_risk) + start.usd
    cost, worst = cost + lost * on_demand[0], min(worst, twice) + on_demand[1]
    late = late_on_spot(outlook, lives, left)
    third = _may_be_paid(job, cost, worst, start, state, settings, late=late)
    return None if third.verdict in STAYS else _OnSpot(lives, third, fourth)


def leaves_time(
    job: Job,
    ended: Floats,
    *,
    left: float,
    kept: float,
    slowdown: float,
    cloud: CloudState,
    settings: Settings,
) -> bool:
    """Whether a promised job with checkpoints, which has lost a spot instance, may start on spot once more.

    As at its first start the chance that one more loss makes it late has to be small. Where it would be late
    in any case spot makes it no later. Without known lives it goes on-demand.

    Args:
        job: With the time limit of its user.
        ended: P(run over) by the edges of the grid, on-premise.
        left: Seconds until the deadline.
        kept: Seconds of on-premise run time that it need not do again.
        cloud: For the nodes that the job needs.
    """
    limit = math.inf if job.requested_time is None else job.requested_time
    rest = rest_of(ended, kept, kept + limit)
    run = slowdown * mean_run(rest, limit)
    pools = pools_worth(job, run, cloud, settings)
    if not pools:
        return False
    start, at_risk = start_of(job, cloud, settings).seconds, job.at_risk_seconds
    late = late_by_loss(rest, lives_of(pools, GRID), left, start, slowdown, limit, at_risk)
    return late <= may_be_lost(settings.promise.confidence)


def may_start_anew(
    ended: Floats, *, left: float, done: float, slowdown: float, lost: float, confidence: float
) -> bool:
    """Whether a promised job in the cloud may be started anew there: that, and a loss, hardly make it late.

    Args:
        ended: P(run over) by the edges of the grid, on-premise, of a run that is longer than ``done``.
        left: Seconds until the deadline.
        done: Its work, seconds of on-premise run time.
        lost: Seconds that a start or a loss costs, with the work since the last checkpoint
            (:func:`~advisor.decide.submission.capacity.seconds_lost`).
    """
    stays = kept_there(ended, left, -slowdown * done, slowdown, math.inf)
    anew = kept_there(ended, left, 2.0 * lost - slowdown * done, slowdown, math.inf)
    return bool(stays - anew <= may_be_lost(confidence))


def _costs(
    job: Job, outlook: Outlook, start: Start, per_second: float, state: SiteState, settings: Settings
) -> tuple[float, float]:
    """The expected and the largest cost of one whole run in the cloud, US dollars."""
    run = outlook.slowdown * mean_run(outlook.ended, outlook.limit)
    longest = outlook.slowdown * min(outlook.limit, float(GRID[-1]))
    raised = stretched(job, settings.placement, ratio_of(job, state.ratios))
    longest = ENDING_SECONDS + max(longest, 0.0 if raised is None else raised.given_seconds)
    expected, worst = (per_second * (start.seconds + seconds) + start.usd for seconds in (run, longest))
    return expected, worst


def _may_be_paid(
    job: Job,
    cost: float,
    worst: float,
    start: Start,
    state: SiteState,
    settings: Settings,
    *,
    late: float | None = None,
) -> Answer:
    """Question 3: what one job may cost, and the budgets.

    Args:
        cost, worst: US dollars.
        late: On spot: the chance that a loss of its instance makes it late.
    """
    numbers: _Numbers = (
        ("predicted_cost", Quantity(cost, "USD")),
        ("worst_cost", Quantity(worst, "USD")),
        *start.prices(tasks=1),
    )
    if not worst:
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
    tokens, payer = state.price.tokens_of(job.payers)
    if not worst <= tokens:
        reason, detail = used_up(payer)
        short = money_short(state.price, job, worst, settings.budget.usd, state.time)
        return _third(Verdict.NO, reason, (*numbers, *short), detail)
    if late is not None:
        numbers = (*numbers, ("late_by_loss", Quantity(late, "chance")), *checkpoint_number(job))
        return _third(Verdict.YES, Reason.PROMISE_ON_SPOT, numbers)
    return _third(Verdict.YES, Reason.PROMISE_PAID, numbers)


def _third(verdict: Verdict, reason: Reason, numbers: _Numbers, detail: str = "") -> Answer:
    question = Question.WORTH_PAYING
    return Answer(question=question, verdict=verdict, reason=reason, detail=detail, numbers=numbers)


def _no(reason: Reason, numbers: _Numbers) -> Answer:
    verdict = Verdict.UNSURE if reason in {Reason.WAIT_UNKNOWN, Reason.RUN_UNKNOWN} else Verdict.NO
    return Answer(question=Question.FASTER, verdict=verdict, reason=reason, numbers=numbers)


def _waits(begins: PromisedStart, numbers: _Numbers) -> Answer:
    """Of a job that does not start in the cloud now."""
    if begins.again_in:
        return _no(Reason.PROMISE_WAITS, (*numbers, ("last_start_in", Quantity(begins.again_in))))
    return _no(Reason.PROMISE_HERE, numbers)


def kind_of(values: Mapping[str, float], *, has_moved: bool) -> Kind | None:
    """The row of the price list that was promised; None where nothing was.

    Args:
        values: The numbers of the job's first advice: what was promised is said at its submission.
        has_moved: Whether a later advice has moved it.
    """
    left, free = values.get("deadline_in", math.nan), values.get("free_in", math.nan)
    if math.isnan(left) or math.isnan(free) or not values.get("is_promised"):
        return None
    if has_moved:
        return Kind.BETWEEN
    if left >= free:
        return Kind.FREE
    return Kind.BETWEEN if "last_start_in" in values else Kind.SOONEST


def warm() -> None:
    """Compile, or load from the cache, what a promise needs."""
    chances = np.full(len(GRID), 1.0 / len(GRID))
    outlook = Outlook(60.0, np.ones(2), np.full(2, 0.5), ended_of(chances), 60.0, 60.0, 1.0, 1.0)
    price_list(outlook, Levels(0.9, 0.9, 0.9))
    spot = SpotLives(np.ones(len(GRID)), 0.0)
    start_for(outlook._replace(spot=spot), 60.0, 0.0, 0.0, Kind.BETWEEN)
