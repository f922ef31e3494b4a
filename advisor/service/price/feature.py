"""The one price, as a feature of `advisor control`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import structs

from advisor.decide.price.demand_price import DemandKept
from advisor.decide.price.tokens import DAY
from advisor.decide.submission.cloud_terms import boot_seconds, configured_slowdown, usd_per_core_hour
from advisor.history.columns import on_premise
from advisor.history.store import HistoryStore
from advisor.model.advice import Capacity
from advisor.model.machine import Machine
from advisor.model.periods import period_span
from advisor.model.settings import Settings
from advisor.model.site import CloudState, SiteState
from advisor.service.price.first_price import MIN_JOBS, SiteTerms, rehearsed_demand
from advisor.service.price.price_keeper import PriceKeeper
from advisor.service.price.price_loop import PriceLoop
from advisor.service.price.slice_decider import Slices
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Gauges, Poll
from advisor.service.running.loops import LoopRunner

_RETRY_SECONDS: Final = 3600.0
_HISTORY_DAYS: Final = 90.0
"""Of ended jobs that the rehearsal reads: it rehearses four weeks, and learns run times from the others."""


def rehearsing(
    settings: Settings, store: HistoryStore, clock: Clock
) -> Callable[[CloudState, Sequence[Machine]], DemandKept | None]:
    """Rehearse the history once it has jobs enough, which takes seconds; None before that."""
    tried_at = -math.inf

    def rehearse(cloud: CloudState, machines: Sequence[Machine]) -> DemandKept | None:
        nonlocal tried_at
        now = clock.wall()
        if now - tried_at < _RETRY_SECONDS:
            return None
        tried_at = now
        begin, end = period_span(now, settings.budget.period)
        has_processors = any(machine.processors for machine in machines)
        if not settings.budget.usd or not has_processors or store.count() < MIN_JOBS:
            return None
        table = store.table(now - _HISTORY_DAYS * DAY, utc_offset_seconds=settings.cluster.utc_offset_seconds)
        terms = SiteTerms(
            usd_per_day=settings.budget.usd * DAY / (end - begin),
            usd_per_core_hour=usd_per_core_hour(Capacity.ON_DEMAND, cloud, settings),
            boot_seconds=boot_seconds(cloud, settings),
            slowdown=configured_slowdown(1, settings.placement),
            loss_weight=settings.price.loss_weight,
            has_slices=settings.hedge.enabled,
            node_processors=max(1, cloud.processors_per_node),
        )
        here = on_premise(table, settings.cluster.burst_partition)
        return rehearsed_demand(here, machines, terms, now)

    return rehearse


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
        self.slices.see(poll.snapshot)

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
            "price_known": (price is not None, "0: no price, and no job moves by it."),
            "price_jobs_moved": (report["moved"], "Jobs moved by the price since the start."),
            "price_jobs_worth_it": (report["worth_it"], "Jobs worth it at the last round."),
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
