"""Portfolio scheduling of the burst partition, as a feature of `advisor control`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.history.store import HistoryStore
from advisor.model.settings import Settings
from advisor.service.observation.poll_view import SharedView
from advisor.service.portfolio.portfolio_loop import PortfolioLoop
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Gauges
from advisor.service.running.loops import LoopRunner
from advisor.service.state.cloud_record import CloudRecord
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.steering import BurstSteering


class PortfolioFeature(Feature):
    """The portfolio loop, and the judge, which simulates for minutes in a loop of its own.

    While ``portfolio.enabled`` is false, the loop only takes back what an earlier process has set.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: SlurmBackend,
        steering: BurstSteering,
        view: SharedView,
        store: HistoryStore,
        cloud: CloudRecord,
        clock: Clock,
    ) -> None:
        self.loop = PortfolioLoop(
            settings, slurm=slurm, steering=steering, view=view, store=store, cloud=cloud, clock=clock
        )
        loops = (self.loop, self.loop.judge) if settings.portfolio.enabled else (self.loop,)
        self.runners = tuple(LoopRunner(loop, clock) for loop in loops)
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
