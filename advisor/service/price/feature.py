"""The one price, as a feature of `advisor control`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from advisor.model.site import SiteState
from advisor.service.price.price_keeper import PriceKeeper
from advisor.service.price.price_loop import PriceLoop
from advisor.service.price.slice_decider import Slices
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Gauges, Poll
from advisor.service.running.loops import LoopRunner


class PriceFeature(Feature):
    """Keeps the price, publishes it, and moves waiting jobs by it; slices ask it again."""

    def __init__(self, loop: PriceLoop, keeper: PriceKeeper, slices: Slices, clock: Clock) -> None:
        self.loop = loop
        self.keeper = keeper
        self.slices = slices
        self._runner = LoopRunner(loop, clock)
        self.runners = (self._runner,)
        self.steering = (loop.name,)

    def polled(self, poll: Poll) -> None:
        """See :class:`Feature`. New jobs are valued at once."""
        self.keeper.polled(poll.snapshot.time, poll.cloud)
        self.loop.polled(poll.cloud)
        self._runner.wake()

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`Feature`."""
        return structs.replace(site, price=self.keeper.current)

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"price": {**self.keeper.report(), **self.loop.report()}}

    def gauges(self) -> Gauges:
        """See :class:`Feature`."""
        price, report = self.keeper.current, self.loop.report()
        gauges = {
            "price_known": (float(price is not None), "0: no price, and no job moves by it."),
            "price_jobs_moved": (float(report["moved"]), "Jobs moved by the price since the start."),
            "price_jobs_worth_it": (
                float(report["worth_it"]),
                "Jobs worth it at the last round.",
            ),
        }
        if price is not None:
            gauges["price_seconds_per_usd"] = (
                price.seconds_per_usd,
                "Seconds of turnaround that a dollar must save.",
            )
            if self.keeper.has_budget:
                gauges["price_tokens_usd"] = (
                    price.tokens_usd,
                    "Dollars that may be committed.",
                )
        return gauges

    def release(self) -> None:
        """See :class:`Feature`."""
        self.keeper.save_now()
