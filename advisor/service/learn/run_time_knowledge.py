"""Run times as distributions in `advisor control`: loaded or built from the history, taught, and saved."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import structlog

from advisor.arrays import Floats, Ints
from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.promise.promised import kind_of
from advisor.history.ledger import Wanted
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.history.schema import SAME_MOMENT_SECONDS
from advisor.history.store import HistoryStore
from advisor.model.advice import Mode, Placement
from advisor.model.errors import AdvisorError, UseFallback
from advisor.model.job import Job, JobOutcome, JobState, limit_seconds
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.predict.promised.known import PromisesKnown
from advisor.predict.promised.levels import Kind
from advisor.predict.promised.waits import Plans
from advisor.predict.run_times.events import submissions_and_ends
from advisor.predict.run_times.run_times import RunTimesOfJobs
from advisor.service.learn.on_premise_equivalents import AskRatio, on_premise_outcome
from advisor.service.running.clock import Clock
from advisor.service.submit.run_times import RUN_TIMES_KIND

log = structlog.get_logger(__name__)

_SAVE_SECONDS: Final = 600.0
_ROUNDING: Final = 1.0  # seconds; Slurm's times are whole
_MOST_ADVICE: Final = 100
"""Of one job: it is advised when it is submitted, and when it moves."""
_FIRST_JOBS: Final = 200_000
"""Newest jobs that a first start learns from: half a minute on one core."""
_MOST_PLACES: Final = 50_000
"""Jobs of which it is kept where the experts looked at their submission, the newest; 300 bytes each."""


class RunTimeKnowledge:
    """Keeps the run times of the history's jobs."""

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
        self._known = self._nothing()
        self._position: int | None = None
        # job seen in the queue: when it was submitted, and where the experts looked then
        self._places: dict[int, tuple[float, Ints]] = {}
        self._promised: dict[int, str] = {}  # job in the queue to its first advice
        self._open = Counter[str]()  # promises of jobs in the queue, by kind
        self._saved_at, self._is_changed = -math.inf, False

    def chances(self, job: Job) -> Floats:
        """Probability of each bin of `GRID`, shape ``(bins,)``; nothing above the job's time limit."""
        return self._known.chances(job)

    @property
    def is_ready(self) -> bool:
        """Whether the history has been learned."""
        return self._position is not None

    def learn(self) -> None:
        """Learn the jobs added to the history since the last call; the first call loads or builds."""
        position = self._loaded() if self._position is None else self._position
        if position is None:
            position = self._store.last_position()
            self._is_changed = True  # `advisor serve` gets what is forecast before any job has ended, too
            try:
                self._build(self._store.recent(_FIRST_JOBS))
            except Exception:  # the next call builds it again
                self._known = self._nothing()
                raise
        for added, outcome in self._store.added_after(position):
            position = self._position = added
            self._learn(outcome, self._place_of(outcome.job))
        self._position = position

    def _nothing(self) -> RunTimesOfJobs:
        return RunTimesOfJobs(promises=PromisesKnown(self._settings.promise.confidence))

    def _build(self, outcomes: Sequence[JobOutcome]) -> None:
        """Learn the history in the order of submissions and ends, as if it happened now."""
        places: dict[int, Ints] = {}
        submits = [outcome.job.submit_time for outcome in outcomes]
        for row, ends in submissions_and_ends(submits, [outcome.end_time for outcome in outcomes]):
            if ends:
                self._learn(outcomes[row], places.pop(row, None))
            else:
                places[row] = self._known.look_up(outcomes[row].job)

    def _place_of(self, job: Job) -> Ints | None:
        """Where the experts looked at the job's submission; None: it was not seen in the queue."""
        submitted, place = self._places.get(job.array_job_id or job.job_id, (math.nan, None))
        return place if abs(submitted - job.submit_time) <= SAME_MOMENT_SECONDS else None

    def judge(self, record: AdviceRecord, outcome: JobOutcome) -> None:
        """Compare the intervals that a whole job on-premise was given with what it needed."""
        if (waited := record.wait_of(outcome)) is not None:
            plans = _plans_of(record)
            self._known.intervals.learn_wait(record.estimates.plan, waited)
            if plans is not None:
                self._known.errors.learn_wait(self._known.errors.wait(plans.expected), waited)
                self._known.promises.waits.learn(plans, waited, has_started=True)
        self._known.intervals.learn_run(record.estimates.run, outcome.run_seconds)
        self._is_changed = True

    def learn_left(self, record: AdviceRecord, outcome: JobOutcome) -> None:
        """Learn how long a job that ended in the cloud would have waited on-premise at least.

        It has waited until it moved, and where it kept its place until its end. Without such jobs only short
        waits would be learned where jobs move that wait long.

        Args:
            record: Its newest advice, by which it has moved.
        """
        if not _has_moved(record):
            return
        first = self._first_advice(record, outcome)
        left_at = record.advice.time if record.advice.hedge is None else outcome.end_time
        plans, waited = _plans_of(first), left_at - first.advice.time
        if plans is not None and waited > 0.0 and not outcome.ineligible_seconds:
            self._known.promises.waits.learn(plans, waited, has_started=False)
            self._is_changed = True

    def judge_promise(self, record: AdviceRecord, outcome: JobOutcome) -> None:
        """Learn whether a job that named a time was done by then, wherever it ran.

        Args:
            record: Its newest advice.
        """
        if "deadline_in" not in record.advice.values():
            return
        first = self._first_advice(record, outcome)
        values = first.advice.values()
        kind = kind_of(values, has_moved=first.advice.advice_id != record.advice.advice_id)
        if kind is None:
            return
        job, end = first.job, outcome.end_time
        due = first.advice.time + values["deadline_in"] + _ROUNDING
        if outcome.state is JobState.CANCELLED and end <= due:
            return  # its user did not want it any more: that keeps no promise and breaks none
        levels = self._known.promises.levels
        third = levels.third_of(job.processors * limit_seconds(job))
        is_kept = end <= due
        # a job that has come back was requeued
        ran_there = outcome.partition == self._settings.cluster.burst_partition
        was_paid = ran_there or (bool(outcome.restarts) and _has_moved(record))
        by_run = was_paid or end - outcome.start_time > first.estimates.run.upper
        expected = job.processors * record.estimates.run.seconds
        levels.learn(kind, third, is_kept=is_kept, by_run=by_run, core_seconds=expected)
        self._is_changed = True
        log.info("promise.kept" if is_kept else "promise.broken", job=outcome.job.job_id)

    def see_queue(self, jobs: Sequence[QueuedJob]) -> None:
        """Keep where the experts look for new jobs, and count the promises that jobs still have."""
        for queued in jobs:
            job = queued.job
            if self._places.get(job.job_id, (math.nan,))[0] != job.submit_time:
                self._places.pop(job.job_id, None)  # so that the newest jobs are the last ones
                self._places[job.job_id] = job.submit_time, self._known.look_up(job)
        while len(self._places) > _MOST_PLACES:
            del self._places[next(iter(self._places))]
        if self._settings.promise.enabled:
            self._count_open(jobs)

    def _count_open(self, jobs: Sequence[QueuedJob]) -> None:
        """Count the promises that jobs in the queue still have.

        A job's AdminComment has its newest advice. That it has moved is known of jobs that were seen here
        with an earlier one.
        """
        levels = self._known.promises.levels
        first, open_now = dict[int, str](), list[tuple[Kind, int]]()
        for queued in jobs:
            recorded = parse_admin_comment(queued.admin_comment)
            if recorded is None or "deadline_in" not in recorded.numbers:
                continue
            job_id = queued.job.job_id
            first[job_id] = self._promised.get(job_id, recorded.advice_id)
            kind = kind_of(recorded.numbers, has_moved=first[job_id] != recorded.advice_id)
            if kind is not None:
                size = queued.job.processors * limit_seconds(queued.job)
                open_now.append((kind, levels.third_of(size)))
        self._promised = first
        levels.set_open(open_now)
        self._open = Counter(kind.name.lower() for kind, _ in open_now)

    def _first_advice(self, newest: AdviceRecord, outcome: JobOutcome) -> AdviceRecord:
        """The advice of a job's submission; a later one has moved it."""
        since = outcome.job.submit_time - SAME_MOMENT_SECONDS  # ids wrap around: an old job may have had it
        wanted = Wanted(since=since, job_id=outcome.job.job_id)
        given = self._store.newest_decisions(wanted, _MOST_ADVICE)
        return given[-1].record if given else newest

    def strain(self, job: Job) -> float:
        """How often promises to jobs of this size are broken of late, 0 to 1."""
        levels = self._known.promises.levels
        return levels.strain(Kind.BETWEEN, levels.third_of(job.processors * limit_seconds(job)))

    def report(self) -> dict[str, Any]:
        """What `advisor status` shows: promises that are over, kept ones, and those still open by kind."""
        levels = self._known.promises.levels
        return {"made": levels.made, "kept": levels.kept, "open": dict(self._open)}

    def save(self, *, at_once: bool = False) -> None:
        """Save what was learned, every ten minutes at most, or now."""
        now = self._clock.monotonic()
        is_due = at_once or now - self._saved_at >= _SAVE_SECONDS
        if self._is_changed and self._position is not None and is_due:
            self._models.save(RUN_TIMES_KIND, self._known.to_arrays(), {"position": self._position})
            self._saved_at, self._is_changed = now, False

    def _learn(self, outcome: JobOutcome, place: Ints | None) -> None:
        self._known.promises.levels.learn_size(outcome.job.processors * limit_seconds(outcome.job))
        if not outcome.is_whole or outcome.run_seconds <= 0.0:
            return
        here = on_premise_outcome(outcome, self._settings, self._store, self._ratio)
        if here.is_whole:
            self._known.learn(here, place=place)
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
        confidence = self._settings.promise.confidence
        # `advisor serve` has the former one
        self._is_changed |= known.promises.levels.confidence != confidence
        known.promises.of_confidence(confidence)
        self._known = known
        return position


def _plans_of(record: AdviceRecord) -> Plans | None:
    """The waits that were planned for an advised job; None where they are unknown."""
    planned, expected = record.estimates.plan, record.estimates.wait
    return Plans(planned.seconds, expected.seconds) if planned.is_usable and expected.is_usable else None


def _has_moved(newest: AdviceRecord) -> bool:
    """Whether a job has moved to the cloud by its newest advice."""
    return newest.advice.placement is Placement.BURST and newest.advice.mode is Mode.ACT
