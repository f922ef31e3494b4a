"""The learn loop: advice to the ledger, finished jobs to the history and the estimators, models to serve."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog
from msgspec import structs

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.submission.rules import deadline_for
from advisor.history.ingest import OVERLAP_SECONDS, SHORT_OVERLAP_SECONDS, sacct_since
from advisor.history.ingest_report import IngestReport
from advisor.history.models import ModelStore
from advisor.history.schema import SAME_MOMENT_SECONDS
from advisor.history.store import HistoryStore
from advisor.model.errors import AdvisorError, RetryLater
from advisor.model.job import JobOutcome
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.model.snapshot import QueuedJob
from advisor.service.exchange import spool
from advisor.service.learn.both_sides import PerformanceRatioBook
from advisor.service.learn.costs import Costs
from advisor.service.learn.drift_book import DAY, DriftBook
from advisor.service.learn.knowledge import Knowledge
from advisor.service.learn.on_premise_equivalents import on_premise_job, on_premise_outcome, went_on
from advisor.service.learn.run_time_knowledge import RunTimeKnowledge
from advisor.service.learn.size_knowledge import SizeKnowledge
from advisor.service.observation.accounting import SOURCE, Accounting, ingest_accounting
from advisor.service.observation.placeholders import standing_for_others
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import cluster_state
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Gauges, Poll
from advisor.service.running.isolating import do_all
from advisor.service.running.loops import LoopRunner, Step
from advisor.service.running.metrics import ControlMetrics
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.state_files import TRAININGS

log = structlog.get_logger(__name__)

_MAX_LINKS = 100_000  # jobs that are remembered as linked to their advice
_MAX_RESTARTED = 1_000  # restarted jobs whose costs one round stores
_FULL_QUERY_SECONDS = 600.0  # between two queries for the whole last hour
_STANDBY_SAVE_SECONDS: Final = 600.0
_PRICED = f"{SOURCE}:priced"
"""Cursor: position of the last job whose costs in the cloud are stored."""
_JUDGED = f"{SOURCE}:judged"
"""Cursor: position of the last job whose forecasts were judged."""


class LearnLoop(Feature):
    """Keeps history, ledger and estimators up to date with the cluster.

    Attributes:
        run_times: Run times as distributions; None where no decision asks for them.
    """

    name = "learn"

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
        meter: SpendingBudget | None = None,
    ) -> None:
        self._settings = settings
        self.period_seconds = settings.loops.learn_seconds
        self._slurm = slurm
        self._store = store
        self._view = view
        self._metrics = metrics
        self._clock = clock
        self.ratios = PerformanceRatioBook(settings, store)
        self.knowledge = Knowledge(settings, store, models, self.ratios.ratio)
        self.run_times: RunTimeKnowledge | None = None
        if settings.cluster.policy == "price":
            self.run_times = RunTimeKnowledge(settings, store, models, clock, self.ratios.ratio)
        self.drift = DriftBook(settings, clock, self.ratios.ratio)
        self.costs = Costs(settings, store=store, view=view, clock=clock, meter=meter)
        self.sizes = SizeKnowledge(models, clock)
        self._promised_jobs: dict[str, int] = {}
        self._linked: dict[int, str] = {}
        self._full_query = -math.inf  # monotonic seconds
        self._saved = -math.inf  # monotonic seconds
        self.jobs_learned = 0
        self.last_ingest: IngestReport | None = None
        self._restarted = set[int]()
        self._unjudged: list[JobOutcome] = []  # of the last round: their advice has not come yet
        self.runners = (LoopRunner(self, clock),)

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            Step("collect advice", self.collect_advice),
            Step("link jobs", self.link_jobs),
            Step("forget old advice", self.forget_old_advice),
            Step("ingest accounting", self.ingest_accounting),
            Step("refresh knowledge", self.knowledge.refresh),
            Step("refresh sizes", self.sizes.refresh),
            Step("learn performance ratios", self.ratios.learn),
            Step("learn starts", self.learn_starts),
            Step("learn ends", self.learn_ends),
            Step("judge ends", self.judge_ends),
            *(() if self.run_times is None else (Step("learn run times", self.learn_run_times),)),
            Step("watch for drift", self.drift.decide),
            Step("note costs", self.note_costs),
            Step("bill of today", self.costs.bill_today),
            Step("save knowledge", self.save_knowledge),
            Step("save sizes", self.sizes.save),
            *(() if self.run_times is None else (Step("save run times", self.run_times.save),)),
        )

    def collect_advice(self) -> None:
        """Move the submit server's complete files into the ledger."""
        spool.collect(self._settings.paths.spool, self._store)

    def forget_old_advice(self) -> None:
        """Take advice out of the ledger that is older than the site keeps it, 1,000 a round at most."""
        self._store.forget_before(self._clock.wall() - DAY * self._settings.loops.ledger_days)

    def link_jobs(self) -> None:
        """Record which job each advice belongs to, from the AdminComments of the jobs in the queue."""
        for queued in self._view.fresh().jobs:
            job_id = queued.job.job_id
            recorded = parse_admin_comment(queued.admin_comment)
            if recorded is None or self._linked.get(job_id) == recorded.advice_id:
                continue
            # False while the advice is still on its way through the spool: the next round tries again
            if self._store.link(recorded.advice_id, job_id, source=SOURCE):
                self._linked[job_id] = recorded.advice_id
        while len(self._linked) > _MAX_LINKS:
            del self._linked[next(iter(self._linked))]

    def ingest_accounting(self) -> None:
        """Add the jobs that have ended: new ones each time, those of the last hour every ten minutes.

        slurmdbd gets some records late, but a query for a busy hour four times a minute would load it.
        """
        if self._store.cursor(_PRICED) is None:  # the first time: older jobs get no costs
            self._store.set_cursor(_PRICED, str(self._store.last_position()))
        now, moment = self._clock.wall(), self._clock.monotonic()
        is_full = moment - self._full_query >= _FULL_QUERY_SECONDS
        overlap = OVERLAP_SECONDS if is_full else SHORT_OVERLAP_SECONDS
        since = sacct_since(self._store, now, source=SOURCE, overlap_seconds=overlap)
        self.last_ingest = ingest_accounting(self._store, self._slurm, since, now)
        self._restarted |= self.last_ingest.restarted
        if is_full:
            self._full_query = moment
        if self.last_ingest.added:
            log.info("history.ingested", added=self.last_ingest.added, read=self.last_ingest.read)

    def learn_starts(self) -> None:
        """Learn waits, which are known once jobs start, and the sizes of the jobs in the queue."""
        snapshot = self._view.fresh()
        self.knowledge.total_processors = cluster_state(snapshot, self._settings).total_processors
        standing = standing_for_others(snapshot.jobs)
        jobs = [queued for queued in snapshot.jobs if queued.job.job_id not in standing]
        self.knowledge.learn_starts(jobs, self._view.state_at)
        self.sizes.observe((on_premise_job(queued, self._settings) for queued in jobs), snapshot.time)

    def learn_ends(self) -> None:
        """Learn run times and sizes of ended jobs."""
        outcomes = self.knowledge.learn_ends(self._view.state_at)
        self.jobs_learned += sum(outcome.is_whole for outcome in outcomes)
        self.sizes.learn(
            on_premise_outcome(outcome, self._settings, self._store, self.ratios.ratio)
            for outcome in outcomes
        )

    def judge_ends(self) -> None:
        """Compare what was forecast of ended jobs with what they needed; of each once, whatever restarts."""
        if self.run_times is not None and not self.run_times.is_ready:
            self.run_times.learn()  # what was saved replaces what it has been told before
        done = self._store.cursor(_JUDGED)
        last = self._store.last_position() if done is None else int(done)  # the first time: none of before
        again, self._unjudged = self._unjudged, []
        try:
            for outcome in again:
                self._judge(outcome)
            for position, outcome in self._store.added_after(last, source=SOURCE):
                last = position
                if not self._judge(outcome):
                    self._unjudged.append(outcome)
        finally:
            if str(last) != done:
                self._store.set_cursor(_JUDGED, str(last))

    def learn_run_times(self) -> None:
        """Learn the run times of ended jobs, then note the jobs in the queue, whose ends teach later."""
        if self.run_times is not None:
            self.run_times.learn()
            with contextlib.suppress(RetryLater):  # the queue is too old: polls fail, and say so
                self.run_times.see_queue(self._view.fresh().jobs)

    def save_knowledge(self) -> None:
        """Save the k-NN estimators; once in ten minutes under the policy "price", which does not ask them."""
        now, stands_by = self._clock.monotonic(), self._settings.cluster.policy == "price"
        if (not stands_by or now - self._saved >= _STANDBY_SAVE_SECONDS) and self.knowledge.save():
            self._saved = now

    def note_costs(self) -> None:
        """Store what jobs cost in the cloud: those that have ended, and known ones that have run again."""
        done = last = int(self._store.cursor(_PRICED) or 0)
        ended = list[JobOutcome]()
        for position, outcome in self._store.added_after(done, source=SOURCE):
            last = position
            if outcome.restarts or self._is_burst(outcome.partition):  # others cost nothing
                ended.append(outcome)
        # a later run of a known job is not an added job: it has replaced the run before it
        some = sorted(self._restarted)[:_MAX_RESTARTED]
        were_in_cloud = {
            a.job_id for a in self._store.attempts(some, source=SOURCE) if self._is_burst(a.partition)
        }
        known = (self._store.of_job(job_id, source=SOURCE) for job_id in sorted(were_in_cloud))
        self.costs.note([*ended, *(outcome for outcome in known if outcome is not None)])
        self._restarted.difference_update(some)
        if last > done:
            self._store.set_cursor(_PRICED, str(last))

    def _judge(self, outcome: JobOutcome) -> bool:
        """Compare what was forecast with what happened.

        Returns:
            False: the advice is still on its way through the spool, as of a job that ran for a moment.
        """
        since, until = outcome.job.submit_time - SAME_MOMENT_SECONDS, outcome.end_time + SAME_MOMENT_SECONDS
        record = self._store.advice_of(outcome.job.job_id, source=SOURCE, since=since, until=until)
        if record is None:
            return outcome.advice_id is None
        if not outcome.is_whole:
            return True
        was_here = not self._is_burst(outcome.partition)
        if self.run_times is not None:
            self.run_times.judge_promise(record, outcome)
        if went_on(outcome, record.job):
            return True
        self.drift.judge(record, outcome)
        if self.run_times is not None:
            (self.run_times.judge if was_here else self.run_times.learn_left)(record, outcome)
        if was_here:
            if (waited := record.wait_of(outcome)) is not None:
                self._metrics.observe_prediction("wait", record.estimates.wait, waited)
                self.knowledge.judge("wait", record.estimates.wait, waited)
            self._metrics.observe_prediction("run", record.estimates.run, outcome.run_seconds)
            self.knowledge.judge("run", record.estimates.run, outcome.run_seconds)
        return True

    def _is_burst(self, partition: str | None) -> bool:
        return partition == self._settings.cluster.burst_partition

    # -------------------------------------------------------------------------------- as a feature

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

    def keep(self) -> None:
        """Save at the end what was learned: each model has seen the same ends, and none is judged again."""
        saves: list[Callable[[], object]] = [self.knowledge.save, partial(self.sizes.save, at_once=True)]
        if self.run_times is not None:
            saves.append(partial(self.run_times.save, at_once=True))
        try:
            do_all(*saves)
        except AdvisorError as error:
            log.warning("knowledge.not_kept", code=error.code, message=str(error))

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
            "jobs_learned": self.jobs_learned,
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
            "jobs_learned": (self.jobs_learned, "Jobs learned since the start."),
        }
