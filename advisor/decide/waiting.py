"""Question 3: is it worth paying for? (Ambati et al. 2021, section 2.1).

Short waits wait (SWW): a job that would wait less than ``b`` waits. Long jobs wait (LJW): a job that runs
longer than ``t`` waits. Then the site's purse: what was spent today and what this job would add.
"""

from __future__ import annotations

import math
from typing import Final

from advisor.decide.reasons import Reason
from advisor.model.advice import Answer, Quantity, Question, Verdict
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import WaitingSettings
from advisor.model.site import CloudState

_QUESTION: Final = Question.WORTH_PAYING
_SKIPPED: Final = Verdict.SKIPPED
_NO_GATE: Final = Reason.NO_GATE


def worth_paying(
    job: Job, estimates: Estimates, cost_usd: float, cloud: CloudState, settings: WaitingSettings
) -> Answer:
    """Ask the waiting policy, then the caps.

    Parameters
    ----------
    job : Job
        For its account.
    estimates : Estimates
        Predicted wait and run time, seconds.
    cost_usd : float
        Predicted cost of this job in the capacity it would get, US dollars; NaN when unknown.
    cloud : CloudState
        What was spent since midnight.
    settings : WaitingSettings
        b, t and the caps.
    """
    if not _has_gate(settings):
        cost = ("predicted_cost", Quantity(cost_usd, "USD"))
        return Answer(question=_QUESTION, verdict=_SKIPPED, reason=_NO_GATE, numbers=(cost,))
    return (
        _short_wait(estimates, settings)
        or _long_job(estimates, settings)
        or _purse(job, cost_usd, cloud, settings)
    )


def _answer(verdict: Verdict, reason: Reason, detail: str = "", **numbers: Quantity) -> Answer:
    return Answer(
        question=_QUESTION,
        verdict=verdict,
        reason=reason,
        detail=detail,
        numbers=tuple(numbers.items()),
    )


def _short_wait(estimates: Estimates, settings: WaitingSettings) -> Answer | None:
    """SWW. Its wait is known here: question 2 answered with it."""
    if not estimates.wait.seconds < settings.short_wait_seconds:
        return None
    return _answer(
        Verdict.NO,
        Reason.SHORT_WAIT,
        predicted_wait=Quantity(estimates.wait.seconds),
        short_wait=Quantity(settings.short_wait_seconds),
    )


def _long_job(estimates: Estimates, settings: WaitingSettings) -> Answer | None:
    """LJW. A length nobody can predict is doubt, which speculation may answer (`decide.hedge_offer`)."""
    if math.isinf(settings.long_job_seconds):
        return None
    limit = Quantity(settings.long_job_seconds)
    if not estimates.run.is_usable:
        return _answer(Verdict.UNSURE, Reason.LENGTH_UNKNOWN, long_job=limit)
    if estimates.run.seconds > settings.long_job_seconds:
        return _answer(
            Verdict.NO, Reason.LONG_JOB, predicted_run=Quantity(estimates.run.seconds), long_job=limit
        )
    return None


def _purse(job: Job, cost_usd: float, cloud: CloudState, settings: WaitingSettings) -> Answer:
    """Caps count what was spent today, what is promised, and this job; 0 is no cap."""
    cost = Quantity(cost_usd, "USD")
    account_cap = settings.account_daily_cap_usd.get(job.account, 0.0) if job.account else 0.0
    caps = (
        (Reason.DAILY_CAP, settings.daily_cap_usd, cloud.spent_today_usd, cloud.promised_usd, ""),
        (
            Reason.ACCOUNT_CAP,
            account_cap,
            cloud.spent_today_by_account.get(job.account or "", 0.0),
            cloud.promised_by_account.get(job.account or "", 0.0),
            job.account or "",
        ),
    )
    for reason, cap, spent, promised, detail in caps:
        if not cap:
            continue
        if math.isnan(cost_usd):
            return _answer(Verdict.UNSURE, Reason.COST_UNKNOWN, detail, daily_cap=Quantity(cap, "USD"))
        if spent + promised + cost_usd > cap:
            return _answer(
                Verdict.NO,
                reason,
                detail,
                predicted_cost=cost,
                spent_today=Quantity(spent, "USD"),
                promised=Quantity(promised, "USD"),
                daily_cap=Quantity(cap, "USD"),
            )
    return _answer(Verdict.YES, Reason.WORTH_PAYING, predicted_cost=cost)


def _has_gate(settings: WaitingSettings) -> bool:
    return bool(settings.short_wait_seconds or math.isfinite(settings.long_job_seconds) or has_cap(settings))


def has_cap(settings: WaitingSettings) -> bool:
    """Whether an answer may rest on what was spent."""
    return bool(settings.daily_cap_usd or settings.account_daily_cap_usd)
