"""The policy "price" at a submission: the best option of a job, and whether it is worth its money now.

A job that may be requeued gets slices if the site allows hedged starts (``hedge.enabled``); any other job
gets one slice up to its time limit. The option's expected saving per dollar has to reach the price
(:class:`~advisor.model.site.Price`), its worst case has to be covered by the budget's tokens, and the
standard deviation of its saving has to be within the limit. In doubt the job stays.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.decide.explanation.reasons import Reason, used_up
from advisor.decide.price.slices import CloudOffer, Slice, best_slice, usd_for_shorter
from advisor.decide.promise.promised import promised
from advisor.decide.promise.promised import warm as warm_promise
from advisor.decide.submission.capacity import choose, wait_and_boot
from advisor.decide.submission.cloud_terms import (
    Start,
    money_short,
    most_usd_per_second,
    ratio_of,
    slowdown_of,
    start_of,
    stretched,
    usd_per_second,
)
from advisor.decide.submission.placement import state_unknown
from advisor.decide.submission.rules import deadline_for, keeps_place
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
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.predict.run_times.grid import GRID

_FASTER: Final = Question.FASTER
_WORTH_PAYING: Final = Question.WORTH_PAYING
_HOUR: Final = 3600.0
_NO_MONEY: Final = frozenset({Reason.NO_TIME_LIMIT, Reason.BUDGET_USED_UP, Reason.PAYER_BUDGET_USED_UP})
_ROUNDING: Final = 1e-9
_FREE_USD: Final = 1e-12
"""The price per second of nodes that are paid for already: any saving is worth it."""
_Numbers = tuple[tuple[str, Quantity], ...]


class _Case(NamedTuple):
    """The job that is asked about, the chances of its run time, shape ``(bins,)``, and what is known."""

    job: Job
    chances: Floats
    state: SiteState
    estimates: Estimates
    settings: Settings


class _Option(NamedTuple):
    """A way to start a job in the cloud.

    It waits ``wait_seconds`` for its nodes, and has its ``start`` on them. One task costs ``usd_per_second``
    there, and ``most_usd_per_second`` where its capacity has no room. ``limit_there`` is the time limit of a
    whole run there, seconds.
    """

    slowdown: float
    wait_seconds: float
    start: Start
    usd_per_second: float
    most_usd_per_second: float
    limit: float
    limit_there: float
    is_whole: bool
    offer: CloudOffer
    best: Slice

    @property
    def start_seconds(self) -> float:
        """Seconds until the job works in the cloud."""
        return self.wait_seconds + self.start.seconds

    @property
    def is_free(self) -> bool:
        """Whether it costs nothing more."""
        return not (self.usd_per_second or self.start.usd)

    @property
    def run_seconds(self) -> float:
        """Longest run time in the cloud, seconds."""
        return self.slowdown * self.best.stop

    @property
    def worst_usd(self) -> float:
        """Cost of one task that does not end before its stop, US dollars."""
        if not self.usd_per_second:
            return self.start.usd
        # the launch of a whole run holds the money for its limit there
        longest = max(self.run_seconds, self.limit_there) if self.is_whole else self.run_seconds
        paid_seconds = self.start.seconds + longest + ENDING_SECONDS
        return self.most_usd_per_second * paid_seconds + self.start.usd


def priced(
    job: Job, first: Answer, state: SiteState, estimates: Estimates, settings: Settings
) -> tuple[tuple[Answer, ...], Capacity | None, Hedge | None]:
    """Ask questions 2 to 4 at the present price.

    Args:
        job: Question 1 lets it move.
        estimates: The wait from now on, and the run time with ``run_chances``.
    """
    deadline = deadline_for(job, settings)
    if deadline is not None:
        return promised(job, deadline, first, state, estimates, settings)
    if state.cluster is None:
        return (first, state_unknown()), None, None
    if not (estimates.wait.is_usable and estimates.wait.seconds >= 0.0):
        return (first, _unknown(Reason.WAIT_UNKNOWN)), None, None
    chances = np.array(estimates.run_chances)
    if chances.shape != GRID.shape or not chances.sum() > 0.0:
        return (first, _unknown(Reason.RUN_UNKNOWN)), None, None
    ratio = ratio_of(job, state.ratios)
    slowdown = slowdown_of(job, ratio, settings.placement)
    cloud_run = slowdown * estimates.run.seconds
    capacity, fourth = choose(job, cloud_run, state.cloud, settings, state.time, ratio)
    case = _Case(job, chances, state, estimates, settings)
    option = _option(case, capacity, slowdown, cloud_run)
    answers = _faster_and_worth_it(case, option)
    if answers[-1].reason in _NO_MONEY and not option.offer.is_whole:
        shorter = _covered(case, option)
        others = _faster_and_worth_it(case, shorter)
        if others[-1].verdict not in STAYS:
            option, answers = shorter, others
    if answers[-1].verdict in STAYS:
        return (first, *answers), None, None
    hedge = None
    if capacity is not None and not option.is_whole:
        hedge = Hedge(kind=HedgeKind.SLICE, stop_seconds=option.run_seconds)
    return (first, *answers, fourth), capacity, hedge


def _faster_and_worth_it(case: _Case, option: _Option) -> tuple[Answer, ...]:
    """Questions 2 and 3; 3 only where 2 does not keep the job here."""
    second = _sure_enough(case, option)
    if second.verdict in STAYS:
        return (second,)
    return second, _worth_its_price(case, option)


def _option(case: _Case, capacity: Capacity | None, slowdown: float, cloud_run: float) -> _Option:
    """The best slice and its capacity: on-demand if none is available, so that answers have numbers."""
    job, state, settings = case.job, case.state, case.settings
    cloud = state.cloud
    wait_there, boots = wait_and_boot(job, cloud_run, cloud, settings, state.time)
    start = start_of(job, cloud, settings, boots=boots)
    tried = capacity or Capacity.ON_DEMAND
    usd = usd_per_second(job, tried, cloud, settings)
    limit = math.inf if job.requested_time is None else job.requested_time
    is_whole = not keeps_place(job, settings, state.full)
    limit_there = stretched(job, settings.placement, ratio_of(job, state.ratios)) if is_whole else None
    offer = CloudOffer(
        start_seconds=wait_there + start.seconds,
        slowdown=slowdown,
        cost_per_second=usd or _FREE_USD,
        # the cost of its data's transfer, as if it were paid by time as well
        paid_start_seconds=start.seconds + start.usd / (usd or _FREE_USD),
        # nodes that are paid for cost nothing more: the job keeps them as long as it saves time
        is_whole=is_whole or not usd,
        checkpoint_seconds=job.at_risk_seconds,
    )
    return _Option(
        slowdown=slowdown,
        wait_seconds=wait_there,
        start=start,
        usd_per_second=usd,
        most_usd_per_second=most_usd_per_second(usd, job, tried, cloud, settings),
        limit=limit,
        limit_there=limit if limit_there is None else limit_there.given_seconds,
        is_whole=is_whole,
        offer=offer,
        best=_best(case, offer, limit),
    )


def _best(case: _Case, offer: CloudOffer, limit: float, longest: float = math.inf) -> Slice:
    return best_slice(
        case.chances,
        GRID,
        limit=limit,
        elapsed=0.0,
        wait=case.estimates.wait.seconds,
        offer=offer,
        loss_weight=case.settings.price.loss_weight,
        longest=longest,
    )


def _covered(case: _Case, option: _Option) -> _Option:
    """The option with the best slice that may be bought with the money at hand; its value may be negative."""
    usd = usd_for_shorter(case.state.price, case.job.payers) / case.job.array_tasks
    paid = (usd - option.start.usd) / option.most_usd_per_second
    longest = (paid - option.start.seconds - ENDING_SECONDS) / option.slowdown
    return option._replace(best=_best(case, option.offer, option.limit, longest * (1.0 - _ROUNDING)))


def _sure_enough(case: _Case, option: _Option) -> Answer:
    """Question 2: is the best slice expected to save time, and is the saving certain enough?"""
    best, estimates = option.best, case.estimates
    numbers: _Numbers = (
        ("predicted_wait", Quantity(estimates.wait.seconds)),
        ("wait_deviation", Quantity(estimates.wait.deviation)),
        ("predicted_run", Quantity(estimates.run.seconds)),
        ("run_deviation", Quantity(estimates.run.deviation)),
        ("performance_ratio", Quantity(option.slowdown, "")),
    )
    if option.start_seconds == math.inf:
        return _answer(_FASTER, Verdict.NO, Reason.NO_ROOM_THERE, numbers)
    numbers += (("start_there", Quantity(option.start_seconds)), *option.start.numbers)
    if not (best.value > 0.0 and best.saving > 0.0):
        return _answer(_FASTER, Verdict.NO, Reason.SAVES_NO_TIME, numbers)
    numbers += (("predicted_saving", Quantity(best.saving)),)
    if not option.is_whole:
        numbers += (
            ("slice", Quantity(option.run_seconds)),
            ("slice_chance", Quantity(best.chance, "chance")),
        )
    limit = 60.0 * case.settings.price.uncertainty_limit_minutes
    if limit < math.inf:
        deviation = saving_deviation(
            case.chances,
            GRID,
            best.stop,
            option.limit,
            estimates.wait.seconds,
            estimates.wait.variance,
            option.start_seconds,
            option.slowdown,
        )
        numbers += (("saving_deviation", Quantity(deviation)), ("uncertainty_limit", Quantity(limit)))
        if not deviation <= limit:
            return _answer(_FASTER, Verdict.UNSURE, Reason.TOO_UNCERTAIN, numbers)
    return _answer(_FASTER, Verdict.YES, Reason.SAVES_TIME, numbers)


def _worth_its_price(case: _Case, option: _Option) -> Answer:
    """Question 3: price, tokens and budgets. The numbers are sums over all tasks of the job."""
    job, state, settings = case.job, case.state, case.settings
    tasks, price = job.array_tasks, state.price
    cost = 0.0 if option.is_free else tasks * option.best.cost
    worst = tasks * option.worst_usd
    numbers: _Numbers = (
        ("predicted_cost", Quantity(cost, "USD")),
        ("worst_cost", Quantity(worst, "USD")),
        *option.start.prices(tasks),
    )
    if option.is_free:
        return _answer(_WORTH_PAYING, Verdict.YES, Reason.PAID_FOR, numbers)
    if not settings.budget.is_set:
        return _answer(_WORTH_PAYING, Verdict.NO, Reason.NO_BUDGET, numbers)
    if price is None or not price.seconds_per_usd >= 0.0:
        return _answer(_WORTH_PAYING, Verdict.UNSURE, Reason.PRICE_UNKNOWN, numbers)
    seconds = price.seconds_of(job.payers)
    hour = _HOUR / seconds if seconds > 0.0 else math.inf
    numbers = (
        *numbers,
        ("hour_costs", Quantity(_HOUR / option.best.value, "USD")),
        ("hour_may_cost", Quantity(hour, "USD")),
    )
    if not option.best.value >= seconds:
        return _answer(_WORTH_PAYING, Verdict.NO, Reason.TOO_DEAR, numbers)
    tokens, payer = price.tokens_of(job.payers)
    if not worst <= tokens:
        reason, detail = used_up(payer) if worst < math.inf else (Reason.NO_TIME_LIMIT, "")
        numbers = (*numbers, *money_short(price, job, worst, settings.budget.usd, state.time))
        return _answer(_WORTH_PAYING, Verdict.NO, reason, numbers, detail)
    return _answer(_WORTH_PAYING, Verdict.YES, Reason.WORTH_ITS_PRICE, numbers)


def _unknown(reason: Reason) -> Answer:
    return _answer(_FASTER, Verdict.UNSURE, reason, ())


def _answer(
    question: Question, verdict: Verdict, reason: Reason, numbers: _Numbers, detail: str = ""
) -> Answer:
    return Answer(question=question, verdict=verdict, reason=reason, detail=detail, numbers=numbers)


@compiled
def saving_deviation(
    probabilities: Floats,
    edges: Floats,
    stop: float,
    limit: float,
    wait: float,
    wait_variance: float,
    start: float,
    slowdown: float,
) -> float:
    """Standard deviation of a slice's saving, seconds; without the job's end by the stop it saves nothing.

    The wait (variance in seconds squared) and the run time are taken as independent; NaN: unknown.
    """
    total, chance, mean, square = 0.0, 0.0, 0.0, 0.0
    for k in range(probabilities.shape[0]):
        total += probabilities[k]
    for k in range(probabilities.shape[0]):
        low = edges[k - 1] if k else edges[0] * edges[0] / edges[1]
        if probabilities[k] == 0.0 or min(edges[k], limit) > stop:
            continue
        run = min(math.sqrt(low * edges[k]), limit)
        saved = wait + run - start - slowdown * run
        share = probabilities[k] / total
        chance += share
        mean += share * saved
        square += share * saved * saved
    return math.sqrt(max(0.0, square - mean * mean) + chance * wait_variance)


def warm() -> None:
    """Compile the functions that a decision by the price needs, or load them from the cache."""
    chances = np.full(len(GRID), 1.0 / len(GRID))
    offer = CloudOffer(60.0, 1.0, 1.0, 60.0, is_whole=False)
    best_slice(chances, GRID, limit=60.0, elapsed=0.0, wait=60.0, offer=offer, loss_weight=1.0)
    saving_deviation(chances, GRID, 60.0, 60.0, 60.0, 1.0, 60.0, 1.0)
    warm_promise()
