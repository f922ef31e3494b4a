"""The price in force and the tokens at hand, from the demand that was seen and the record of spending.

What was spent and what is promised is the `SpendingBudget`'s and the cloud's to say: there is no second book
of money here. The tokens follow from it (`advisor.decide.price.period_budget`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import structlog

from advisor.decide.price.demand_price import DemandKept, DemandPrice, Pace
from advisor.decide.price.period_budget import period_span, spent_in_period, tokens_at_hand
from advisor.decide.price.tokens import DAY
from advisor.decide.submission.capacity import usd_per_core_hour
from advisor.files.state_file import StateFile
from advisor.model.advice import Capacity
from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.model.site import CloudState, Price
from advisor.service.running.clock import Clock
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.records import PriceRecord, SeenSlice

log = structlog.get_logger(__name__)

_SAVE_SECONDS: Final = 600.0
_MAX_SEEN: Final = 100_000
_READ_HOURS: Final = 1.0
"""Between two readings of the price: soon enough on a first day without a history."""
_NO_BUDGET: Final = "neither budget.usd nor budget.usd_per_hour_saved is set"
_NO_MONEY: Final = "the advisor launches no nodes here, so it does not know what is spent"


class PriceKeeper:
    """Keeps demand, price and tokens. Thread-safe.

    Args:
        state: Keeps demand and price when the process ends.
        spending: What was spent; None where another program launches the nodes.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        state: StateFile[PriceRecord],
        spending: SpendingBudget | None,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._state = state
        self._spending = spending
        self._clock = clock
        self._lock = threading.Lock()
        now = clock.wall()
        self._since = now
        self._demand = DemandPrice(_pace(settings, now), now)
        self._saved_at = float("-inf")  # monotonic seconds
        self._first_price = 0.0
        self._current: Price | None = None
        self.doubt = "nothing was polled yet"
        self.is_new = not self._take_up(now)

    @property
    def current(self) -> Price | None:
        """The price in force; None: unknown, and no job moves."""
        return self._current

    @property
    def has_budget(self) -> bool:
        """Whether tokens limit what is spent."""
        return self._settings.budget.usd > 0.0

    def polled(self, now: float, cloud: CloudState) -> None:
        """Work out tokens and price anew.

        Args:
            now: Epoch seconds.
            cloud: With what is promised to nodes and to moved jobs that wait.
        """
        self._first_price = 3600.0 / max(1e-9, usd_per_core_hour(Capacity.ON_DEMAND, cloud, self._settings))
        self.doubt = self._doubt()
        if self.doubt:
            self._current = None
            return
        budget = self._settings.budget
        tokens, by_account = float("inf"), dict[str, float]()
        days = {} if self._spending is None else self._spending.days()
        if budget.usd > 0.0:
            spent = {day: sum(accounts.values()) for day, accounts in days.items()}
            tokens = self._tokens(budget.usd, spent, cloud.promised_usd, now)
        for account, usd in budget.accounts.items():
            own = {day: accounts.get(account, 0.0) for day, accounts in days.items()}
            promised = cloud.promised_by_account.get(account, 0.0)
            by_account[account] = self._tokens(usd, own, promised, now)
        self._current = Price(
            seconds_per_usd=self._price(now, tokens),
            tokens_usd=tokens,
            tokens_by_account=MappingProxyType(by_account),
        )

    def note(self, key: str, *, index: float, usd: float, now: float) -> None:
        """Remember a slice that was considered (:meth:`DemandPrice.note`)."""
        with self._lock:
            self._demand.note(key, index=index, cost=usd, now=now)

    def commit(self, usd: float, account: str | None) -> None:
        """Take tokens for a start that may cost so many dollars; the next poll knows it by itself."""
        with self._lock:
            if self._current is not None:
                self._current = self._current.committed(usd, {account or "": usd})

    def rehearsed(self, kept: DemandKept) -> None:
        """Begin with the demand of a rehearsal of the site's history; seen demand is added to it."""
        with self._lock:
            own = self._demand.kept()
            self._demand.take_up(kept._replace(seen=kept.seen | own.seen))
            self.is_new = False
        log.info("price.rehearsed", seconds_per_usd=round(kept.price, 1), slices=len(kept.seen))

    def save(self) -> None:
        """Write the record every ten minutes."""
        if self._clock.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self.save_now()

    def save_now(self) -> None:
        """Write the record.

        Raises:
            OSError: It could not be written; the previous one stays.
        """
        with self._lock:
            kept = self._demand.kept()
        newest = sorted(kept.seen.items(), key=lambda item: item[1][0])[-_MAX_SEEN:]
        self._state.write(
            PriceRecord(
                since=self._since,
                observed_since=kept.since,
                price=kept.price,
                next_reading=kept.next_reading,
                seen={key: SeenSlice(*seen) for key, seen in newest},
            )
        )
        self._saved_at = self._clock.monotonic()

    def report(self) -> Mapping[str, Any]:
        """What `advisor status` shows; times in seconds, money in US dollars."""
        budget, price = self._settings.budget, self._current
        now = self._clock.wall()
        days = {} if self._spending is None else self._spending.days()
        spent = {day: sum(accounts.values()) for day, accounts in days.items()}
        return {
            "budget_usd": budget.usd or None,
            "period": budget.period,
            "spent_usd": spent_in_period(spent, now, budget.period),
            "tokens_usd": price.tokens_usd if price is not None and budget.usd else None,
            "tokens_by_account": dict(price.tokens_by_account) if price is not None else {},
            "seconds_per_usd": price.seconds_per_usd if price is not None else None,
            "usd_per_hour": 3600.0 / price.seconds_per_usd if price is not None else None,
            "slices_seen": len(self._demand.kept().seen),
            "unknown": self.doubt or None,
        }

    def _doubt(self) -> str:
        if not self._settings.budget.is_set:
            return _NO_BUDGET
        if not self._settings.budget.usd:
            return ""
        if self._spending is None:
            return _NO_MONEY
        return self._spending.doubt

    def _tokens(self, usd: float, spent: Mapping[str, float], promised: float, now: float) -> float:
        return tokens_at_hand(
            usd=usd,
            period=self._settings.budget.period,
            since=self._since,
            now=now,
            spent_by_day=spent,
            promised=promised,
            ahead=self._ahead(usd, now),
        )

    def _ahead(self, usd: float, now: float) -> float:
        """What is there of a budget before it accrues, US dollars."""
        begin, end = period_span(now, self._settings.budget.period)
        period_days = (end - begin) / DAY
        return usd * self._demand.days_ahead(now, period_days) / period_days

    def _price(self, now: float, tokens: float) -> float:
        fixed = self._settings.budget.usd_per_hour_saved
        if fixed:
            return 3600.0 / fixed
        budget = self._settings.budget
        begin, end = period_span(now, budget.period)
        with self._lock:
            if not self._demand.is_known:
                return self._first_price
            return self._demand.price(
                now,
                held=tokens,
                per_day=budget.usd * DAY / (end - begin),
                ahead=self._ahead(budget.usd, now),
            )

    def _take_up(self, now: float) -> bool:
        """Go on where another process has ended; False where there was none, or its record is damaged."""
        try:
            found = self._state.load()
        except AdvisorError as error:
            self._state.set_aside(str(error))
            # the tokens follow from the record of spending, as if the budget began with this period
            self._since, _ = period_span(now, self._settings.budget.period)
            return False
        if found is None:
            return False
        self._since = found.since
        seen = {key: (one.time, one.index, one.usd) for key, one in found.seen.items()}
        self._demand.take_up(DemandKept(found.observed_since, found.price, found.next_reading, seen))
        return True


def _pace(settings: Settings, now: float) -> Pace:
    """The pace at which the price follows; of a short period's budget, half is the reserve."""
    begin, end = period_span(now, settings.budget.period)
    usual = Pace(hours=_READ_HOURS)
    return replace(usual, reserve_days=min(usual.reserve_days, 0.5 * (end - begin) / DAY))
