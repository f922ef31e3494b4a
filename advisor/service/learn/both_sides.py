"""Jobs that ran both on-premise and in the cloud: the learn loop learns s(c) = o*c + i from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import structlog
from msgspec.structs import replace

from advisor.decide.submission.cloud_terms import likely_slowdown_of, ratio_of, slowdown_of, stretched
from advisor.history.store import HistoryStore
from advisor.model.errors import UseFallback
from advisor.model.job import Job, JobOutcome, JobState, family, limit_seconds
from advisor.model.settings import Settings
from advisor.model.site import PerformanceRatios
from advisor.predict.performance_ratio import BothSides, learn_ratios
from advisor.service.exchange import snapshot as snapshots
from advisor.service.learn.on_premise_equivalents import went_on
from advisor.service.observation.accounting import SOURCE

log = structlog.get_logger(__name__)

_PAST_JOBS: Final = 50_000
"""The number of newest jobs in the history that are searched for jobs that ran on both sides."""
_MAX_RUNS: Final = 20
"""The number of newest runs of the same work that are kept for each side."""
_MAX_WORK: Final = 100_000

_Work: TypeAlias = tuple[str, str | None, int, str | None]


class PerformanceRatioBook:
    """Learns s(c) of the site, its partitions and applications.

    Jobs are comparable when one user submitted them to one partition under one name (without counters) for
    one number of processors. Only completed runs count: the run time of a failed run is not the job's. The
    ledger gives the partition to which a job in the cloud was submitted.

    Attributes:
        current: The ratios learned so far; None: too few jobs ran on both sides, or learning is switched off.
    """

    def __init__(self, settings: Settings, store: HistoryStore) -> None:
        self._settings = settings
        self._store = store
        self._runs: dict[_Work, tuple[list[float], list[float]]] = {}
        self._position: int | None = None
        self._looked_until: int | None = None  # no job before has run in the cloud
        self._is_changed = False
        self.current = self._published() if settings.placement.learn_performance_ratio else None

    def ratio(self, job: Job) -> float:
        """s(c) of a job, by which its run time in the cloud is converted to one on-premise.

        Here and below, ``job.queue`` is the partition that it was submitted to.
        """
        return likely_slowdown_of(job, ratio_of(job, self.current), self._settings.placement)

    def slowdown(self, job: Job) -> float:
        """s(c) of a job as a decision about it counts with it."""
        return slowdown_of(job, ratio_of(job, self.current), self._settings.placement)

    def limit_there(self, job: Job) -> float:
        """The time limit of a job in the cloud if its user has set the one that it has, seconds."""
        asked = replace(job, explicit_time_limit=True)
        limit = stretched(asked, self._settings.placement, ratio_of(job, self.current))
        return limit_seconds(job) if limit is None else limit.given_seconds

    def learn(self) -> None:
        """Learn from the jobs that have ended since the last call.

        The history is read once the first job has run in the cloud: before that it teaches nothing of s(c).
        """
        if not self._settings.placement.learn_performance_ratio:
            return
        if self._position is None and not self._begin():
            return
        for position, outcome in self._store.added_after(self._position or 0, source=SOURCE):
            self._position = position
            self._take(outcome)
        if self._is_changed:
            self._is_changed = False
            own = self._settings.placement
            self.current = learn_ratios(list(self._both()), own.overhead_per_processor, own.baseline)

    def _published(self) -> PerformanceRatios | None:
        """What the process before has published last: jobs are decided before the history has been read."""
        try:
            return snapshots.read(self._settings.paths.snapshot).state.ratios
        except UseFallback:
            return None

    def _begin(self) -> bool:
        last = self._store.last_position()
        if not self._has_run_in_cloud():
            self._looked_until, self.current = last, None
            return False
        self._runs.clear()  # of a call that the database has cut short
        for outcome in self._store.recent(_PAST_JOBS, source=SOURCE):
            self._take(outcome)
        self._position, self._is_changed = last, True
        log.info("ratios.history_read", work=len(self._runs), on_both_sides=sum(1 for _ in self._both()))
        return True

    def _has_run_in_cloud(self) -> bool:
        """Whether any job has; the whole history is searched once, which takes a second for two million."""
        burst = self._settings.cluster.burst_partition
        if self._looked_until is None:
            return bool(self._store.recent(1, source=SOURCE, partition=burst))
        later = self._store.added_after(self._looked_until, source=SOURCE)
        return any(outcome.partition == burst for _, outcome in later)

    def _take(self, outcome: JobOutcome) -> None:
        job = outcome.job
        if outcome.state is not JobState.COMPLETED or outcome.run_seconds <= 0.0:
            return
        if job.user is None or job.name is None or job.placeholder_for is not None:
            return
        if outcome.restarts and self._went_on(outcome):
            return
        in_cloud = outcome.partition == self._settings.cluster.burst_partition
        partition = self._home(job) if in_cloud else outcome.partition
        work = (job.user, family(job.name), job.processors, partition)
        sides = self._runs.setdefault(work, ([], []))
        sides[in_cloud].append(outcome.run_seconds)
        del sides[in_cloud][:-_MAX_RUNS]
        self._is_changed |= bool(sides[0] and sides[1])
        while len(self._runs) > _MAX_WORK:
            del self._runs[next(iter(self._runs))]

    def _went_on(self, outcome: JobOutcome) -> bool:
        record = self._store.advice_of(outcome.job.job_id, source=SOURCE)
        return record is not None and went_on(outcome, record.job)

    def _home(self, job: Job) -> str:
        """The on-premise partition the job was submitted to; the first one where its user chose the cloud."""
        record = self._store.advice_of(job.job_id, source=SOURCE)
        own = self._settings.cluster.on_premise_partitions
        queue = (record.job.queue or "").partition(",")[0] if record is not None else ""
        return queue if queue in own else own[0]

    def _both(self) -> Iterator[BothSides]:
        for (_, application, processors, partition), (here, cloud) in self._runs.items():
            if here and cloud:
                yield BothSides(processors, partition, application, tuple(here), tuple(cloud))
