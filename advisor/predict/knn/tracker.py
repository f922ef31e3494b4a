"""Cluster state at each submission (Cunha et al., Table I).

:class:`ClusterTracker` follows a live cluster (snapshots of squeue and sinfo, and submissions between them)
or a log; :func:`states_of` does a whole log at once.

At equal times ends come first, then starts, then submissions. A submission thus sees as waiting the jobs
submitted before it that have not started, and as running those that have started and not ended; never itself.

A job without a known time limit counts as the mean of the limits known from earlier submissions, in whole
seconds (0 before the first). A job that runs beyond its limit has no remaining work.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.model.cluster import ClusterState
from advisor.model.table import JobTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """One waiting or running job of a live snapshot (a row of squeue); times in seconds.

    Attributes:
        requested_time: Time limit; None where unknown or unlimited.
        start_time: None while the job waits.
        tasks: Tasks of a job array in this row; each counts as a job.
    """

    key: Hashable
    processors: int
    submit_time: float
    requested_time: float | None = None
    start_time: float | None = None
    tasks: int = 1


@dataclass(slots=True)
class _Live:
    """A waiting or running job, or tasks of one array; times in seconds since the tracker's origin."""

    processors: int
    request: float
    tasks: int
    start: float = math.nan
    has_work_left: bool = False  # whether the job counts in ClusterTracker._owed

    @property
    def is_running(self) -> bool:
        return self.start == self.start


class ClusterTracker:
    """Incremental cluster state; amortised O(log n) per event and O(1) per query.

    ``total_processors`` are those of the fixed partition; 0 means unknown, and the highest number that was
    ever busy stands for them.

    Time never runs back: an earlier event or query counts as at the latest time seen. Sums are relative to
    the time of the first event, so that whole seconds stay exact.
    """

    def __init__(self, total_processors: int = 0) -> None:
        self._total = max(0, total_processors)
        self._most_busy = 0
        self._origin: float | None = None
        self._now = 0.0
        self._jobs: dict[Hashable, _Live] = {}
        self._limits: list[tuple[float, int, _Live]] = []  # running jobs by the end of their request
        self._started = 0
        self._known_requests = 0
        self._request_sum = 0.0
        self._waiting = _Sums()
        self._running = _Sums()
        self._queued_work = 0.0
        # Sums over running jobs with work left. The remaining work at time t is _owed - _owing * t.
        self._owed = 0.0  # processors times the end of the request, core-seconds
        self._owing = 0  # processors

    @classmethod
    def from_snapshot(cls, rows: Iterable[SnapshotRow], *, total_processors: int, time: float) -> Self:
        """Build the state from all jobs that wait or run at ``time`` (seconds), in any order."""
        jobs = sorted(rows, key=lambda row: row.submit_time)
        tracker = cls(total_processors)
        tracker._origin = min((row.submit_time for row in jobs), default=time)
        for row in jobs:
            tracker._add(row.key, row.processors, row.requested_time, row.tasks)
        started = [(row.start_time, row.key) for row in jobs if row.start_time is not None]
        for start, key in sorted(started, key=lambda pair: pair[0]):
            tracker._begin(tracker._jobs[key], start - tracker._origin)
        tracker._advance(time)
        return tracker

    def submit(
        self, key: Hashable, *, processors: int, requested_time: float | None, time: float, tasks: int = 1
    ) -> bool:
        """Enqueue a job, or an array of ``tasks`` jobs; returns False where the key is already known."""
        self._advance(time)
        if key in self._jobs:
            return False
        self._add(key, processors, requested_time, tasks)
        return True

    def start(self, key: Hashable, time: float) -> bool:
        """Start a waiting job; returns False where no such job waits."""
        self._advance(time)
        job = self._jobs.get(key)
        if job is None or job.is_running:
            return False
        self._begin(job, self._now)
        return True

    def finish(self, key: Hashable, time: float) -> bool:
        """Remove a job that ended or left the queue; returns False where there is no such job."""
        self._advance(time)
        job = self._jobs.pop(key, None)
        if job is None:
            return False
        if job.is_running:
            self._running.remove(job.processors, job.tasks)
            self._settle(job)
        else:
            self._leave_queue(job)
        return True

    def state(self, time: float) -> ClusterState:
        """The state that a submission at ``time`` meets."""
        self._advance(time)
        now = self._now
        return ClusterState(
            time=time,
            queue_size=self._waiting.count,
            queued_work_core_seconds=self._queued_work,
            remaining_work_core_seconds=max(0.0, self._owed - self._owing * now),
            free_processors=max(0, (self._total or self._most_busy) - self._running.processors),
            total_processors=self._total or self._most_busy,
            running_jobs=self._running.count,
        )

    def _advance(self, time: float) -> None:
        """Move the clock; jobs beyond their time limit have no remaining work."""
        if self._origin is None:
            self._origin = time
        self._now = max(self._now, time - self._origin)
        while self._limits and self._limits[0][0] <= self._now:
            self._settle(heapq.heappop(self._limits)[2])

    def _add(self, key: Hashable, processors: int, requested_time: float | None, tasks: int) -> None:
        if requested_time is None or not math.isfinite(requested_time) or requested_time < 0:
            request = float(round(self._request_sum / self._known_requests)) if self._known_requests else 0.0
        else:
            request = requested_time
            self._request_sum += tasks * requested_time
            self._known_requests += tasks
        job = _Live(processors, request, tasks)
        self._jobs[key] = job
        self._waiting.add(processors, tasks)
        self._queued_work += tasks * processors * request

    def _begin(self, job: _Live, start: float) -> None:
        self._leave_queue(job)
        job.start = start
        self._running.add(job.processors, job.tasks)
        self._most_busy = max(self._most_busy, self._running.processors)
        limit = start + job.request
        job.has_work_left = True
        self._owed += job.tasks * job.processors * limit
        self._owing += job.tasks * job.processors
        self._started += 1
        if len(self._limits) > 2 * self._running.count + 64:  # drop jobs that ended before their limit
            self._limits = [entry for entry in self._limits if entry[2].has_work_left]
            heapq.heapify(self._limits)
        heapq.heappush(self._limits, (limit, self._started, job))

    def _settle(self, job: _Live) -> None:
        """Remove a job's remaining work: it has reached its time limit or ended."""
        if job.has_work_left:
            job.has_work_left = False
            self._owing -= job.tasks * job.processors
            owed = self._owed - job.tasks * job.processors * (job.start + job.request)
            self._owed = owed if self._owing else 0.0  # drops accumulated rounding

    def _leave_queue(self, job: _Live) -> None:
        self._waiting.remove(job.processors, job.tasks)
        queued = self._queued_work - job.tasks * job.processors * job.request
        self._queued_work = queued if self._waiting.count else 0.0


class _Sums:
    """Number of waiting or running jobs, and their processors."""

    __slots__ = ("count", "processors")

    def __init__(self) -> None:
        self.count = 0
        self.processors = 0

    def add(self, processors: int, tasks: int) -> None:
        self.count += tasks
        self.processors += tasks * processors

    def remove(self, processors: int, tasks: int) -> None:
        self.count -= tasks
        self.processors -= tasks * processors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateColumns:
    """One state per row: the fields of :class:`ClusterState` as arrays of one length."""

    time: Floats
    queue_size: Ints
    queued_work_core_seconds: Floats
    remaining_work_core_seconds: Floats
    free_processors: Ints
    total_processors: Ints
    running_jobs: Ints

    def __len__(self) -> int:
        return len(self.time)

    def state(self, row: int) -> ClusterState:
        """The state of one row."""
        return ClusterState(**{field.name: getattr(self, field.name)[row].item() for field in fields(self)})


def states_of(table: JobTable) -> StateColumns:
    """The state that each submission of a log meets, in the table's row order; 12 µs a job.

    Rows may be in any order. A wait below 0 counts as 0. A row with a run time of 0 or less waits and then
    leaves the queue. Where the table does not know its machine's size, the most processors that were busy so
    far stand for it.
    """
    tracker = ClusterTracker(table.total_processors)
    submit, processors = table.submit.tolist(), table.processors.tolist()
    requested = table.requested_time.tolist()
    waits, runs = (np.maximum(np.nan_to_num(column), 0.0).tolist() for column in (table.wait, table.run))
    coming: list[tuple[float, bool, int]] = []  # starts (True), and ends or departures, of rows
    met: dict[int, ClusterState] = {}
    for row in np.argsort(table.submit, kind="stable").tolist():
        now = submit[row]
        while coming and coming[0][0] <= now:
            time, is_start, key = heapq.heappop(coming)
            (tracker.start if is_start else tracker.finish)(key, time)
        met[row] = tracker.state(now)
        tracker.submit(row, processors=processors[row], requested_time=requested[row], time=now)
        start, has_run = now + waits[row], runs[row] > 0.0
        heapq.heappush(coming, (start, has_run, row))
        if has_run:
            heapq.heappush(coming, (start + runs[row], False, row))
    names = [field.name for field in fields(StateColumns)]
    rows = range(len(table))
    return StateColumns(**{name: np.array([getattr(met[row], name) for row in rows]) for name in names})
