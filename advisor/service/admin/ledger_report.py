"""Sums over the ledger of some weeks, for ``advisor report`` and the ledger page."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from typing import Any, Final

from advisor.decide.explanation.display import clean
from advisor.decide.explanation.reasons import Reason
from advisor.history.ledger import BriefDecision
from advisor.history.ledger_rows import LedgerRow
from advisor.model.advice import Mode, Placement
from advisor.model.estimate import holds

_DAY: Final = 86_400.0
MAX_POINTS: Final = 2_000
"""Jobs in a plot of predicted against actual; of more jobs, every n-th."""
_MAX_ACCOUNTS: Final = 25
_Interval = tuple[float, float]
_NO_INTERVAL: Final = (math.nan, math.nan)


@dataclass(slots=True)
class Day:
    """One day by the site's clock.

    Attributes:
        kept, moved, would_move: Jobs that stayed; that were moved; that would have been moved without shadow
            mode.
        saved_seconds_estimate: Wait avoided (:class:`advisor.history.ledger.LedgerRow`), by the day of the
            advice.
        cost_usd: Cost of the jobs with advice on that day, whenever they ran.
    """

    kept: int = 0
    moved: int = 0
    would_move: int = 0
    saved_seconds_estimate: float = 0.0
    cost_usd: float = 0.0


@dataclass(slots=True)
class Sums:
    """Of a reason or an account: jobs, moved ones, wait avoided (seconds), cost (US dollars)."""

    jobs: int = 0
    moved: int = 0
    saved_seconds_estimate: float = 0.0
    cost_usd: float = 0.0

    def add(self, row: LedgerRow) -> None:
        """Add what an ended job saved and cost; its advice is counted by the caller."""
        self.cost_usd += row.cost_usd or 0.0
        if row.saved_seconds_estimate is not None:
            self.moved += 1
            self.saved_seconds_estimate += row.saved_seconds_estimate


@dataclass(slots=True)
class Errors:
    """Pairs of predicted and actual seconds: their number, sums, and the pairs.

    ``bounded`` of them were predicted with an interval, and ``inside`` of these were in it.
    """

    count: int = 0
    bounded: int = 0
    inside: int = 0
    absolute: float = 0.0
    predicted: float = 0.0
    actual: float = 0.0
    pairs: list[tuple[float, float]] = field(default_factory=list)

    def add(self, predicted: float, actual: float, interval: _Interval = _NO_INTERVAL) -> None:
        """Add a pair, unless one of them is unknown."""
        if not (math.isfinite(predicted) and math.isfinite(actual)):
            return
        lower, upper = interval
        if lower <= upper:
            self.bounded += 1
            self.inside += holds(lower, actual, upper)
        self.count += 1
        self.absolute += abs(predicted - actual)
        self.predicted += predicted
        self.actual += actual
        self.pairs.append((predicted, actual))

    def summary(self) -> dict[str, float | int | None]:
        """Means; None where there is no pair."""
        count = self.count
        return {
            "jobs": count,
            "mean_predicted_seconds": self.predicted / count if count else None,
            "mean_actual_seconds": self.actual / count if count else None,
            "mean_absolute_error_seconds": self.absolute / count if count else None,
            "interval_jobs": self.bounded,
            "interval_coverage": self.inside / self.bounded if self.bounded else None,
        }

    def drawn(self) -> list[tuple[float, float]]:
        """Pairs for a plot, evenly chosen."""
        step = -(-len(self.pairs) // MAX_POINTS) or 1
        return self.pairs[::step]


class LedgerReport:
    """Adds up decisions and what came of them.

    Args:
        since, until: Epoch seconds.
    """

    def __init__(self, since: float, until: float, utc_offset_seconds: float) -> None:
        self.since = since
        self.until = until
        self._offset = utc_offset_seconds
        self.days = defaultdict[int, Day](Day)
        self.reasons = Counter[str]()
        self.accounts = defaultdict[str, Sums](Sums)
        self.waits = Errors()
        self.runs = Errors()
        self.placed_by_users = 0
        self.users_cost_usd = 0.0
        self.outcomes = defaultdict[str, Sums](Sums)
        self.money: Mapping[str, Any] = {}
        self._account_of: dict[str, str] = {}
        self._bounded: dict[str, BriefDecision] = {}

    def paid(self, money: Mapping[str, Any]) -> None:
        """Take in what cloud nodes have cost (`advisor.service.admin.money.money_view`)."""
        self.money = money

    def decided(self, decisions: Iterable[BriefDecision]) -> None:
        """Count advice."""
        for advice in decisions:
            # whose user put it there is counted when the job has ended (`ended`)
            is_ours = advice.reason != Reason.EXPLICIT_BURST
            is_burst = is_ours and advice.placement is Placement.BURST
            day = self._day(advice.time)
            day.moved += is_burst and advice.mode is Mode.ACT
            day.would_move += is_burst and advice.mode is Mode.SHADOW
            day.kept += is_ours and not is_burst
            self.reasons[advice.reason] += 1
            name = clean(advice.account or "-", 40)
            self._account_of[advice.advice_id] = name
            self.accounts[name].jobs += 1
            wait, run = advice.wait, advice.run
            if wait.lower <= wait.upper or run.lower <= run.upper:
                self._bounded[advice.advice_id] = advice

    def ended(self, rows: Iterable[LedgerRow]) -> None:
        """Count what became of advised jobs; after :meth:`decided`."""
        for row in rows:
            if row.is_users_choice:
                self.placed_by_users += 1
                self.users_cost_usd += row.cost_usd or 0.0
                continue
            outcome = self.outcomes[row.reason]
            outcome.jobs += 1
            outcome.add(row)
            self.accounts[self._account_of.get(row.advice_id, "-")].add(row)
            day = self._day(row.time)
            day.cost_usd += row.cost_usd or 0.0
            if row.saved_seconds_estimate is not None:
                day.saved_seconds_estimate += row.saved_seconds_estimate
                continue
            wait = run = _NO_INTERVAL
            if given := self._bounded.get(row.advice_id):
                wait, run = (given.wait.lower, given.wait.upper), (given.run.lower, given.run.upper)
            self.waits.add(row.predicted_wait_seconds, row.judged_wait_seconds, wait)
            self.runs.add(row.predicted_run_seconds, row.judged_run_seconds, run)

    def _day(self, time: float) -> Day:
        return self.days[int((time + self._offset) // _DAY)]

    def summary(self) -> dict[str, Any]:
        """All of it as plain data; days as ISO dates of the site's clock."""
        days = [self.days[number] for number in sorted(self.days)]
        return {
            "since": self.since,
            "until": self.until,
            "decisions": sum(day.kept + day.moved + day.would_move for day in days),
            "kept": sum(day.kept for day in days),
            "moved": sum(day.moved for day in days),
            "would_move": sum(day.would_move for day in days),
            "saved_seconds_estimate": sum(day.saved_seconds_estimate for day in days),
            "cost_usd": sum(day.cost_usd for day in days),
            "money": self.money,
            "placed_by_users": self.placed_by_users,
            "users_cost_usd": self.users_cost_usd,
            "waits": self.waits.summary(),
            "runs": self.runs.summary(),
            "reasons": dict(self.reasons.most_common()),
            "outcomes_by_reason": [
                {"reason": reason, **asdict(one)}
                for reason, one in sorted(self.outcomes.items(), key=lambda item: (-item[1].jobs, item[0]))
            ],
            "days": [{"date": _date(number), **asdict(day)} for number, day in sorted(self.days.items())],
            "accounts": [
                {"account": name, **asdict(one)}
                for name, one in sorted(
                    self.accounts.items(), key=lambda item: (-item[1].cost_usd, -item[1].jobs, item[0])
                )[:_MAX_ACCOUNTS]
            ],
        }


def _date(day: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()
