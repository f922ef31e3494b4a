"""The price loop: asks what nodes cost, at intervals, never while a job waits for an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from advisor.ec2.prices import PriceCache, Prices
from advisor.ec2.reading_account import AccountCache
from advisor.service.running.loops import Step

_RESERVATIONS_SECONDS: Final = 60.0

AskPrices = Callable[[], Prices]
"""Gives the prices in force, without a call to EC2."""

_PERIOD_SECONDS: Final = 900.0  # spot prices move within hours, the others within months


class PriceLoop:
    """Refreshes the prices, discounts and quotas; each source by itself, so that a failure hides no other."""

    name = "prices"
    period_seconds = _PERIOD_SECONDS

    def __init__(self, prices: PriceCache, account: AccountCache | None = None) -> None:
        self._prices = prices
        self._account = account

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            Step("spot price", self._prices.refresh_spot),
            Step("on-demand price", self._prices.refresh_on_demand),
            *(() if self._account is None else _account_steps(self._account)),
        )


def _account_steps(account: AccountCache) -> tuple[Step, ...]:
    return (
        Step("reserved instances", account.refresh_reserved),
        Step("Savings Plans", account.refresh_plans),
        Step("quotas", account.refresh_quotas),
    )


class ReservationLoop:
    """Reads capacity reservations and others' instances: they change whenever anybody launches something."""

    name = "reservations"
    period_seconds = _RESERVATIONS_SECONDS

    def __init__(self, account: AccountCache) -> None:
        self._account = account

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("capacity reservations", self._account.refresh_reservations),)


def price_table(prices: Prices, now: float) -> dict[str, Mapping[str, Any]]:
    """The prices in `advisor status`: US dollars for a node and hour; their age (None: of settings)."""
    quotes = {"spot": prices.spot, "on_demand": prices.on_demand}
    table: dict[str, Mapping[str, Any]] = {
        name: {
            "usd_per_hour": quote.usd_per_hour,
            "age_seconds": quote.age_seconds(now) if quote.is_read else None,
        }
        for name, quote in quotes.items()
    }
    return table
