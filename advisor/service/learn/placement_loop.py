"""The forests of the advisor's own placement rule in `advisor control`: trained, published, judged.

They are trained by the code of the replay from the history and the queue (`features_of`, `RollingForests`)
each time so many jobs have ended, in a loop and a thread of its own; never on the submit path.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
import structlog

from advisor.decide.submission.proven_rows import earned_by_candidates
from advisor.decide.submission.record import likely_earned
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.cluster import ClusterState
from advisor.model.errors import AdvisorError, RetryLater, UseFallback
from advisor.model.job import JobOutcome
from advisor.model.settings import Settings
from advisor.model.site import TrackRecord
from advisor.model.table import JobTable
from advisor.predict.forecast.forecast_rows import forecast_rows
from advisor.predict.forecast.forecaster import Forecaster
from advisor.predict.forecast.placement_features import PlacementFeatures
from advisor.predict.forecast.placement_replay import features_of
from advisor.predict.forecast.queue_events import KEY
from advisor.predict.forecast.rolling import TARGETS, ForecastOptions, Known, RollingForests
from advisor.predict.forecast.submission_features import CODED, Codes
from advisor.service.exchange import placement_store, queue_stream
from advisor.service.exchange.placement_store import Base, with_jobs_under_way
from advisor.service.learn.both_sides import PerformanceRatioBook
from advisor.service.learn.finished_jobs import FinishedJobs
from advisor.service.learn.hedge_price import HedgePrice
from advisor.service.learn.placement_record import PlacementRecord
from advisor.service.learn.queue_following import QueueStream
from advisor.service.learn.stakes import worst_loss_seconds
from advisor.service.observation.accounting import SOURCE
from advisor.service.running.clock import Clock
from advisor.service.running.loops import Step
from advisor.service.state.hedge_entries import AskHedgeOutcome
from advisor.service.state.records import EarnedRecord
from advisor.service.state.state_files import EARNED_RECORD
from advisor.slurm.protocol import SlurmSnapshot

log = structlog.get_logger(__name__)

RECORD_JOBS: Final = 20_000
"""Newest jobs of the history on which a record is earned before the first live one."""
_LEAD_JOBS: Final = 10_000  # before them, so that users have earlier jobs and the queue is complete
_BULK_JOBS: Final = 1_000  # more at once were imported from a log: they become no events
_MAX_EVENTS: Final = 50_000
_NICE: Final = 10
_DRIFT_SECONDS: Final = 3600.0  # to earn a record again takes minutes and new forests


class PlacementLoop:
    """Trains the forests, publishes the queue's events, keeps the record.

    Args:
        options: How forests are trained: as in the replay.
        record_jobs: Newest jobs of the history from which the first record is earned.
        hedge_outcomes: The outcome of a hedged job.
        unspent: Core-seconds of the hedges' budget not used in its period, and seconds until that ends.
        ratios: s(c) as learned; the settings' without it.
    """

    name = "forests"

    def __init__(
        self,
        settings: Settings,
        *,
        store: HistoryStore,
        models: ModelStore,
        clock: Clock,
        options: ForecastOptions | None = None,
        record_jobs: int = RECORD_JOBS,
        hedge_outcomes: AskHedgeOutcome = lambda _job_id, _advice_id: None,
        unspent: Callable[[], tuple[float, float]] = lambda: (math.inf, math.inf),
        ratios: PerformanceRatioBook | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._models = models
        self._clock = clock
        self._options = options or ForecastOptions()
        self._record_jobs = record_jobs
        max_jobs = max(record_jobs, self._options.forest.most_jobs) + _LEAD_JOBS
        self._finished = FinishedJobs(settings, store, max_jobs)
        self._hedge_outcomes = hedge_outcomes
        self._ratios = ratios
        self._file = EARNED_RECORD.at(settings.paths.state)
        self._hedges = HedgePrice(settings, models, unspent)
        self._record = PlacementRecord(settings.placement, self._file.read(), hedges=self._hedges)
        self._forests = RollingForests(self._options)
        self._stream: QueueStream | None = None
        self._observer: PlacementFeatures | None = None
        self._forecaster: Forecaster | None = None
        self._at_risk = 0.0
        self._boot_seconds = settings.placement.boot_seconds
        self._following = self._ended_since = self._number = 0
        self._needs_base = False
        self._kept: EarnedRecord | None = None
        self._drifting_since = math.inf  # monotonic seconds
        self._stopping = threading.Event()

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return self._settings.loops.learn_seconds

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            Step("follow the queue", self.follow),
            Step("grow forests", self.grow),
            Step("earn a record", self.earn),
            Step("keep the record", self.keep),
        )

    def stop(self) -> None:
        """Interrupt training."""
        self._stopping.set()

    def saw(self, snapshot: SlurmSnapshot, state: ClusterState, boot_seconds: float | None = None) -> None:
        """Take in a poll of Slurm and publish the queue's events, in the poll loop's thread.

        ``boot_seconds`` is the boot time in force; None: the setting.
        """
        setting = self._settings.placement.boot_seconds
        self._boot_seconds = setting if boot_seconds is None else boot_seconds
        self._at_risk = math.fsum(
            worst_loss_seconds(queued, self._settings, self._boot_seconds) for queued in snapshot.jobs
        )
        if self._stream is None:
            return
        self._stream.look(snapshot, state.total_processors)
        content = self._stream.file(self._record.bounds)
        if content is not None:
            queue_stream.write(self._settings.paths.run, content)

    @property
    def record(self) -> TrackRecord:
        """The record with what is at risk now; an empty one allows no stake."""
        return TrackRecord(
            bands=self._record.record.bands,
            at_risk_seconds=self._at_risk,
            may_lose_seconds=self._record.may_lose_seconds,
        )

    # -- steps

    def follow(self) -> None:
        """Take in finished jobs, then all events since the last round."""
        _be_nice()
        self._record.boot_seconds = self._hedges.boot_seconds = self._boot_seconds
        if self._ratios is not None and (learned := self._ratios.current) is not None:
            self._record.line = (learned.overhead, learned.baseline)
        if self._stream is None:
            self._begin()
        self._take_outcomes()
        self._follow()
        self._hedges.charge()

    def grow(self) -> None:
        """Train another forest for each target after so many finished jobs; publish when it is due."""
        is_due = self._ended_since >= self._options.retrain_jobs or not len(self._forests)
        if self._stream is None or not self._stream.has_polled:
            return
        if self._finished.count < self._options.first or not (is_due or self._must_hand_over()):
            return
        table = self._history()
        if is_due:
            self._grow_on(table)
        self._hand_over(table)

    def earn(self) -> None:
        """Forecast the history's newest jobs as a replay does, to earn the record and calibrate intervals.

        This is done once. It is repeated for the hedges' price alone, when hedges are switched on after a
        record has been earned; and after nodes have booted much slower or faster for an hour than the record
        assumes.
        """
        is_earned = self._record.is_earned and not self._has_drifted()
        if not len(self._forests) or (is_earned and not self._hedges.wants_history):
            return
        table = self._history()
        cut = self._running_stream.cut()
        self._follow()  # the last events that the history has, too
        if not self._record.is_earned:
            self._record.begin_anew()
        table = replace(table, total_processors=cut.total_processors)
        rows = np.flatnonzero(table.run > 0)[-self._record_jobs :]
        forests = RollingForests(self._options)
        forecasts = forecast_rows(table, rows, self._options, rolling=forests, tick=self._tick)
        self._hedges.learn_history(table, forecasts)
        if is_earned:
            log.info("placement.hedge_price_learned", jobs=self._hedges.known)
            return
        earned = earned_by_candidates(table, forecasts, self._record.reckoned)
        if len(forests):
            self._forests, self._number = forests, self._number + len(rows)
        if self._record.is_earned:  # the old record was in force until now
            self._record.begin_anew()
        self._drifting_since = math.inf
        self._record.earn(earned.record, {target: forecasts[target].calibration for target in TARGETS})
        log.info(
            "placement.record_earned",
            jobs=len(rows),
            trusted_seconds=self._record.trusted_seconds,
            boot_seconds=self._record.earned_boot_seconds,
        )
        self._hand_over(self._history())

    def _has_drifted(self) -> bool:
        """Whether boot times or s(c) have differed for an hour: a short absence of spot changes them, too."""
        now = self._clock.monotonic()
        self._drifting_since = min(self._drifting_since, now) if self._record.is_outdated else math.inf
        return now - self._drifting_since >= _DRIFT_SECONDS

    def keep(self) -> None:
        """Save the record, the calibration and what the hedges' price rests on."""
        self._hedges.save_now_and_then()
        kept = self._record.earned()
        if self._record.is_earned and kept != self._kept:
            self._file.write(kept)
            self._kept = kept

    @property
    def hedge_price(self) -> float | None:
        """Seconds of turnaround that a core-second of a hedge must bring; None where none is known."""
        return self._hedges.price

    def report(self) -> dict[str, Any]:
        """What `advisor status` shows."""
        forests = len(self._forests)
        record = self.record
        return {
            "rule": "advisor" if forests and self._stream is not None and self._observer else "published",
            "forests": forests,
            "finished_jobs": self._finished.count,
            "first_forest_after_jobs": self._options.first,
            "record_earned": self._record.is_earned,
            "record_boot_seconds": self._record.earned_boot_seconds,
            "record_overhead_and_baseline": self._record.earned_line,
            "record_saved_seconds": likely_earned(record, self._settings.placement).saved_seconds,
            "record_trusted_seconds": self._record.trusted_seconds,
            "record_at_risk_seconds": record.at_risk_seconds,
            "hedge_price": self._hedges.price,
            "hedge_price_jobs": self._hedges.known,
            "interval_levels": {target: each.level for target, each in self._record.calibrations.items()},
        }

    def gauges(self) -> dict[str, tuple[float, str]]:
        """For the metrics page."""
        price = self._hedges.price
        text = "Seconds of turnaround that a core-second of a hedge must bring."
        hedges = {} if price is None else {"hedge_price": (price, text)}
        return {
            **hedges,
            "placement_forests": (
                float(len(self._forests)),
                "Forests of the advisor's own placement rule; 0: the published rule decides.",
            ),
            "placement_record_seconds": (
                self._record.trusted_seconds,
                "Seconds safely won by the advisor's own placement rule: what allows stakes.",
            ),
            "placement_at_risk_seconds": (self._at_risk, "What jobs in the cloud could lose at worst."),
        }

    # -- parts

    def _begin(self) -> None:
        """Load what an earlier process has saved, or begin with the history's first job."""
        codes, origin = Codes(), None
        try:
            loaded = placement_store.load(self._models, self._options)
        except UseFallback:
            pass
        except AdvisorError as error:
            log.warning("placement.not_loaded", code=error.code, message=str(error), instead="grown anew")
        else:
            codes, origin = loaded.base.codes, loaded.base.table.start_of_log
            self._forests, self._needs_base = loaded.forests, True
            self._number = int(loaded.meta.get("number", 0))
            self._ended_since = int(loaded.meta.get("ended_since", 0))
        self._finished.begin()
        if origin is None:
            first = self._finished.first_submission()
            origin = math.floor(self._clock.wall() if first is None else first)
        self._stream = QueueStream(self._settings, codes, float(origin))

    def _take_outcomes(self) -> None:
        """Turn new jobs of the history into events at the next poll; a whole imported log becomes none."""
        new = self._finished.new
        if new <= 0 or self._stream is None:
            return
        is_bulk = new > _BULK_JOBS
        for outcome in self._finished.take():
            if outcome.partition == self._settings.cluster.burst_partition:
                if not is_bulk and outcome.is_whole:  # an interrupted job is added again when it has ended
                    self._take_moved(outcome)
                continue
            self._ended_since += outcome.is_whole
            if not is_bulk:
                self._stream.ended([outcome])
                if outcome.restarts and outcome.is_whole:
                    self._hedges.came_back(outcome, self._advice(outcome))
        self._needs_base |= is_bulk

    def _take_moved(self, outcome: JobOutcome) -> None:
        advice, job_id = self._advice(outcome), outcome.job.job_id
        hedge = None if advice is None else self._hedge_outcomes(job_id, advice.advice.advice_id)
        self._record.moved(outcome, advice, hedge, self._slowdown(advice))

    def _advice(self, outcome: JobOutcome) -> AdviceRecord | None:
        return self._store.advice_of(outcome.job.job_id, source=SOURCE)

    def _slowdown(self, advice: AdviceRecord | None) -> float | None:
        return None if advice is None or self._ratios is None else self._ratios.ratio(advice.job)

    def _follow(self) -> None:
        if self._stream is None or self._observer is None:
            return
        rows, following = self._stream.since(self._following)
        came_back = self._stream.restarted
        for row in rows:
            # a job that comes back starts in its placeholder's slot: its wait says nothing of the queue
            is_new = int(row[KEY]) not in came_back
            self._record.take(row, self._observer, self._forecaster if is_new else None)
        self._following = following

    def _must_hand_over(self) -> bool:
        return self._needs_base or (self._stream is not None and self._stream.length > _MAX_EVENTS)

    def _history(self) -> JobTable:
        """The newest finished jobs, exactly those taken in so far, with the stream's codes and clock."""
        table = self._finished.table(self._take_outcomes)
        return self._running_stream.coded(table)

    @property
    def _running_stream(self) -> QueueStream:
        if self._stream is None:
            raise RetryLater("the queue has not been seen yet", code="placement.no_stream")
        return self._stream

    def _grow_on(self, table: JobTable) -> None:
        cut = self._running_stream.cut()
        jobs = with_jobs_under_way(table, cut)
        features = features_of(jobs, tick=self._tick)
        known = {target: Known.of(jobs, target) for target in TARGETS}
        self._number += 1
        # all of the table is known now: it comes from the history and from polls
        for _ in self._forests.grow(known, features, now=math.inf, number=self._number):
            self._tick(1)
        self._ended_since = 0

    def _hand_over(self, table: JobTable) -> None:
        """Publish a new base, the forests in force, and the stream from here on."""
        if not len(self._forests):
            return
        stream = self._running_stream
        cut = stream.cut()
        self._follow()
        jobs = with_jobs_under_way(table, cut)
        known = stream.codes.copy()
        used = {column: frozenset(getattr(jobs, column).tolist()) for column in CODED}
        base = Base(name=placement_store.new_name(), table=jobs, codes=known.only(used))
        version = placement_store.save(
            self._models, base, self._forests, {"number": self._number, "ended_since": self._ended_since}
        )
        self._observer = base.observer()
        self._forecaster = Forecaster(self._forests)
        self._following = stream.rebase(base.name, cut, base.codes, known)
        self._needs_base = False
        log.info("placement.handed_over", version=version, jobs=len(jobs), forests=len(self._forests))

    def _tick(self, _done: int) -> None:
        if self._stopping.is_set():
            raise RetryLater(
                "the service stops before the placement model is complete", code="placement.stopping"
            )


def _be_nice() -> None:
    """Lower this thread's priority, for the submit server and Slurm; never the main thread's."""
    if threading.current_thread() is not threading.main_thread():
        with suppress(OSError):  # already nicer than that, or not allowed to say so
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
