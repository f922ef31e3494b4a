"""The submit server's side of the advisor's own placement rule: features and forecasts of a submission.

A watcher thread follows the stream of events that the control process writes; the threads that answer ask for
forecasts and note what was advised. Both hold the lock of the hot path, the watcher for a few events at a
time. New forests come with a base of their own: they are built beside and put in place as a whole.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Hashable
from pathlib import Path
from typing import Final

import structlog
from msgspec.structs import replace

from advisor.decide.hedge.hedging import warm_plan
from advisor.history.models import ModelStore
from advisor.model.errors import AdvisorError, UseFallback
from advisor.model.estimate import Estimate
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.predict.forecast.forecaster import Bounds, Forecaster
from advisor.predict.forecast.placement_features import PlacementFeatures
from advisor.predict.forecast.queue_events import Floats, apply_event
from advisor.predict.forecast.rolling import ForecastOptions
from advisor.predict.forecast.submission_features import Codes, Submission
from advisor.predict.knn.fitness import Target
from advisor.service.exchange import placement_store, queue_stream
from advisor.service.exchange.placement_store import PLACEMENT_KIND, Loaded
from advisor.service.exchange.queue_stream import StreamFile

log = structlog.get_logger(__name__)

MAX_TASKS_AT_ONCE: Final = 100
"""Tasks of an array that join the queue within its own answer; the next look shows the rest."""
_EVENTS_AT_A_TIME: Final = 25
_PAUSE_SECONDS: Final = 0.0005
"""Between two lots: Python's locks are not fair, and whoever answers would wait for all of them."""
_MAX_ADVISED: Final = 100_000
_KEPT_SECONDS: Final = 1.0
"""What a forecast says of the time of day, and of how long jobs have run, is off by so much at most."""
_REHEARSALS: Final = 50


class LivePlacement:
    """One base, the events since, and what was advised since the last look. Its owner holds the lock.

    Args:
        loaded: Forests and base.
        content: What has happened since the base.
    """

    def __init__(self, loaded: Loaded, content: StreamFile) -> None:
        self.name = loaded.base.name
        self.version = ""
        self._origin = loaded.base.table.start_of_log
        self._codes: Codes = loaded.base.codes
        self._observer: PlacementFeatures = loaded.base.observer()
        self._forecaster = Forecaster(loaded.forests)
        self._advised: deque[tuple[float, Hashable]] = deque()
        self._number = 0
        self._applied = 0
        self.time = 0.0
        """When the last look that is in here began, epoch seconds."""
        self._bounds: Bounds = {}
        self._kept: dict[Hashable, dict[Target, Estimate]] = {}
        self._kept_since = 0.0
        for row in self.begin(content):
            self.take(row)
        self._touch()

    def _touch(self) -> None:
        """Ask now and then: what is compiled and paged in here need not be where somebody waits."""
        for processors in range(1, 1 + _REHEARSALS):
            self.forecast(Job(job_id=0, submit_time=self.time, processors=processors, requested_time=3600.0))

    def begin(self, content: StreamFile) -> Floats:
        """Take in all of a look but its events, which are returned: those not taken before."""
        for column, name, code in content.names:
            self._codes.put(column, name, code)
        self._kept.clear()
        self._bounds = {"wait": content.bounds["wait"], "run": content.bounds["run"]}
        self._observer.total_processors = float(content.total_processors)
        self.time = content.time
        return content.rows[self._applied :]

    def withdraw_seen(self, most: int) -> bool:
        """Take back jobs advised before the look: it shows them now. False when none is left."""
        for _ in range(most):
            if not self._advised or self._advised[0][0] > self.time:
                return False
            self._withdraw_oldest()
        return True

    def take(self, row: Floats) -> None:
        """One event."""
        apply_event(self._observer, row)
        self._kept.clear()
        self._applied += 1

    def features(self, job: Job) -> Floats:
        """What the forests look at, of a job that is submitted now."""
        return self._observer.features(self._submission_of(job))

    def _submission_of(self, job: Job) -> Submission:
        return self._codes.submission(job, job.submit_time - self._origin, learn=False)

    def forecast(self, job: Job) -> dict[Target, Estimate]:
        """Wait and run time of a job that is submitted now.

        The forecast of a job is kept for a second for jobs that say the same, as a loop of submissions does,
        unless anything happens to the queue or the machine meanwhile.
        """
        submission = self._submission_of(job)
        if not 0.0 <= submission.time - self._kept_since < _KEPT_SECONDS:
            self._kept.clear()
            self._kept_since = submission.time
        says = submission[1:]
        found = self._kept.get(says)
        if found is None:
            features = self._observer.features(submission)
            found = self._forecaster.forecast(features, job.requested_time, self._bounds)
            self._kept[says] = found
        return found

    def forecast_waiting(self, job: Job, now: float) -> dict[Target, Estimate]:
        """Wait yet to come, and run time, of a job that has waited since ``job.submit_time``.

        As if it were submitted now behind those alone that were there before it: whoever came later does not
        go first as a rule, and what has happened since is in the queue and on the machine.
        """
        submission = self._submission_of(replace(job, submit_time=now))
        features = self._observer.features(submission, before=job.submit_time - self._origin)
        return self._forecaster.forecast(features, job.requested_time, self._bounds)

    def advised(self, job: Job, tasks: int) -> None:
        """A job joins the on-premise queue; a look will show it.

        Where nobody waits and its processors are free it is taken to start at once, as first come first
        served would do.
        """
        # new names get the numbers that the control process will give them, unless slurmctld refuses a job
        submission = self._codes.submission(job, job.submit_time - self._origin)
        for _ in range(min(tasks, MAX_TASKS_AT_ONCE)):
            self._join(submission, job.submit_time)
        while len(self._advised) > _MAX_ADVISED:
            self._withdraw_oldest()

    def carry_over(self, before: LivePlacement) -> None:
        """Take over what was advised and is in no look yet."""
        for advised, key in before._advised:
            submission = before._observer.submission_of(key)
            if advised > self.time and submission is not None:
                self._join(submission, advised)

    def _withdraw_oldest(self) -> None:
        self._observer.withdraw(self._advised.popleft()[1])
        self._kept.clear()

    def _join(self, submission: Submission, time: float) -> None:
        self._number += 1
        key: Hashable = ("advised", self._number)
        fits = self._observer.would_start(submission.processors)
        self._observer.join(key, submission)
        self._kept.clear()
        if fits:
            self._observer.occupy(key, submission.time)
        self._advised.append((time, key))


class PlacementFollower:
    """Keeps :attr:`current` up to date; its methods are the watcher thread's.

    Args:
        run, models: Folders of the stream and of the models.
        lock: Of the hot path.
    """

    def __init__(self, run: Path, models: Path, lock: threading.Lock) -> None:
        self._run = run
        self._store = ModelStore(folder=models)
        self._lock = lock
        self._signature: tuple[int, int] | None = None
        self._refused: str | None = None
        self.current: LivePlacement | None = None

    def refresh(self) -> None:
        """One look.

        Raises:
            AdvisorError: A file is damaged; what there is stays, and is not believed for long.
        """
        try:
            status = (self._run / queue_stream.FILE_NAME).stat()
        except OSError:
            return
        signature = status.st_mtime_ns, status.st_ino
        if signature == self._signature:
            return
        content = queue_stream.read(self._run)
        current = self.current
        if current is not None and current.name == content.base:
            self._follow(current, content)
            self._signature = signature
        elif self._build(content):
            self._signature = signature

    def usable(self, settings: Settings, now: float) -> LivePlacement | None:
        """What may decide: the advisor's own rule is in force, and the stream has been heard of lately."""
        current = self.current
        if current is None or settings.placement.rule != "advisor":
            return None
        return current if abs(now - current.time) <= settings.submit.snapshot_max_age_seconds else None

    def _follow(self, current: LivePlacement, content: StreamFile) -> None:
        with self._lock:
            rows = current.begin(content)
            more = current.withdraw_seen(_EVENTS_AT_A_TIME)
        while more:
            time.sleep(_PAUSE_SECONDS)
            with self._lock:
                more = current.withdraw_seen(_EVENTS_AT_A_TIME)
        for first in range(0, len(rows), _EVENTS_AT_A_TIME):
            if first:
                time.sleep(_PAUSE_SECONDS)
            with self._lock:
                for row in rows[first : first + _EVENTS_AT_A_TIME]:
                    current.take(row)

    def _build(self, content: StreamFile) -> bool:
        """Forests and base of this stream, if they are in force already."""
        version = self._store.current(PLACEMENT_KIND)
        if version is None or version == self._refused:
            return False
        try:
            loaded = placement_store.load(self._store, ForecastOptions(), version)
        except UseFallback:
            return False
        except AdvisorError:
            self._refused = version  # said once
            raise
        if loaded.base.name != content.base or not len(loaded.forests):
            return False
        built = LivePlacement(loaded, content)
        built.version = version
        with self._lock:
            if self.current is not None:
                built.carry_over(self.current)
            self.current = built
        if not gc.isenabled():
            # thousands of small objects that stay: not to be looked through between two answers
            gc.freeze()
        log.info("placement.in_use", version=version)
        return True


def warm() -> None:
    """Compile, or load from the cache, all that a first forecast needs; forests may come at any time."""
    PlacementFeatures(1).features(Submission(0.0, 1, 60.0, 0, 0, 0, 0))
    Forecaster.warm()
    warm_plan()
