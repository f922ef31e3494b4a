"""A budget of a period (UTC): what may be committed now, and what even spending would have left.

All of a period's budget is there when the period begins. That it lasts is the price's work, which compares
what is left with what even spending would have left (`advisor.decide.price.demand_price`). The figures
follow from the days' spending alone, so that they are known again as soon as the spending is. The record of
spending asks before each launch, the price loop at each round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from advisor.model.bill import day_of
from advisor.model.periods import period_span, period_usd
from advisor.model.site import Refill

_MAX_LEAD: Final = 2.0
"""The largest spending while little demand is known, over the accrual since demand is observed."""


class PeriodMoney(NamedTuple):
    """A budget at one moment, US dollars.

    Attributes:
        allowance: The money that the present period may spend, with the money carried over.
        carried: The money left of the period before.
        spent: The money spent in the present period.
        left: The money that may be committed now; below 0 if more was spent than there was.
        planned: The money that even spending over the whole period would have left by now.
    """

    allowance: float
    carried: float
    spent: float
    left: float
    planned: float


def period_money(
    *,
    usd: float,
    period: str,
    since: float,
    now: float,
    spent_by_day: Mapping[str, float],
    promised: float,
    observed_since: float = -math.inf,
    carries_over: bool = False,
    usd_before: float | None = None,
) -> PeriodMoney:
    """The present state of a budget. A budget that begins within a period has its share of that period.

    Args:
        usd: The budget of one period.
        period: See :mod:`advisor.model.periods`.
        since: When the budget began, epoch seconds.
        now: Epoch seconds.
        spent_by_day: Day of UTC (``2026-11-23``) to the money spent on it, US dollars.
        promised: The highest cost to come of starts under way, US dollars.
        observed_since: When the observation of demand began, epoch seconds. A price that has seen little
            demand lets too much through, so that no more is there than twice what has accrued since.
        carries_over: Whether what the period before has left of its own budget is there, too.
        usd_before: The budget of the period before; None: as of this one.
    """
    begin, end = period_span(now, period)
    given = period_usd(usd, begin, period)
    own = _own(given, begin, end, since)
    carried = 0.0
    if carries_over and since < begin:
        before, _ = period_span(begin - 1.0, period)
        gave = usd if usd_before is None else usd_before
        share = _own(period_usd(gave, before, period), before, begin, since)
        carried = max(0.0, share - spent_between(spent_by_day, before, begin - 1.0))
    spent = spent_between(spent_by_day, begin, now)
    left = own + carried - spent - promised
    if observed_since >= begin:
        accrued = given * max(0.0, now - observed_since) / (end - begin)
        left = min(left, _MAX_LEAD * accrued - spent_between(spent_by_day, observed_since, now) - promised)
    return PeriodMoney(own + carried, carried, spent, left, given * (end - now) / (end - begin))


def refill_of(money: PeriodMoney, *, usd: float, period: str, now: float, promised: float) -> Refill:
    """How the money left grows while nothing else is started.

    What starts under way cost is promised already. Where less is left than the period has, too little demand
    is known, and the rest comes as it accrues.

    Args:
        usd, period, now, promised: Those of :func:`period_money`.
    """
    _, end = period_span(now, period)
    most = money.allowance - money.spent - promised - money.left
    return Refill(
        usd_per_second=_MAX_LEAD * money.planned / (end - now) if most > 0.0 else 0.0,
        most_usd=most,
        period_ends=end,
        next_usd=period_usd(usd, end, period) - promised - money.left,
    )


def price_share(planned: float, left: float) -> float:
    """The share of the site's price that holds for the jobs of an account, by its money.

    It is below 1 where more is left than even spending would have left: what an account does not spend by the
    end of the period is lost to it, unless it is carried over, while others' jobs keep the site's price up.

    Args:
        planned, left: See :class:`PeriodMoney`.
    """
    return min(1.0, planned / left) if left > 0.0 else 1.0


def _own(usd: float, begin: float, end: float, since: float) -> float:
    return usd * (end - min(max(begin, since), end)) / (end - begin)


def spent_between(spent_by_day: Mapping[str, float], begin: float, until: float) -> float:
    """US dollars spent from one day to another, both days whole; epoch seconds."""
    first, last = day_of(begin), day_of(until)
    return sum(usd for day, usd in spent_by_day.items() if first <= day <= last)
