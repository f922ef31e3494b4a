"""Learning as a feature of `advisor control`: wait and run times, sizes, performance ratios, costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import structlog
from msgspec import structs

from advisor.decide.submission.rules import deadline_for
from advisor.history.models import ModelStore
from advisor.history.store import HistoryStore
from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.model.snapshot import QueuedJob
from advisor.service.learn.both_sides import PerformanceRatioBook
from advisor.service.learn.drift_book import DriftBook
from advisor.service.learn.knowledge import Knowledge
from advisor.service.learn.learning import LearnLoop
from advisor.service.learn.on_premise_equivalents import on_premise_job
from advisor.service.learn.run_time_knowledge import RunTimeKnowledge
from advisor.service.learn.size_knowledge import SizeKnowledge
from advisor.service.observation.accounting import Accounting
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Gauges, Poll
from advisor.service.running.loops import LoopRunner
from advisor.service.running.metrics import ControlMetrics
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.state_files import TRAININGS

log = structlog.get_logger(__name__)


class LearnFeature(Feature):
    """The learn loop and its estimators."""

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: Accounting,
        store: HistoryStore,
        models: ModelStore,
        view: SharedView,
        metrics: ControlMetrics,
        clock: Clock,
        meter: SpendingBudget | None,
    ) -> None:
        self._settings = settings
        self._promised_jobs: dict[str, int] = {}
        self.ratios = PerformanceRatioBook(settings, store)
        self.knowledge = Knowledge(settings, store, models, self.ratios.ratio)
        self.run_times = (
            RunTimeKnowledge(settings, store, models, clock, self.ratios.ratio)
            if settings.cluster.policy == "price"
            else None
        )
        self.drift = DriftBook(settings, clock, self.ratios.ratio)
        self.loop = LearnLoop(
            settings,
            slurm=slurm,
            store=store,
            knowledge=self.knowledge,
            sizes=SizeKnowledge(models, clock),
            ratios=self.ratios,
            view=view,
            metrics=metrics,
            clock=clock,
            meter=meter,
            run_times=self.run_times,
            drift=self.drift,
        )
        self.runners = (LoopRunner(self.loop, clock),)

    def prepare(self) -> None:
        """See :class:`Feature`. Hand `advisor serve` what the history teaches.

        Another process may lock the history for a while; after an error the learn loop tries again.
        """
        try:
            self.knowledge.prepare()
        except AdvisorError as error:
            log.warning("knowledge.not_prepared", code=error.code, message=str(error))
        except Exception:  # a damaged history may hold anything; nodes are started and ended all the same
            log.exception("knowledge.not_prepared")

    def slowdown(self, queued: QueuedJob) -> float:
        """How many times longer a queued job runs in the cloud than on-premise."""
        return self.ratios.slowdown(on_premise_job(queued, self._settings).job)

    def polled(self, poll: Poll) -> None:
        """See :class:`Feature`."""
        settings = self._settings
        named = (q.job for q in poll.snapshot.jobs if deadline_for(q.job, settings) is not None)
        self._promised_jobs = dict(Counter(job.user or "" for job in named))

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`Feature`."""
        return structs.replace(
            site,
            cutoff=self.knowledge.cutoff,
            ratios=self.ratios.current,
            fallen_back=self.drift.current,
            promised_jobs=self._promised_jobs,
        )

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {
            "knowledge_base_jobs": self.knowledge.cases,
            "jobs_learned": self.loop.jobs_learned,
            "performance_ratios": self.ratios.current,
            "fallen_back": self.drift.report(),
            **({} if self.run_times is None else {"promises": self.run_times.report()}),
        }

    def gauges(self) -> Gauges:
        """See :class:`Feature`."""
        promises = {"made": 0, "kept": 0} if self.run_times is None else self.run_times.report()
        return {
            "promises_made": (promises["made"], "Promises that are over."),
            "promises_kept": (promises["kept"], "Promises that are over and were kept."),
            "knowledge_base_jobs": (self.knowledge.cases, "Run times in the knowledge base."),
            "partitions_fallen_back": (
                len(self.drift.current),
                "Partitions whose jobs stay on-premise because forecasts have not held for a week.",
            ),
            "training_failed": (
                any(one.failed for one in TRAININGS.at(self._settings.paths.state).read().last.values()),
                "1: the last weekly training has failed.",
            ),
            "jobs_learned": (self.loop.jobs_learned, "Jobs learned since the start."),
        }
