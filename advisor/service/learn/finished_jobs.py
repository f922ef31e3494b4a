"""The history's finished jobs as the placement loop takes them in: each once, and the newest as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from advisor.history.columns import on_premise
from advisor.history.store import HistoryStore
from advisor.model.job import JobOutcome
from advisor.model.settings import Settings
from advisor.model.table import JobTable


class FinishedJobs:
    """Follows the history.

    Args:
        max_jobs: Newest jobs that make a table.

    Attributes:
        count: Finished jobs taken in so far; a job that will run again is not counted.
    """

    def __init__(self, settings: Settings, store: HistoryStore, max_jobs: int) -> None:
        self._settings = settings
        self._store = store
        self._max_jobs = max_jobs
        self._position = 0
        self.count = 0

    def begin(self) -> None:
        """Take the jobs of the present history as taken in."""
        self._position = self._store.last_position()
        self.count = self._store.count()

    @property
    def new(self) -> int:
        """Jobs that were added since the last call of :meth:`take`."""
        return self._store.last_position() - self._position

    def take(self) -> Iterator[JobOutcome]:
        """The new jobs, each once, even if the caller fails."""
        for position, outcome in self._store.added_after(self._position):
            self._position = position
            self.count += outcome.is_whole
            yield outcome

    def first_submission(self) -> float | None:
        """Submission of the first job of a table, epoch seconds; None for an empty history."""
        first = self._store.recent(self._max_jobs)
        return first[0].job.submit_time if first else None

    def table(self, take_new: Callable[[], None]) -> JobTable:
        """The newest finished on-premise jobs, exactly those that ``take_new`` has taken in."""
        while True:
            take_new()
            recent = self._store.recent(self._max_jobs)
            table = self._store.table(
                recent[0].end_time if recent else math.inf,
                utc_offset_seconds=self._settings.cluster.utc_offset_seconds,
            )
            if self._store.last_position() == self._position:
                return on_premise(table, self._settings.cluster.burst_partition)
