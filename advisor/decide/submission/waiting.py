"""Question 3: is it worth paying for? (Ambati et al. 2021, sections 2.1 and 3).

Long jobs wait (LJW): a job that likely runs at most ``t`` is short and never waits. Short waits wait (SWW):
no job waits longer than ``b``, and a job that likely would goes at once. With both, short jobs never wait and
all others wait at most b. `advisor.decide.submission.waiting_policy` says which it is; ``advisor replay
waiting`` calls it as well. Nodes that are paid for already are never left idle by it. Then the budgets: what
was spent in their present periods, what is promised, and what this job would add.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Final

import msgspec

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.waiting_policy import LEAVES, SPECULATES, WAITS, by_length, by_wait
from advisor.model.advice import Answer, Capacity, Hedge, Quantity, Question, Verdict
from advisor.model.estimate import Estimate, Estimates
from advisor.model.job import Job
from advisor.model.periods import payer_words
from advisor.model.settings_decision import WaitingSettings
from advisor.model.settings_price import BudgetSettings
from advisor.model.site import CloudState

_QUESTION: Final = Question.WORTH_PAYING
_SKIPPED: Final = Verdict.SKIPPED
_NO_GATE: Final = Reason.NO_GATE
_RESERVED: Final = Capacity.RESERVED
_Numbers = tuple[tuple[str, Quantity], ...]
_NOTHING: Final[_Numbers] = ()
_SURELY_SHORT: Final = 0.995
"""A trial needs no stop at t from this chance on: a stop would end one such job in two hundred."""
_TAKEN_FOR_SHORT: Final = 0.9
"""Chance that a job is short whose run time is known as a single number under t: likely, never sure."""


class WaitingCase(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The input of question 3.

    Attributes:
        job: Its processors, and its account for the budgets.
        estimates: Predicted wait from now on, and run time, seconds.
        capacity: The one that question 4 would choose; None where none is open.
        cost_usd: Predicted cost of this job in that capacity, US dollars; NaN when unknown.
        trial: The speculative start it may have; None: it may have none.
        trial_cost_usd: Predicted cost of the trial, which ends at t.
        waited_seconds: How long it has waited already; 0 at its submission.
        performance_ratio: s(c): a trial lasts t in the cloud, where the job runs so many times longer.
    """

    job: Job
    estimates: Estimates
    capacity: Capacity | None
    cost_usd: float
    trial: Hedge | None = None
    trial_cost_usd: float = math.nan
    waited_seconds: float = 0.0
    performance_ratio: float = 1.0


def worth_paying(
    case: WaitingCase, cloud: CloudState, settings: WaitingSettings, budget: BudgetSettings
) -> tuple[Answer, bool]:
    """Ask the waiting policy, then the budget.

    Args:
        cloud: The state of the cloud, with the spending of the budget's present period.

    Returns:
        answer: The answer to question 3, with its numbers.
        tries: Whether the job goes to be tried out: it starts with ``case.trial``.
    """
    gated = has_gate(settings)
    if not (gated or budget.limits_spending):
        return _answer(_SKIPPED, _NO_GATE, (("predicted_cost", Quantity(case.cost_usd, "USD")),)), False
    does, numbers = LEAVES, _NOTHING
    if gated and case.capacity is not _RESERVED:
        # a node that is paid for never idles while a job waits that may use it
        does, numbers = choice(case, settings)
    if does == WAITS:
        return _waits(case, settings, numbers), False
    tries = does == SPECULATES and not _is_surely_short(numbers)
    cost_usd = case.trial_cost_usd if tries else case.cost_usd
    paid = within_budget(case.job, cost_usd, cloud, budget)
    if paid.verdict is not Verdict.YES:
        return paid, False
    if tries and case.trial is not None:
        stop = ("stop_loss", Quantity(case.trial.stop_seconds))
        return _answer(Verdict.YES, Reason.SPECULATED, (*numbers, *paid.numbers, stop)), True
    return _answer(Verdict.YES, Reason.WORTH_PAYING, (*numbers, *paid.numbers)), False


def choice(case: WaitingCase, settings: WaitingSettings) -> tuple[int, _Numbers]:
    """The policy's action for the job (`advisor.decide.submission.waiting_policy`), with its chances.

    Args:
        settings: At least one of b and t is set. Without b only LJW applies, and no job leaves for its wait;
            without t only SWW applies, and no job counts as short.
    """
    numbers = _NOTHING
    if math.isfinite(settings.long_job_seconds):
        slower = 1.0 if case.trial is None else case.performance_ratio
        short_chance = short_chance_of(case.estimates.run, settings.long_job_seconds / slower)
        numbers = (
            ("long_job", Quantity(settings.long_job_seconds)),
            ("short_probability", Quantity(short_chance, "chance")),
        )
        does = by_length(short_chance, case.trial is not None)
        if does != WAITS:
            return does, numbers
    if not settings.short_wait_seconds:
        return WAITS, numbers
    b, waited, wait = settings.short_wait_seconds, case.waited_seconds, case.estimates.wait
    in_time = in_time_chance(wait, b - waited)
    does = by_wait(waited, b, in_time)
    numbers = (*numbers, ("predicted_wait", Quantity(wait.seconds)), ("short_wait", Quantity(b)))
    if wait.is_usable:
        numbers = (*numbers, ("in_time_probability", Quantity(in_time, "chance")))
    return does, (*numbers, ("waited", Quantity(waited))) if waited else numbers


def short_chance_of(run: Estimate, limit: float) -> float:
    """Chance that a run takes at most ``limit`` seconds; NaN where nothing is known of it."""
    if run.quantiles:
        return bisect_right(run.quantiles, limit) / len(run.quantiles)
    if not run.is_usable:
        return math.nan
    if run.lower < run.seconds < run.upper:
        return _chance_within(run, limit)
    return _TAKEN_FOR_SHORT if run.seconds <= limit else 0.0


def _chance_within(run: Estimate, limit: float) -> float:
    """Chance of at most ``limit`` seconds, linear from the interval's bounds to the estimate between them."""
    outside = (1.0 - run.coverage) / 2.0
    if limit <= run.seconds:
        share = (limit - run.lower) / (run.seconds - run.lower)
        return outside + max(0.0, share) * (0.5 - outside)
    share = (limit - run.seconds) / (run.upper - run.seconds)
    return 0.5 + min(1.0, share) * (0.5 - outside)


def in_time_chance(wait: Estimate, left: float) -> float:
    """Chance to start within ``left`` seconds.

    A wait that is not known is taken to be in time: doubt means on-premise.
    """
    if left <= 0.0:
        return 0.0
    if wait.quantiles:
        return bisect_left(wait.quantiles, left) / len(wait.quantiles)
    return 1.0 if not wait.is_usable or wait.seconds < left else 0.0


def _is_surely_short(numbers: _Numbers) -> bool:
    return dict(numbers)["short_probability"].value >= _SURELY_SHORT


def _waits(case: WaitingCase, settings: WaitingSettings, numbers: _Numbers) -> Answer:
    """Why a job waits: its length, the wait before it, or both."""
    run, has_gate_by_length = case.estimates.run, math.isfinite(settings.long_job_seconds)
    if has_gate_by_length and not run.is_usable:
        return _answer(Verdict.UNSURE, Reason.LENGTH_UNKNOWN, numbers)
    if settings.short_wait_seconds and not case.estimates.wait.is_usable:
        return _answer(Verdict.UNSURE, Reason.WAIT_UNKNOWN, numbers)
    if not has_gate_by_length:
        return _answer(Verdict.NO, Reason.SHORT_WAIT, numbers)
    numbers = (("predicted_run", Quantity(run.seconds)), *numbers)
    reason = Reason.LONG_JOB_IN_TIME if settings.short_wait_seconds else Reason.LONG_JOB
    return _answer(Verdict.NO, reason, numbers)


def within_budget(job: Job, cost_usd: float, cloud: CloudState, budget: BudgetSettings) -> Answer:
    """Ask the budget of the present period: what was spent in it, what is promised, and this job.

    What costs nothing exceeds no budget, even one of which more was spent than there was.
    """
    cost = ("predicted_cost", Quantity(cost_usd, "USD"))
    for payer in ("", *job.payers) if cost_usd else ():
        usd = budget.of(payer)
        if usd is None:
            continue
        reason, spent, promised = Reason.BUDGET_SPENT, cloud.spent_usd, cloud.promised_usd
        if payer:
            reason = Reason.ACCOUNT_BUDGET_SPENT
            spent = cloud.spent_by_account.get(payer, 0.0)
            promised = cloud.promised_by_account.get(payer, 0.0)
        of, detail = ("budget", Quantity(usd, "USD")), payer_words(payer) if payer else ""
        if math.isnan(cost_usd):
            return _answer(Verdict.UNSURE, Reason.COST_UNKNOWN, (of,), detail)
        if spent + promised + cost_usd > usd:
            so_far = ("spent", Quantity(spent, "USD")), ("promised", Quantity(promised, "USD"))
            return _answer(Verdict.NO, reason, (cost, *so_far, of), detail)
    return _answer(Verdict.YES, Reason.WORTH_PAYING, (cost,))


def _answer(verdict: Verdict, reason: Reason, numbers: _Numbers, detail: str = "") -> Answer:
    return Answer(question=_QUESTION, verdict=verdict, reason=reason, detail=detail, numbers=numbers)


def has_gate(settings: WaitingSettings) -> bool:
    """Whether some jobs wait by policy: b or t is set."""
    return bool(settings.short_wait_seconds) or math.isfinite(settings.long_job_seconds)
