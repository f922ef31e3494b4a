"""Features for the placement forests: the request, the queue at submission, and the user's history.

One object receives the submissions, starts and ends of a log in the order in which they became known
(``placement_replay``). Features of a submission use only events that it received before.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.papers.forests._placement_lags import (
    Lags,
    LiveJobs,
    Numbers,
    last_and_mean,
    last_two,
    recent_means,
    similar_runs,
    user_runs,
)
from advisor.papers.forests.submission_features import (
    FEATURES,
    HISTORY_AT,
    Submission,
    fill_features,
)

DEFAULT_REQUEST_SECONDS: Final = 86_400.0
"""A job without a time limit counts as requesting one day."""

_ALL: Final = None
"""The single category of all waits."""


class EventKind(enum.IntEnum):
    """Events of a job, in their order at equal times.

    ``CUT_SHORT``: its run was ended from outside. ``START_AGAIN``: a start of a job whose first start is
    already reported, or unknown.
    """

    CUT_SHORT = -1
    END = 0
    REQUEUE = 1
    START = 2
    SUBMIT = 3
    START_AT_ONCE = 4
    START_AGAIN = 5


class _LiveJob:
    """A job that waits, runs or has just ended."""

    __slots__ = ("end", "start", "submission")

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.start = math.nan
        self.end = math.nan


class PlacementFeatures:
    """Features of each submission from everything known before it.

    Args:
        clock_offset_seconds: Added to times to get the users' wall clock (start of the log plus the site's
            offset from UTC).
    """

    def __init__(self, total_processors: int, *, clock_offset_seconds: float = 0.0) -> None:
        self._total_processors = float(total_processors)
        self._offset = clock_offset_seconds
        self._jobs: dict[Hashable, _LiveJob] = {}
        self._waiting, self._running = LiveJobs(), LiveJobs()
        self._runs = {
            "user": Lags(8, user_runs),
            "size": Lags(8, last_two),
            "request": Lags(8, last_two),
            "executable": Lags(8, last_two),
            "similar": Lags(8, similar_runs),
        }
        self._waits = {name: Lags(4, last_and_mean) for name in ("queue", "user", "queue_size")}
        self._recent_waits = Lags(20, recent_means)
        self._last: dict[int, _LiveJob] = {}

    def submit(self, key: Hashable, submission: Submission) -> Floats:
        """Add a job to the queue and return its features, shape (features,), in the order of `FEATURES`."""
        features = self.features(submission)
        self._jobs[key] = self._last[submission.user] = _LiveJob(submission)
        self._waiting.add(key, _queue_row(submission, submission.time))
        return features

    def start(self, key: Hashable, time: float) -> None:
        """Move a waiting job to the machine and learn its wait."""
        job = self._jobs.get(key)
        if job is not None:
            self.start_again(key, time)
            self._learn_wait(job.submission, time)

    def start_again(self, key: Hashable, time: float) -> None:
        """Move a requeued job to the machine; no wait is learned."""
        job = self._jobs.get(key)
        if job is not None:
            job.start = time
            self._waiting.remove(key)
            self._running.add(key, _queue_row(job.submission, time))

    def _learn_wait(self, submission: Submission, start: float) -> None:
        wait = max(0.0, start - submission.time)
        self._recent_waits.add(_ALL, wait)
        self._waits["queue"].add(submission.queue, wait)
        self._waits["user"].add(submission.user, wait)
        self._waits["queue_size"].add((submission.queue, submission.processors.bit_length()), wait)

    def finish(self, key: Hashable, time: float) -> None:
        """Remove a job from the machine and learn its run time."""
        job = self._jobs.pop(key, None)
        if job is None:
            return
        job.end = time
        self._running.remove(key)
        self._waiting.remove(key)
        if math.isnan(job.start):
            return
        self._learn_run(job.submission, time - job.start)

    def _learn_run(self, submission: Submission, seconds: float) -> None:
        for name, category in self._categories(submission).items():
            self._runs[name].add(category, seconds)

    def requeue(self, key: Hashable) -> None:
        """Move a running job back to the queue; it waits since its submission."""
        job = self._jobs.get(key)
        if job is None or math.isnan(job.start):
            return
        job.start = math.nan
        self._running.remove(key)
        self._waiting.add(key, _queue_row(job.submission, job.submission.time))

    def cut_short(self, key: Hashable) -> None:
        """Remove a job whose run was ended from outside; no run time is learned."""
        self._waiting.remove(key)
        self._running.remove(key)
        if (job := self._jobs.pop(key, None)) is not None:
            job.start = math.nan

    def apply_event(self, kind: EventKind, key: Hashable, time: float) -> None:
        """Apply an event of a job that was submitted before."""
        match kind:
            case EventKind.END:
                self.finish(key, time)
            case EventKind.REQUEUE:
                self.requeue(key)
            case EventKind.CUT_SHORT:
                self.cut_short(key)
            case EventKind.START_AGAIN:
                self.start_again(key, time)
            case _:
                self.start(key, time)

    @staticmethod
    def _categories(submission: Submission) -> dict[str, Hashable]:
        user, processors = submission.user, submission.processors
        request = _request(submission)
        return {
            "user": user,
            "size": (user, processors),
            "request": (user, request),
            "executable": (user, submission.executable),
            "similar": (user, processors, request, submission.queue),
        }

    def features(self, submission: Submission) -> Floats:
        """Features of a job if it were submitted now, as :meth:`submit` gives them."""
        waiting, running = self._waiting.table, self._running
        out = np.empty(len(FEATURES))
        fill_features(self._submission_row(submission), waiting, running.table, running.order, out)
        out[HISTORY_AT:] = self._history_of(submission)
        return out

    def _submission_row(self, submission: Submission) -> Floats:
        now, processors, requested, user, group, queue, executable = submission
        request, clock = _request(submission), now + self._offset
        return np.array(
            (
                processors,
                request,
                now,
                queue,
                user,
                requested,
                group,
                executable,
                clock,
                self._total_processors,
            ),
            np.float64,
        )

    def _history_of(self, submission: Submission) -> Numbers:
        runs, waits = self._runs, self._waits
        size = submission.processors.bit_length()
        own = [number for name, key in self._categories(submission).items() for number in runs[name].of(key)]
        return (
            *own,
            *self._recent_waits.of(_ALL),
            *waits["queue"].of(submission.queue),
            *waits["user"].of(submission.user),
            *waits["queue_size"].of((submission.queue, size)),
            *self._last_job(submission),
        )

    def _last_job(self, submission: Submission) -> Numbers:
        now, processors, user = submission.time, submission.processors, submission.user
        last = self._last.get(user)
        if last is None:
            return (1e9, 0.0, 0.0, 0.0, 0.0)
        before = last.submission
        submitted, start, end = before.time, last.start, last.end
        is_alike = float(before.processors == processors and _request(before) == _request(submission))
        if not math.isnan(end):
            return (now - submitted, is_alike, 1.0, end - start, start - submitted)
        if not math.isnan(start):
            return (now - submitted, is_alike, 2.0, now - start, start - submitted)
        return (now - submitted, is_alike, 3.0, 0.0, now - submitted)


def _request(submission: Submission) -> float:
    return DEFAULT_REQUEST_SECONDS if math.isnan(submission.request) else submission.request


def _queue_row(submission: Submission, since: float) -> Numbers:
    return (
        float(submission.processors),
        _request(submission),
        since,
        float(submission.queue),
        float(submission.user),
    )
