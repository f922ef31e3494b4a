"""What the placement forests look at: the request, the queue as this job meets it, and the user's history.

One object fed with submissions, starts and ends in the order they become known; a replay feeds it from a
log (`features_of`), a live site may feed it from snapshots. Nothing of the future can get in: a feature is
computed at the submission from what the object was told before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.model.table import JobTable
from advisor.predict._placement_queue import COLUMNS, QUEUE_FEATURES, queue_features

Floats = NDArray[np.float64]

UNKNOWN: Final = -1.0
"""Stands for what is not known; every feature is 0 or more where it is known (`slack_processors` aside)."""
DEFAULT_REQUEST_SECONDS: Final = 86_400.0
"""A job without a time limit is taken to ask for a day."""

_REQUEST_FEATURES: Final = (
    "requested_time",
    "processors",
    "requested_work",
    "queue",
    "user",
    "group",
    "executable",
    "time_of_day",
    "day_of_week",
    "submission_time",
)
_HISTORY_FEATURES: Final = (
    *(f"user_run_{lag}" for lag in (1, 2, 3)),
    "user_run_max",
    "user_run_median",
    *(f"user_size_run_{lag}" for lag in (1, 2)),
    *(f"user_request_run_{lag}" for lag in (1, 2)),
    *(f"user_executable_run_{lag}" for lag in (1, 2)),
    "alike_run_1",
    "alike_run_mean",
    "alike_run_max",
    "alike_runs",
    "recent_wait_mean_5",
    "recent_wait_mean_20",
    "queue_wait_1",
    "queue_wait_mean",
    "user_wait_1",
    "user_wait_mean",
    "queue_size_wait_1",
    "queue_size_wait_mean",
    "since_last_submission",
    "last_is_alike",
    "last_state",
    "last_elapsed",
    "last_wait",
)
FEATURES: Final = (*_REQUEST_FEATURES, *QUEUE_FEATURES, *_HISTORY_FEATURES)
"""Names of the columns, in order."""


class Submission(NamedTuple):
    """What a submission says; codes are numbers that stand for names.

    Attributes
    ----------
    time : float
        Seconds.
    processors : int
        Requested.
    request : float
        Requested seconds; NaN when not given.
    user, group, queue, executable : int
        Codes, -1 when unknown.
    """

    time: float
    processors: int
    request: float
    user: int
    group: int
    queue: int
    executable: int


class _Live:
    """A job that waits or runs or has just ended."""

    __slots__ = ("end", "start", "submission")

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.start = math.nan
        self.end = math.nan


class _Rows:
    """A table of jobs that can grow and shrink; removal moves the last row into the gap."""

    def __init__(self) -> None:
        self._table = np.empty((256, COLUMNS))
        self._slot: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []

    @property
    def table(self) -> Floats:
        return self._table[: len(self._keys)]

    def add(self, key: Hashable, row: tuple[float, ...]) -> None:
        if len(self._keys) == len(self._table):
            self._table = np.concatenate([self._table, np.empty_like(self._table)])
        self._slot[key] = len(self._keys)
        self._table[len(self._keys)] = row
        self._keys.append(key)

    def remove(self, key: Hashable) -> None:
        slot = self._slot.pop(key, None)
        if slot is None:
            return
        last = self._keys.pop()
        if last != key:
            self._table[slot] = self._table[len(self._keys)]
            self._keys[slot] = last
            self._slot[last] = slot


class _Lags:
    """The last few numbers of each category."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._of: dict[Hashable, deque[float]] = {}

    def add(self, category: Hashable, number: float) -> None:
        lags = self._of.get(category)
        if lags is None:
            lags = self._of[category] = deque(maxlen=self._length)
        lags.append(number)

    def of(self, category: Hashable) -> deque[float] | tuple[float, ...]:
        return self._of.get(category, ())


def _back(lags: deque[float] | tuple[float, ...], lag: int) -> float:
    return lags[-lag] if len(lags) >= lag else UNKNOWN


def _mean(lags: deque[float] | tuple[float, ...], last: int = 1_000) -> float:
    if not lags:
        return UNKNOWN
    chosen = list(lags)[-last:]
    return sum(chosen) / len(chosen)


class PlacementFeatures:
    """Features of each submission from everything known before it.

    Parameters
    ----------
    total_processors : int
        Of the machine.
    clock_offset_seconds : float
        Added to times to get the users' wall clock (start of the log plus the site's offset from UTC).
    """

    def __init__(self, total_processors: int, *, clock_offset_seconds: float = 0.0) -> None:
        self._total = float(total_processors)
        self._offset = clock_offset_seconds
        self._jobs: dict[Hashable, _Live] = {}
        self._waiting, self._running = _Rows(), _Rows()
        self._runs = {name: _Lags(8) for name in ("user", "size", "request", "executable", "alike")}
        self._waits = {name: _Lags(4) for name in ("queue", "user", "queue_size")}
        self._recent_waits: deque[float] = deque(maxlen=20)
        self._last: dict[int, _Live] = {}
        self._queue_out = np.empty(len(QUEUE_FEATURES))

    def submit(self, key: Hashable, submission: Submission) -> Floats:
        """Give the features of a job and put it into the queue.

        Returns
        -------
        float64, shape (features,)
            In the order of `FEATURES`.
        """
        features = self._features(submission)
        job = _Live(submission)
        self._jobs[key] = job
        self._last[submission.user] = job
        self._waiting.add(key, self._row(submission, submission.time))
        return features

    def start(self, key: Hashable, time: float) -> None:
        """Move a waiting job to the machine; its wait is known now."""
        job = self._jobs.get(key)
        if job is None:
            return
        job.start = time
        submission = job.submission
        self._waiting.remove(key)
        self._running.add(key, self._row(submission, time))
        wait = max(0.0, time - submission.time)
        self._recent_waits.append(wait)
        self._waits["queue"].add(submission.queue, wait)
        self._waits["user"].add(submission.user, wait)
        self._waits["queue_size"].add((submission.queue, submission.processors.bit_length()), wait)

    def finish(self, key: Hashable, time: float) -> None:
        """Take a job off the machine; its run time is known now."""
        job = self._jobs.pop(key, None)
        if job is None:
            return
        job.end = time
        self._running.remove(key)
        self._waiting.remove(key)
        if math.isnan(job.start):
            return
        for name, category in self._categories(job.submission).items():
            self._runs[name].add(category, time - job.start)

    @staticmethod
    def _categories(submission: Submission) -> dict[str, Hashable]:
        user, processors = submission.user, submission.processors
        request = _request(submission)
        return {
            "user": user,
            "size": (user, processors),
            "request": (user, request),
            "executable": (user, submission.executable),
            "alike": (user, processors, request, submission.queue),
        }

    @staticmethod
    def _row(submission: Submission, since: float) -> tuple[float, ...]:
        return (
            float(submission.processors),
            _request(submission),
            since,
            float(submission.queue),
            float(submission.user),
        )

    def _features(self, submission: Submission) -> Floats:
        now = submission.time
        row = np.array(self._row(submission, now))
        queue_features(now, self._total, row, self._waiting.table, self._running.table, self._queue_out)
        clock = now + self._offset
        request = UNKNOWN if math.isnan(submission.request) else submission.request
        asked = (
            request,
            submission.processors,
            submission.processors * _request(submission),
            submission.queue,
            submission.user,
            submission.group,
            submission.executable,
            clock % 86_400.0,
            clock // 86_400.0 % 7.0,
            now,
        )
        return np.concatenate([asked, self._queue_out, self._history(submission)])

    def _history(self, submission: Submission) -> list[float]:
        now = submission.time
        categories = self._categories(submission)
        runs = {name: self._runs[name].of(category) for name, category in categories.items()}
        user, alike = runs["user"], runs["alike"]
        size_bits = (submission.queue, submission.processors.bit_length())
        waits = (
            self._waits["queue"].of(submission.queue),
            self._waits["user"].of(submission.user),
            self._waits["queue_size"].of(size_bits),
        )
        numbers = [_back(user, lag) for lag in (1, 2, 3)]
        numbers += [max(user), float(np.median(user))] if user else [UNKNOWN, UNKNOWN]
        for name in ("size", "request", "executable"):
            numbers += [_back(runs[name], 1), _back(runs[name], 2)]
        numbers += [_back(alike, 1), _mean(alike, 6), max(alike) if alike else UNKNOWN, float(len(alike))]
        numbers += [_mean(self._recent_waits, 5), _mean(self._recent_waits)]
        for lags in waits:
            numbers += [_back(lags, 1), _mean(lags)]
        return numbers + self._last_job(submission, now)

    def _last_job(self, submission: Submission, now: float) -> list[float]:
        last = self._last.get(submission.user)
        if last is None:
            return [1e9, 0.0, 0.0, 0.0, 0.0]
        before = last.submission
        is_alike = before.processors == submission.processors and _request(before) == _request(submission)
        since = now - before.time
        if not math.isnan(last.end):
            return [since, float(is_alike), 1.0, last.end - last.start, last.start - before.time]
        if not math.isnan(last.start):
            return [since, float(is_alike), 2.0, now - last.start, last.start - before.time]
        return [since, float(is_alike), 3.0, 0.0, since]


def _request(submission: Submission) -> float:
    return DEFAULT_REQUEST_SECONDS if math.isnan(submission.request) else submission.request


def features_of(
    table: JobTable, *, stop: int | None = None, tick: Callable[[int], None] | None = None
) -> Floats:
    """Features of a log's submissions, each from what was known then.

    At equal times ends come first, then starts, then submissions; a job that starts at once starts after its
    own submission.

    Parameters
    ----------
    table : JobTable
        The log; rows that never ran take no part.
    stop : int, optional
        First row that is not needed.
    tick : callable, optional
        Told now and then how many rows were done.

    Returns
    -------
    float64, shape (rows, features)
        NaN for rows that never ran and rows from `stop` on.
    """
    count = len(table) if stop is None else min(stop, len(table))
    ran = np.flatnonzero(table.run[:count] > 0)
    wait = np.maximum(table.wait, 0.0)
    start, submit = table.submit + wait, table.submit
    end = start + table.run
    times = np.concatenate([end[ran], start[ran], submit[ran]])
    kinds = np.concatenate([np.zeros(len(ran)), np.where(wait[ran] > 0, 1.0, 3.0), np.full(len(ran), 2.0)])
    rows = np.concatenate([ran, ran, ran])
    order = np.lexsort((rows, kinds, times))
    machine = table.total_processors or int(table.processors.max(initial=1))
    observer = PlacementFeatures(machine, clock_offset_seconds=table.start_of_log + table.utc_offset_seconds)
    features = np.full((len(table), len(FEATURES)), np.nan)
    done = 0
    for event in order:
        row, kind = int(rows[event]), int(kinds[event])
        if kind == 0:
            observer.finish(row, float(end[row]))
        elif kind == 2:
            features[row] = observer.submit(row, _submission(table, row))
            done += 1
            if tick is not None and done % 512 == 0:
                tick(512)
        else:
            observer.start(row, float(start[row]))
    return features


def _submission(table: JobTable, row: int) -> Submission:
    return Submission(
        time=float(table.submit[row]),
        processors=int(table.processors[row]),
        request=float(table.requested_time[row]),
        user=int(table.user[row]),
        group=int(table.group[row]),
        queue=int(table.queue[row]),
        executable=int(table.executable[row]) if table.executable is not None else -1,
    )
