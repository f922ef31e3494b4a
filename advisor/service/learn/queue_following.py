"""From polls of Slurm and finished jobs to the stream of queue events that the submit server follows."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.model.job import JobOutcome
from advisor.model.settings import Settings
from advisor.model.table import UNKNOWN_CODE, JobTable
from advisor.predict.forecast.forecaster import Bounds
from advisor.predict.forecast.placement_features import EventKind
from advisor.predict.forecast.queue_events import COLUMNS, KEY, KIND, TIME, event
from advisor.predict.forecast.rolling import TARGETS
from advisor.predict.forecast.submission_features import CODED, Codes
from advisor.service.exchange.queue_stream import FORMAT, Cut, Seen, StreamFile
from advisor.service.observation.placeholders import placeholders_of
from advisor.service.observation.requeued_jobs import RequeuedJobs
from advisor.slurm.protocol import PENDING, QueuedJob, SlurmSnapshot

Floats = NDArray[np.float64]

MAX_TASKS: Final = 1_000
"""Tasks of a waiting array that are counted: more would delay the jobs behind them no differently."""
_TASK: Final = 2**32  # keys of an array's waiting tasks: exact in a float64
_FORGOTTEN_SECONDS: Final = 3600.0


class QueueStream:
    """Records what happened between two polls. Thread-safe.

    Args:
        codes: Codes of names so far; new names get new ones.
        origin: Epoch seconds of time 0.
    """

    def __init__(self, settings: Settings, codes: Codes, origin: float) -> None:
        self._fixed = frozenset(settings.cluster.on_premise_partitions)
        self._burst = settings.cluster.burst_partition
        self._lock = threading.Lock()
        self._live: dict[int, Seen] = {}
        self._gone: dict[int, tuple[float, Seen]] = {}
        self._ended: list[JobOutcome] = []
        self._done: dict[int, float] = {}  # starts of ended jobs that Slurm may still show
        self._restarted: set[int] = set()
        self._started_before: set[int] = set()
        self._requeued = RequeuedJobs(self._burst)
        self._places: set[int] = set()  # placeholders in the queue
        self._events: list[tuple[float, ...]] = []
        self._first = 0
        self._bytes = bytearray()
        self._packed = (-1, 0)  # number of the first event in `_bytes`, and how many are there
        self._time = 0.0
        self._total = 0
        self._base = ""
        self._base_codes = Codes()
        self.codes = codes
        self.origin = origin
        self.has_polled = False

    def ended(self, outcomes: Iterable[JobOutcome]) -> None:
        """Add jobs that have ended; they become events at the next poll."""
        with self._lock:
            self._ended += [
                outcome
                for outcome in outcomes
                if outcome.partition != self._burst and outcome.run_seconds > 0
            ]

    def look(self, snapshot: SlurmSnapshot, total_processors: int) -> None:
        """Take in a snapshot of Slurm."""
        now = snapshot.time - self.origin
        with self._lock:
            self._total = total_processors
            self._number_names(snapshot.jobs)
            found = list(self._ends())
            places = placeholders_of(snapshot.jobs)
            self._requeued.update(snapshot.jobs, places, self._is_on_premise)
            seen = self._without_ended(dict(self._rows(snapshot.jobs)))
            requeued = {queued.job.job_id for queued in snapshot.jobs if queued.restarts}
            come = requeued & (seen.keys() - self._live.keys())
            self._restarted |= come
            self._started_before |= self._requeued.without_wait(come)
            left = self._live.keys() - seen.keys()
            # a placeholder that left is withdrawn first, so that its job is again its user's last one
            self._add([event(EventKind.WITHDRAW, key, now) for key in left & self._places])
            for key in left - self._places:
                self._gone[key] = now, self._live[key]
                found.append(event(EventKind.LEAVE, key, now))
            self._places = {place.job.job_id for found in places.values() for place in found}
            for key, job in seen.items():
                found += self._changes(key, job, now)
            found += self._forgotten(now)
            self._live = seen
            self._time = now
            self.has_polled = True
            self._add(found)

    def cut(self) -> Cut:
        """Where a new base may begin; the finished jobs added so far are events before it."""
        with self._lock:
            self._add(list(self._ends()))
            return Cut(
                index=self._first + len(self._events),
                time=self._time,
                live=dict(self._live),
                gone={key: seen for key, (_, seen) in self._gone.items()},
                total_processors=self._total,
                started_before=frozenset(self._started_before),
            )

    def rebase(self, base: str, cut: Cut, codes: Codes, known: Codes) -> int:
        """Follow a new base from a cut on; return the number of the first event after it.

        The base has jobs that have left the queue as running: the first events remove them.

        Args:
            base, cut: The base's name, and where it begins.
            codes, known: The base's codes, and all codes known when it was made: newer ones are kept.
        """
        with self._lock:
            under_way = self._live.keys() | self._gone.keys() | {int(row[KEY]) for row in self._events}
            self._restarted &= under_way
            self._started_before &= under_way
            self._requeued.forget_all_but(under_way)
            left = [event(EventKind.LEAVE, key, cut.time) for key in cut.gone]
            self._events = left + self._events[cut.index - self._first :]
            self._packed = (-1, 0)
            self._first = cut.index - len(left)
            self._base = base
            self._base_codes = codes
            now = codes.copy()
            for column, name, code in self.codes.new_since(known):
                now.put(column, name, code)
            self.codes = now
            return self._first

    def coded(self, table: JobTable) -> JobTable:
        """A table of the history with this stream's codes and clock."""
        with self._lock:
            columns: dict[str, Any] = {column: _recoded(table, column, self.codes) for column in CODED}
        shift = table.start_of_log - self.origin
        return replace(table, submit=table.submit + shift, start_of_log=self.origin, names={}, **columns)

    def since(self, index: int) -> tuple[Floats, int]:
        """Events from a number on, shape (events, COLUMNS), and the number that follows them."""
        with self._lock:
            rows = self._events[max(0, index - self._first) :]
            return np.array(rows).reshape(-1, COLUMNS), self._first + len(self._events)

    @property
    def restarted(self) -> frozenset[int]:
        """Jobs that had run elsewhere when they joined this queue: they were brought back from the cloud.

        No wait was forecast for their return.
        """
        with self._lock:
            return frozenset(self._restarted)

    @property
    def length(self) -> int:
        """Events since the base."""
        return len(self._events)

    def file(self, bounds: Bounds) -> StreamFile | None:
        """The stream as a file; None before there is a base."""
        with self._lock:
            if not self._base:
                return None
            return StreamFile(
                format=FORMAT,
                base=self._base,
                time=self._time + self.origin,
                total_processors=self._total,
                bounds={target: bounds[target] for target in TARGETS},
                names=self.codes.new_since(self._base_codes),
                events=self._encoded(),
            )

    def _encoded(self) -> bytes:
        """All events as bytes; only those since the last call are encoded anew."""
        first, count = self._packed
        if first != self._first or count > len(self._events):
            self._bytes, count = bytearray(), 0
        if new := self._events[count:]:
            self._bytes += np.array(new, dtype="<f8").tobytes()
        self._packed = self._first, len(self._events)
        return bytes(self._bytes)

    def _add(self, events: list[tuple[float, ...]]) -> None:
        events.sort(key=lambda row: (row[TIME], row[KIND], row[KEY]))
        self._events += events

    def _number_names(self, queued: Iterable[QueuedJob]) -> None:
        """Give new names their codes in order of submission, as the submit server does."""
        new = [outcome.job for outcome in self._ended if outcome.job.job_id not in self._live]
        new += [
            each.job for each in queued if self._is_on_premise(each) and each.job.job_id not in self._live
        ]
        for job in sorted(new, key=lambda job: job.submit_time):
            self.codes.submission(job, 0.0)

    def _is_on_premise(self, queued: QueuedJob) -> bool:
        """Whether a job waits in an on-premise partition or runs there."""
        return bool(self._fixed & set(queued.partitions)) and (
            queued.state == PENDING or queued.holds_processors
        )

    def _rows(self, jobs: Iterable[QueuedJob]) -> Iterable[tuple[int, Seen]]:
        for queued in jobs:
            if not self._is_on_premise(queued):
                continue
            job, is_waiting = queued.job, queued.state == PENDING
            submission = self.codes.submission(job, self._requeued.submitted(queued) - self.origin)
            start = None
            if not is_waiting:
                start = (queued.start_time or job.submit_time) - self.origin
            for task in range(min(job.array_tasks, MAX_TASKS) if is_waiting else 1):
                yield job.job_id + _TASK * task, Seen(submission, start)

    def _changes(self, key: int, job: Seen, now: float) -> Iterable[tuple[float, ...]]:
        before = self._live.get(key)
        if before is None:
            self._gone.pop(key, None)
            yield event(EventKind.SUBMIT, key, job.submission.time, job.submission)
        elif before.start is not None and before.start != job.start:
            self._started_before.add(key)
            self._requeued.forget(key)
            yield event(EventKind.REQUEUE, key, now if job.start is None else job.start)
        elif before.start is not None or job.start is None:
            return
        if job.start is not None:
            yield self._start(key, job.submission.time, job.start)

    def _start(self, key: int, submit: float, start: float) -> tuple[float, ...]:
        """The start event: AT_ONCE at its submission, AGAIN where its wait is not the job's first."""
        if key in self._started_before:
            kind = EventKind.START_AGAIN
        else:
            kind = EventKind.START if start > submit else EventKind.START_AT_ONCE
        return event(kind, key, start)

    def _ends(self) -> Iterable[tuple[float, ...]]:
        """Events of finished jobs; also the submission of a job never seen, the start of one seen waiting."""
        for outcome in self._ended:
            key, job = outcome.job.job_id, outcome.job
            submit, start = job.submit_time - self.origin, outcome.start_time - self.origin
            if not outcome.is_whole and self._runs_since(key, outcome.end_time - self.origin):
                continue  # its requeue was seen and is an event already
            seen = self._live.pop(key, None)
            if seen is None and key in self._gone:
                seen = self._gone.pop(key)[1]
            if seen is None:
                if outcome.restarts:
                    self._restarted.add(key)
                if outcome.restarts and outcome.first_start_time != outcome.start_time:
                    self._started_before.add(key)
                yield event(EventKind.SUBMIT, key, submit, self.codes.submission(job, submit))
            if seen is None or seen.start is None:
                yield self._start(key, submit, start)
            kind = EventKind.END if outcome.is_whole else EventKind.CUT_SHORT
            yield event(kind, key, outcome.end_time - self.origin)
            self._done[key] = start
            self._requeued.forget(key)
        self._ended.clear()

    def _runs_since(self, key: int, time: float) -> bool:
        """Whether a job was submitted, or has started, at or after a time."""
        seen = self._live.get(key)
        if seen is None:
            return False
        return (seen.submission.time if seen.start is None else seen.start) >= time

    def _without_ended(self, seen: dict[int, Seen]) -> dict[int, Seen]:
        """Drop ended jobs, which Slurm still shows for a moment after accounting has their end."""
        self._done = {key: start for key, start in self._done.items() if key in seen}
        return {
            key: job for key, job in seen.items() if key not in self._done or job.start != self._done[key]
        }

    def _forgotten(self, now: float) -> Iterable[tuple[float, ...]]:
        """Withdraw jobs that left long ago without a known end: cancelled in the queue, or moved."""
        old = [key for key, (left, _) in self._gone.items() if now - left > _FORGOTTEN_SECONDS]
        for key in old:
            del self._gone[key]
            yield event(EventKind.WITHDRAW, key, now)


def _recoded(table: JobTable, column: str, codes: Codes) -> NDArray[np.int64]:
    """A column's codes in this stream; new ones in order of first appearance."""
    own = getattr(table, column)
    names = table.names.get(column)
    found, first, inverse = np.unique(own, return_index=True, return_inverse=True)
    given = np.full(len(found), UNKNOWN_CODE, np.int64)
    for index in np.argsort(first):
        code = int(found[index])
        if code != UNKNOWN_CODE:
            given[index] = codes.code(column, str(code) if names is None else names[code])
    return given[inverse]
