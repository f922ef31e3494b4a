"""Start a job that has come back from the cloud there once more, where the price has fallen to its worth.

The watch loop asks in each round. The job keeps its advice, and its placeholder goes on keeping its place.
The intent is on disk before Slurm is told: a job that a crash, or slurmctld, leaves on-premise is one that
has come back (`WatchLoop.follow`).
"""

from __future__ import annotations

from typing import Final

import structlog

from advisor.decide.price.slices import MAX_CLOUD_STARTS
from advisor.decide.submission.rules import keeps_place
from advisor.model.advice import HedgeKind
from advisor.model.limits import limit_of
from advisor.model.snapshot import PENDING, ClusterSnapshot, is_partition_up
from advisor.service.hedge.placing import jobs_others_wait_for
from advisor.service.hedge.watch_context import WatchContext
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.service.running.isolating import for_each
from advisor.service.state.hedge_entries import HedgeEntry, Phase

log = structlog.get_logger(__name__)

PERIOD_SECONDS: Final = 600.0
"""Between two questions about a job that has come back, as about other jobs that wait."""


class GoingAgain:
    """Asks the price about the jobs that wait behind their placeholders."""

    def __init__(self, context: WatchContext) -> None:
        self._settings, self._slurm = context.settings, context.slurm
        self._record, self._clock, self._slices = context.record, context.clock, context.slices
        self._asked_at: dict[int, float] = {}  # or first seen waiting, monotonic seconds

    def consider(self, snapshot: ClusterSnapshot) -> None:
        """Ask about each job after ten minutes, then every ten, and move those that are worth the price.

        None goes more than `MAX_CLOUD_STARTS` times.
        """
        slices, now = self._slices(), self._clock.monotonic()
        if slices is None:
            return
        back = [
            entry
            for entry in self._record.all()
            if entry.phase is Phase.RETURNING
            and entry.in_place
            and entry.kind == HedgeKind.SLICE
            and entry.cloud_starts < MAX_CLOUD_STARTS
            and entry.is_shown(snapshot.time, self._clock.wall())
        ]
        asked = {entry.job_id: self._asked_at.get(entry.job_id, now) for entry in back}
        due = [entry for entry in back if now - asked[entry.job_id] >= PERIOD_SECONDS]
        self._asked_at = asked | {entry.job_id: now for entry in due}
        if not (due and is_partition_up(self._slurm.partitions(), self._settings.cluster.burst_partition)):
            return
        seen = {queued.job.job_id: queued for queued in snapshot.jobs}
        needed = jobs_others_wait_for(snapshot)

        def consider(entry: HedgeEntry) -> None:
            queued, place = seen.get(entry.job_id), seen.get(entry.placeholder)
            if queued is None or place is None or not (queued.state == place.state == PENDING):
                return
            advice = moved_by_us(queued)
            if advice is None or advice.advice_id != entry.advice_id:
                return
            # one that is held, or waits for a time, another job or a limit, is not to start; one that its
            # user has moved to another partition stays there
            is_home = set(queued.partitions) == set(entry.partition.split(","))
            if not (is_home and queued.is_queued) or limit_of(queued) is not None:
                return
            # about a job that has not begun there the price loop asks as before its move; one whose user has
            # set another limit may reach that in the cloud, where it runs longer
            limit = advice.time_limit
            if not queued.restarts or (limit and queued.job.requested_time != limit.asked_seconds):
                return
            if entry.job_id in needed or not keeps_place(queued.job, self._settings):
                return
            stop = slices.another_stop(queued, entry.ran_seconds)
            if stop is not None:
                self._go(entry, stop)

        for_each(due, consider)

    def _go(self, entry: HedgeEntry, stop: float) -> None:
        self._record.count("moved_again")
        entry = self._record.put(
            entry,
            phase=Phase.OPEN,
            stop_seconds=stop,
            is_requeued=False,
            is_raised=False,
            in_place=False,
            cloud_starts=entry.cloud_starts + 1,
            acted=self._clock.wall(),
            why="",
        )
        try:
            self._slurm.update_job([entry.job_id], {"partition": self._settings.cluster.burst_partition})
        finally:  # a poll that began before the answer may not show the change
            self._record.put(entry, acted=self._clock.wall())
        log.info("hedge.moved_again", job=entry.job_id, stop_seconds=round(stop))
