"""Hedged starts, and the requeue of jobs put first as small by mistake: a feature of `advisor control`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import structs

from advisor.model.site import SiteState
from advisor.service.exchange.announcing import Announced
from advisor.service.hedge.full_limits import FullLimits
from advisor.service.hedge.watch_context import WatchContext
from advisor.service.hedge.watching import WatchLoop
from advisor.service.running.feature import Feature, Gauges, Poll
from advisor.service.running.loops import LoopRunner


class HedgeFeature(Feature):
    """The watch loop."""

    def __init__(self, context: WatchContext, *, wake_poll: Callable[[], None]) -> None:
        self._places = places = context.places
        self._wake_poll = wake_poll
        self.watch = WatchLoop(context)
        self._runner = LoopRunner(self.watch, context.clock, urgent_task=self.watch.urgent_task)
        self._limits = FullLimits(places)
        reader = (LoopRunner(self._limits, context.clock),) if context.settings.hedge.enabled else ()
        self.runners = (self._runner, *reader)
        self.steering = (self.watch.name,)

    def announced(self, jobs: Sequence[Announced]) -> None:
        """Submit the placeholders of jobs just answered now: jobs submitted before one go before it."""
        self.watch.expect(jobs)
        self._runner.request_urgent_task()

    def placeholder_started(self) -> None:
        """Poll Slurm now: a placeholder has started."""
        if self.watch.follows_polls:
            self._wake_poll()

    def polled(self, _poll: Poll) -> None:
        """See :class:`Feature`. A job whose slot has come waits for nothing else."""
        if self.watch.follows_polls:
            self._runner.wake()

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`Feature`."""
        return structs.replace(site, full=self._limits.keys) if self._limits.keys else site

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"places": self.watch.report()}

    def gauges(self) -> Gauges:
        """See :class:`Feature`."""
        return self.watch.gauges()

    def release(self) -> None:
        """See :class:`Feature`."""
        self._places.close()
