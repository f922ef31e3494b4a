"""The price in force and the tokens at hand, from the demand that was seen and the record of spending.

The price loop keeps it; *tokens* are the dollars that may be committed now.

What was spent and what is promised is the `SpendingBudget`'s and the cloud's to say: there is no second book
of money here. The tokens follow from it (`advisor.decide.price.period_budget`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import structlog

from advisor.decide.price.demand_price import DemandKept, DemandPrice, Pace
from advisor.decide.price.period_budget import PeriodMoney, price_share, refill_of
from advisor.decide.price.tokens import DAY
from advisor.decide.submission.cloud_terms import usd_per_core_hour
from advisor.files.state_file import StateFile
from advisor.model.advice import Capacity
from advisor.model.errors import AdvisorError
from advisor.model.periods import period_span
from advisor.model.settings import Settings
from advisor.model.site import CloudState, Price
from advisor.service.running.clock import Clock
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.budget_records import limits_of
from advisor.service.state.records import PriceRecord

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
        self._limits = limits_of(settings)
        self._demand = DemandPrice(Pace(hours=_READ_HOURS), now)
        self._saved_at = float("-inf")  # monotonic seconds
        self._first_price = 0.0
        self._carried_usd = 0.0
        self._current: Price | None = None
        self.doubt = "nothing was polled yet"
        self.is_new = not self._take_up()

    @property
    def current(self) -> Price | None:
        """The price in force; None: unknown, and no job moves."""
        return self._current

    @property
    def has_budget(self) -> bool:
        """Whether tokens limit what is spent."""
        return self._settings.budget.usd > 0.0

    @property
    def _is_lost_at_the_end(self) -> bool:
        """Whether money that an account has left is lost, and no hour has a fixed price."""
        budget = self._settings.budget
        return not (budget.carry_over or budget.usd_per_hour_saved)

    def polled(self, now: float, cloud: CloudState) -> None:
        """Work out tokens and price anew.

        Args:
            now: Epoch seconds.
            cloud: State of the cloud, with the money promised to nodes and to moved jobs that wait.
        """
        self._first_price = 3600.0 / max(1e-9, usd_per_core_hour(Capacity.ON_DEMAND, cloud, self._settings))
        self.doubt = self._doubt()
        if self.doubt:
            self._current = None
            return
        with self._lock:
            self._demand.clock_is_at(now)
        money, refill, by_payer, shares = None, None, dict[str, float](), dict[str, float]()
        if self._spending is not None:
            books = self._spending.books()
            known = {*books.payers(), *cloud.promised_by_account}
            for limit in self._limits:
                if limit.usd:  # the price paces the site's money alone
                    money = books.money(
                        limit, "", now, promised=cloud.promised_usd, observed_since=self._demand.since
                    )
                    self._carried_usd = money.carried
                    refill = refill_of(
                        money, usd=limit.usd, period=limit.period, now=now, promised=cloud.promised_usd
                    )
                for payer in {*limit.payers, *limit.others(known)}:
                    promised = cloud.promised_by_account.get(payer, 0.0)
                    own = books.money(limit, payer, now, promised=promised)
                    by_payer[payer], shares[payer] = own.left, price_share(own.planned, own.left)
        self._current = Price(
            seconds_per_usd=self._price(now, money),
            tokens_usd=math.inf if money is None else money.left,
            tokens_by_account=MappingProxyType(by_payer),
            share_by_account=MappingProxyType(shares if self._is_lost_at_the_end else {}),
            refill=refill,
        )

    def note(self, key: str, *, index: float, usd: float, now: float) -> None:
        """Remember a slice that was considered (:meth:`DemandPrice.note`)."""
        with self._lock:
            self._demand.note(key, index=index, cost=usd, now=now)

    def commit(self, usd: float, payers: Iterable[str]) -> None:
        """Take tokens for a start that may cost so many dollars; the next poll knows it by itself."""
        with self._lock:
            if self._current is not None:
                self._current = self._current.committed(usd, dict.fromkeys(payers, usd))

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
            self._demand.forget(self._clock.wall())  # a fixed price is never read off it
            kept = self._demand.kept()
        newest = sorted(kept.seen.items(), key=lambda item: item[1][0])[-_MAX_SEEN:]
        self._state.write(
            PriceRecord(
                observed_since=kept.since,
                price=kept.price,
                next_reading=kept.next_reading,
                seen=dict(newest),
            )
        )
        self._saved_at = self._clock.monotonic()

    def report(self) -> Mapping[str, Any]:
        """What `advisor status` shows; times in seconds, money in US dollars."""
        budget, price = self._settings.budget, self._current
        spent = 0.0
        if self._spending is not None:
            (spent, _), _ = self._spending.exposure(budget.period)
        return {
            "budget_usd": budget.usd + self._carried_usd if budget.usd else None,
            "period": budget.period,
            "spent_usd": spent,
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
        if not self._limits:
            return ""
        if self._spending is None:
            return _NO_MONEY
        return self._spending.doubt

    def _price(self, now: float, money: PeriodMoney | None) -> float:
        budget = self._settings.budget
        if budget.usd_per_hour_saved:
            return 3600.0 / budget.usd_per_hour_saved
        if money is None:
            return math.inf
        begin, end = period_span(now, budget.period)
        with self._lock:
            if not self._demand.is_known:
                return self._first_price
            return self._demand.price(
                now, held=money.left, reserve=money.planned, per_day=budget.usd * DAY / (end - begin)
            )

    def _take_up(self) -> bool:
        """Go on where another process has ended; False where there was none, or its record is damaged."""
        try:
            found = self._state.load()
        except AdvisorError as error:
            self._state.set_aside(str(error))
            return False
        if found is None:
            return False
        # months ago, under another policy or before a long stop: what is seen from now on is not of so long
        newest = max((time for time, _, _ in found.seen.values()), default=0.0)
        if self._clock.wall() - max(newest, found.next_reading) > self._demand.pace.window_days * DAY:
            return False
        self._demand.take_up(DemandKept(found.observed_since, found.price, found.next_reading, found.seen))
        return True
