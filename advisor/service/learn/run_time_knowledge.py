"""Run times as distributions in `advisor control`: loaded or built from the history, taught, and saved."""

from __future__ import annotations

import math
from typing import Final

import structlog

from advisor.decide.promise.promised import kind_of
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.errors import AdvisorError, UseFallback
from advisor.model.job import Job, JobOutcome, JobState
from advisor.model.settings import Settings
from advisor.predict.promised.known import PromisesKnown
from advisor.predict.run_times.grid import GRID, Floats
from advisor.predict.run_times.of_jobs import RunTimesOfJobs
from advisor.service.exchange.seen_queue import NO_LIMIT_SECONDS
from advisor.service.learn.as_here import AskRatio, outcome_here
from advisor.service.running.clock import Clock
from advisor.service.submit.run_times import RUN_TIMES_KIND

log = structlog.get_logger(__name__)

_SAVE_SECONDS: Final = 600.0
_ROUNDING: Final = 1.0  # seconds; Slurm's times are whole
_FIRST_JOBS: Final = 200_000
"""Newest jobs that a first start learns from: half a minute on one core."""


class RunTimeKnowledge:
    """Keeps the run times of the history's jobs.

    Args:
        ratio: s(c) of a job as learned; the settings' without it.
    """

    def __init__(
        self,
        settings: Settings,
        store: HistoryStore,
        models: ModelStore,
        clock: Clock,
        ratio: AskRatio | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._models = models
        self._clock = clock
        self._ratio = ratio
        self._known = RunTimesOfJobs(promises=PromisesKnown(settings.promise.confidence))
        self._position: int | None = None
        self._saved_at, self._is_changed = -math.inf, False

    @property
    def edges(self) -> Floats:
        """Upper edges of the bins, seconds, shape ``(bins,)``, ascending."""
        return GRID

    def chances(self, job: Job) -> Floats:
        """Probability of each bin, shape ``(bins,)``; nothing above the job's time limit."""
        return self._known.chances(job)

    def learn(self) -> None:
        """Learn the jobs added to the history since the last call; the first call loads or builds."""
        position = self._loaded() if self._position is None else self._position
        if position is None:
            position = self._store.last_position()
            self._is_changed = True  # `advisor serve` gets what is forecast before any job has ended, too
            for outcome in self._store.recent(_FIRST_JOBS):
                self._learn(outcome)
        for added, outcome in self._store.added_after(position):
            position = self._position = added
            self._learn(outcome)
        self._position = position

    def judge(self, record: AdviceRecord, outcome: JobOutcome) -> None:
        """Compare the intervals that a whole job on-premise was given with what it needed."""
        start = outcome.first_start_time if outcome.restarts else outcome.start_time
        if start is not None and start >= record.advice.time:
            self._known.intervals.learn_wait(record.estimates.wait, start - record.advice.time)
            if record.estimates.wait.is_usable:
                planned, waited = record.estimates.wait.seconds, start - record.advice.time
                self._known.promises.waits.learn(planned, waited, has_started=True)
        self._known.intervals.learn_run(record.estimates.run, outcome.run_seconds)
        self._is_changed = True

    def judge_promise(self, record: AdviceRecord, outcome: JobOutcome) -> None:
        """Learn whether a job that named a time was done by then, wherever it ran."""
        job, time, end = record.job, record.advice.time, outcome.end_time
        values = record.advice.values()
        submitted = outcome.job.submit_time
        kind = kind_of(values, time - submitted)
        if kind is None or end is None:
            return
        due = time + values["deadline_in"] + _ROUNDING
        if outcome.state is JobState.CANCELLED and end <= due:
            return  # its user did not want it any more: that keeps no promise and breaks none
        levels = self._known.promises.levels
        third = levels.third_of(job.processors * (job.requested_time or NO_LIMIT_SECONDS))
        is_kept = end <= due
        levels.learn(kind, third, is_kept=is_kept)
        self._is_changed = True
        log.info("promise.kept" if is_kept else "promise.broken", job=outcome.job.job_id)

    def report(self) -> dict[str, int]:
        """What `advisor status` shows: promises that are over, and those that were kept."""
        levels = self._known.promises.levels
        return {"made": levels.made, "kept": levels.kept}

    def save(self) -> None:
        """Save what was learned, every ten minutes at most."""
        now = self._clock.monotonic()
        if self._is_changed and self._position is not None and now - self._saved_at >= _SAVE_SECONDS:
            self._models.save(RUN_TIMES_KIND, self._known.to_arrays(), {"position": self._position})
            self._saved_at, self._is_changed = now, False

    def _learn(self, outcome: JobOutcome) -> None:
        asked = outcome.job.processors * (outcome.job.requested_time or NO_LIMIT_SECONDS)
        self._known.promises.levels.learn_size(asked)
        if outcome.is_whole and outcome.run_seconds > 0.0:
            self._known.learn(outcome_here(outcome, self._settings, self._store, self._ratio))
            self._is_changed = True

    def _loaded(self) -> int | None:
        """Load what an earlier process has saved; None where there is nothing that can be used."""
        try:
            arrays, meta = self._models.load(RUN_TIMES_KIND)
            known, position = RunTimesOfJobs.from_arrays(arrays), int(meta["position"])
        except UseFallback:
            return None
        except (AdvisorError, KeyError, TypeError, ValueError) as error:
            log.warning("run_times.not_loaded", error=str(error), instead="built from the history")
            return None
        if position > self._store.last_position():  # it was built from another database
            return None
        known.promises.of_confidence(self._settings.promise.confidence)
        self._known = known
        return position
