"""Run times and arrivals of jobs in the burst partition, learned from the history."""

from __future__ import annotations

from typing import Final

from advisor.history.store import HistoryStore
from advisor.model.job import JobOutcome
from advisor.model.settings import Settings
from advisor.service.portfolio.arrivals import RecentJobs
from advisor.service.portfolio.portfolio_view import LastTwo

JUDGED_JOBS: Final = 1_000
"""Newest finished burst jobs on which every policy is simulated: enough days of most sites."""
_MAX_NEW: Final = 20_000
"""Jobs read in one round: the loop must not stop for a large import."""


class BurstHistory:
    """The jobs that ended in the burst partition, which forecast the next. Used by one thread."""

    def __init__(self, settings: Settings, store: HistoryStore) -> None:
        self._partition = settings.cluster.burst_partition
        self._store = store
        self._position: int | None = None
        self.run_times = LastTwo()
        self.recent = RecentJobs()

    def learn(self) -> None:
        """Add the jobs that have ended since the last call; at first, the last ones of the history."""
        if self._position is None:
            self._position = self._store.last_position()
            for outcome in self._store.recent(JUDGED_JOBS, partition=self._partition):
                self._add(outcome)
            return
        for number, (position, outcome) in enumerate(self._store.added_after(self._position)):
            self._position = position
            if outcome.partition == self._partition and outcome.end_time > outcome.start_time:
                self._add(outcome)
            if number >= _MAX_NEW:
                return

    def _add(self, outcome: JobOutcome) -> None:
        if not outcome.is_whole:
            return  # EC2 took its node: the job runs again and counts when it has ended
        self.run_times.ended(outcome.job, outcome.end_time - outcome.start_time)
        self.recent.ended(outcome)
