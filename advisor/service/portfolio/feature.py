"""Portfolio scheduling of the burst partition, as a feature of `advisor control`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.service.portfolio.portfolio_loop import PortfolioLoop
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Gauges
from advisor.service.running.loops import LoopRunner


class PortfolioFeature(Feature):
    """The portfolio loop, and the judge, which simulates for minutes in a loop of its own.

    While ``portfolio.enabled`` is false, the loop only takes back what an earlier process has set.
    """

    def __init__(self, loop: PortfolioLoop, clock: Clock, *, judges: bool) -> None:
        self.loop = loop
        loops = (loop, loop.judge) if judges else (loop,)
        self.runners = tuple(LoopRunner(each, clock) for each in loops)
        self.steering = (self.loop.name,)

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"portfolio": self.loop.report()}

    def gauges(self) -> Gauges:
        """See :class:`Feature`."""
        return self.loop.gauges()

    def stop(self) -> None:
        """See :class:`Feature`."""
        self.loop.stop()

    def release(self) -> None:
        """See :class:`Feature`."""
        self.loop.end()
