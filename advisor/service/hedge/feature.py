"""Hedged starts, and the requeue of jobs put first as small by mistake: a feature of `advisor control`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import structs

from advisor.history.store import HistoryStore
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.service.exchange.announcing import Announced
from advisor.service.hedge.full_limits import FullLimits
from advisor.service.hedge.going_again import SliceDecider
from advisor.service.hedge.placing import AskPreempts
from advisor.service.hedge.small_jobs import SmallJobs
from advisor.service.hedge.watching import AskSlowdown, WatchLoop
from advisor.service.observation.accounting import SOURCE
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Gauges, Poll
from advisor.service.running.loops import LoopRunner
from advisor.service.state.hedge_entries import HedgeRecord
from advisor.service.state.state_files import HEDGE_ENTRIES, SMALL_JOBS
from advisor.slurm.placeholders import Placeholders
from advisor.slurm.protocol import SlurmBackend


class HedgeFeature(Feature):
    """The watch loop.

    Args:
        store: The ledger: with which divider a job was classed small.
        slowdown: How many times longer a job runs in the cloud than on-premise.
        slices: Decides about slices; None where the policy is not the price.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: SlurmBackend,
        places: Placeholders,
        view: SharedView,
        store: HistoryStore,
        clock: Clock,
        slowdown: AskSlowdown,
        wake_poll: Callable[[], None],
        slices: Callable[[], SliceDecider | None] = lambda: None,
        may_preempt: AskPreempts = lambda _job, _home: False,
    ) -> None:
        self._places = places
        self._wake_poll = wake_poll

        def divider(job_id: int) -> float:
            record = store.advice_of(job_id, source=SOURCE)
            return math.nan if record is None else record.estimates.size.divider_seconds

        small_jobs = SmallJobs(
            settings,
            slurm=slurm,
            places=places,
            view=view,
            state=SMALL_JOBS.at(settings.paths.state),
            divider=divider,
            clock=clock,
        )
        self.watch = WatchLoop(
            settings,
            slurm=slurm,
            places=places,
            view=view,
            record=HedgeRecord(HEDGE_ENTRIES.at(settings.paths.state)),
            small_jobs=small_jobs,
            clock=clock,
            slowdown=slowdown,
            slices=slices,
            may_preempt=may_preempt,
        )
        self._runner = LoopRunner(self.watch, clock, urgent_task=self.watch.urgent_task)
        self._limits = FullLimits(places)
        reader = (LoopRunner(self._limits, clock),) if settings.hedge.enabled else ()
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
