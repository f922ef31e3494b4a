"""The price loop: asks what nodes cost, at intervals, never while a job waits for an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from advisor.ec2.prices import PriceCache, Prices
from advisor.service.running.loops import Step

AskPrices = Callable[[], Prices]
"""Gives the prices in force, without a call to EC2."""

_PERIOD_SECONDS: Final = 900.0  # spot prices move within hours, the others within months


class PriceLoop:
    """Refreshes the prices; each source in a step of its own, so that a failure hides no other price."""

    name = "prices"
    period_seconds = _PERIOD_SECONDS

    def __init__(self, prices: PriceCache) -> None:
        self._prices = prices

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            Step("spot price", self._prices.refresh_spot),
            Step("on-demand price", self._prices.refresh_on_demand),
            Step("reserved instances", self._prices.refresh_reserved),
        )


def price_table(prices: Prices, now: float) -> dict[str, Mapping[str, Any]]:
    """What `advisor status` shows: dollars for one node and hour, and their age (None: from the settings)."""
    quotes = {"spot": prices.spot, "on_demand": prices.on_demand}
    table: dict[str, Mapping[str, Any]] = {
        name: {
            "usd_per_hour": quote.usd_per_hour,
            "age_seconds": quote.age_seconds(now) if quote.is_read else None,
        }
        for name, quote in quotes.items()
    }
    if prices.reserved is not None:
        reserved = prices.reserved
        table["reserved"] = {
            "usd_per_hour": reserved.usd_per_hour,
            "count": reserved.count,
            "age_seconds": max(0.0, now - reserved.time),
        }
    return table
