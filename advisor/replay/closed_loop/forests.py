"""Forecasts of waits and run times by the distribution forests, grown on what a simulated site has seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from advisor.model.estimate import Estimates
from advisor.model.table import JobTable
from advisor.predict.forecast.forecaster import Forecaster
from advisor.predict.forecast.placement_features import PlacementFeatures
from advisor.predict.forecast.placement_replay import features_of, retrace
from advisor.predict.forecast.rolling import TARGETS, ForecastOptions, Known, RollingForests
from advisor.predict.forecast.submission_features import FEATURES, Submission
from advisor.predict.knn.fitness import Target
from advisor.replay.closed_loop.log import Floats
from advisor.replay.closed_loop.world import World

MAX_PAST_ROWS: Final = 20_000
"""Rows before the first job that teach."""


class LoopForests:
    """Follows the on-premise queue of a world, and forecasts its submissions as `advisor serve` does.

    The forests are grown on the log's rows before the first job, then every few hundred submissions. Each
    event is one of the methods; a job that runs in the cloud has left the queue.

    Args:
        world: At its beginning.
        options: How forests are grown.
    """

    def __init__(self, world: World, options: ForecastOptions) -> None:
        jobs = world.jobs
        self.options = options
        self._jobs = jobs
        self._table = jobs.table
        first = max(0, jobs.first - MAX_PAST_ROWS)
        past = replace(jobs.table.select(slice(first, jobs.first)), total_processors=jobs.machine)
        self._count = len(past)
        size = self._count + len(jobs)
        self._features = np.full((size, len(FEATURES)), np.nan)
        self._features[: self._count] = features_of(past)
        self._labels = {target: np.full(size, np.nan) for target in TARGETS}
        self._times = {target: np.full(size, np.inf) for target in TARGETS}
        for target in TARGETS:
            known = Known.of(past, target)
            self._labels[target][: self._count] = known.labels
            self._times[target][known.rows] = known.times
        self._rolling = RollingForests(self.options)
        self._forecaster: Forecaster | None = None
        self._observer = _observer_after(past, world.now)
        self._submissions = self._count
        self._grow(world.now)

    def submitted(self, row: int, now: float) -> Estimates | None:
        """Add a job to the queue and forecast it; None before there are forests."""
        if self._submissions % self.options.retrain_jobs == 0:
            self._grow(now)
        self._submissions += 1
        features = self._observer.submit(row, self._submission(row, now))
        self._features[self._count + row] = features
        return self._forecast(row, features)

    def asked_again(self, row: int, now: float) -> Estimates | None:
        """Forecast a waiting job anew, from now on; only jobs submitted before it are before it."""
        submission = self._submission(row, now)
        return self._forecast(row, self._observer.features(submission, before=float(self._jobs.submit[row])))

    def left(self, row: int) -> None:
        """A job has gone to the cloud."""
        self._observer.leave(row)

    def came_back(self, row: int) -> None:
        """A job has come back from the cloud, to its place in the queue."""
        self._observer.withdraw(row)
        self._observer.join(row, self._submission(row, float(self._jobs.submit[row])))

    def started(self, row: int, now: float) -> None:
        """A job has started on-premise."""
        self._observer.start(row, now)
        self._know("wait", row, now, now - float(self._jobs.submit[row]))

    def ended(self, row: int, now: float) -> None:
        """A job has ended; in the cloud it has shown what it would have run on-premise."""
        self._observer.finish(row, now)
        self._know("run", row, now, float(self._jobs.run[row]))

    def _know(self, target: Target, row: int, now: float, label: float) -> None:
        self._labels[target][self._count + row] = label
        self._times[target][self._count + row] = now

    def _forecast(self, row: int, features: Floats) -> Estimates | None:
        if self._forecaster is None:
            return None
        requested = float(self._table.requested_time[self._jobs.first + row])
        found = self._forecaster.forecast(features, None if np.isnan(requested) else requested)
        return Estimates(wait=found["wait"], run=found["run"])

    def _grow(self, now: float) -> None:
        known = {}
        for target in TARGETS:
            times = self._times[target]
            rows = np.flatnonzero(times < now)
            rows = rows[np.argsort(times[rows], kind="stable")]
            known[target] = Known(rows=rows, times=times[rows], labels=self._labels[target])
        if min(len(each.rows) for each in known.values()) < self.options.first // 2:
            return
        for _ in self._rolling.grow(known, self._features, now=now, number=self._submissions):
            pass
        if len(self._rolling):
            self._forecaster = Forecaster(self._rolling)

    def _submission(self, row: int, time: float) -> Submission:
        table, at = self._table, self._jobs.first + row
        return Submission(
            time=time,
            processors=int(table.processors[at]),
            request=float(table.requested_time[at]),
            user=int(table.user[at]),
            group=int(table.group[at]),
            queue=int(table.queue[at]),
            executable=int(table.executable[at]),
        )


def _observer_after(past: JobTable, now: float) -> PlacementFeatures:
    """The history of the jobs that had ended by now; the queue and the machine are empty."""
    ended = np.flatnonzero((past.run > 0) & (past.end < now))
    return retrace(past.select(ended), [("past", int(row)) for row in ended])
