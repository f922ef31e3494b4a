"""The forests of the advisor's own placement rule, as a feature of `advisor control`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from advisor.model.site import SiteState
from advisor.service.learn.placement_loop import PlacementLoop
from advisor.service.observation.site_view import without_doubles
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Gauges, Poll
from advisor.service.running.loops import LoopRunner


class PlacementFeature(Feature):
    """The loop that trains the forests, publishes the queue and keeps the record."""

    def __init__(self, loop: PlacementLoop, clock: Clock) -> None:
        self.loop = loop
        self.runners = (LoopRunner(loop, clock),)

    def polled(self, poll: Poll) -> None:
        """See :class:`Feature`: the queue's events go to the forecasts of `advisor serve`."""
        queue = replace(poll.snapshot, jobs=tuple(without_doubles(poll.snapshot.jobs)))
        self.loop.saw(queue, poll.cluster, poll.cloud.boot_seconds)

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`Feature`."""
        return structs.replace(site, record=self.loop.record, hedge_price=self.loop.hedge_price)

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"placement": self.loop.report()}

    def gauges(self) -> Gauges:
        """See :class:`Feature`."""
        return self.loop.gauges()

    def stop(self) -> None:
        """See :class:`Feature`."""
        self.loop.stop()
