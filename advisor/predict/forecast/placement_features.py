"""What the placement forests look at: the request, the queue as this job meets it, and the user's history.

One object fed with submissions, starts and ends in the order they become known; a replay feeds it from a
log (``placement_replay``), a live site may feed it from snapshots. Nothing of the future can get in: a
feature is computed at the submission from what the object was told before.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.predict.forecast._placement_lags import (
    Lags,
    Numbers,
    Rows,
    alike_runs,
    last_and_mean,
    last_two,
    recent_means,
    user_runs,
)
from advisor.predict.forecast.submission_features import (
    FEATURES,
    HISTORY_AT,
    PROCESSORS,
    SINCE,
    fill_features,
)

Floats = NDArray[np.float64]

DEFAULT_REQUEST_SECONDS: Final = 86_400.0
"""A job without a time limit is taken to ask for a day."""

_ALL: Final = None
"""The one category of waits of whatever job."""


class EventKind(enum.IntEnum):
    """What happens to a job, in the order in which it does at equal times.

    ``CUT_SHORT``: it ended, but not by itself. ``START_AGAIN``: of a job whose first start was told before,
    or of which nobody knows it.
    """

    CUT_SHORT = -1
    END = 0
    LEAVE = 1
    REQUEUE = 2
    START = 3
    SUBMIT = 4
    START_AT_ONCE = 5
    WITHDRAW = 6
    START_AGAIN = 7


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

    __slots__ = ("before", "end", "start", "submission")

    def __init__(self, submission: Submission, before: _Live | None = None) -> None:
        self.submission = submission
        self.before = before  # the user's last job until now, for a submission that is taken back
        self.start = math.nan
        self.end = math.nan


class PlacementFeatures:
    """Features of each submission from everything known before it.

    Parameters
    ----------
    total_processors : int
        Of the machine.
    clock_offset_seconds : float
        Added to times to get the users' wall clock (start of the log plus the site's offset from UTC).

    Attributes
    ----------
    total_processors : float
        May change: nodes are drained and come back.
    """

    def __init__(self, total_processors: int, *, clock_offset_seconds: float = 0.0) -> None:
        self.total_processors = float(total_processors)
        self._offset = clock_offset_seconds
        self._jobs: dict[Hashable, _Live] = {}
        self._waiting, self._running = Rows(), Rows()
        self._runs = {
            "user": Lags(8, user_runs),
            "size": Lags(8, last_two),
            "request": Lags(8, last_two),
            "executable": Lags(8, last_two),
            "alike": Lags(8, alike_runs),
        }
        self._waits = {name: Lags(4, last_and_mean) for name in ("queue", "user", "queue_size")}
        self._recent_waits = Lags(20, recent_means)
        self._last: dict[int, _Live] = {}

    def submit(self, key: Hashable, submission: Submission) -> Floats:
        """Give the features of a job and put it into the queue.

        Returns
        -------
        float64, shape (features,)
            In the order of `submission_features.FEATURES`.
        """
        features = self.features(submission)
        self.join(key, submission)
        return features

    def join(self, key: Hashable, submission: Submission) -> None:
        """Put a job into the queue without asking for its features."""
        before = self._last.get(submission.user)
        job = self._jobs[key] = _Live(submission, before)
        if before is None or submission.time >= before.submission.time:
            if before is not None:
                before.before = None  # no chain of all jobs
            self._last[submission.user] = job
        self._waiting.add(key, _queue_row(submission, submission.time))

    def withdraw(self, key: Hashable) -> None:
        """Take a job back as if it had never been submitted."""
        job = self._jobs.pop(key, None)
        if job is None:
            return
        self._waiting.remove(key)
        self._running.remove(key)
        user = job.submission.user
        if self._last.get(user) is job:
            if job.before is None:
                del self._last[user]
            else:
                self._last[user] = job.before

    def occupy(self, key: Hashable, time: float) -> None:
        """Take a waiting job for started, without learning a wait from it: nobody has seen it start."""
        job = self._jobs.get(key)
        if job is not None:
            self._waiting.remove(key)
            self._running.add(key, _queue_row(job.submission, time))

    def would_start(self, processors: int) -> bool:
        """Whether a job of that size would start now: nobody waits, and so many processors are free."""
        if len(self._waiting):
            return False
        return self.total_processors - float(self._running.table[:, PROCESSORS].sum()) >= processors

    def submission_of(self, key: Hashable) -> Submission | None:
        """What a job that waits or runs said; None when there is no such job."""
        job = self._jobs.get(key)
        return None if job is None else job.submission

    def leave(self, key: Hashable) -> None:
        """Take a job that is gone off the queue or the machine; when it ended is told later (`finish`)."""
        self._waiting.remove(key)
        self._running.remove(key)

    def __contains__(self, key: Hashable) -> bool:
        """Whether a job waits or runs."""
        return key in self._jobs

    def start(self, key: Hashable, time: float) -> None:
        """Move a waiting job to the machine; its wait is known now."""
        job = self._jobs.get(key)
        if job is not None:
            self.start_again(key, time)
            self._remember_wait(job.submission, time)

    def start_again(self, key: Hashable, time: float) -> None:
        """Move a waiting job that has run before to the machine: that is no wait to learn from."""
        job = self._jobs.get(key)
        if job is not None:
            job.start = time
            self._waiting.remove(key)
            self._running.add(key, _queue_row(job.submission, time))

    def _remember_wait(self, submission: Submission, start: float) -> None:
        wait = max(0.0, start - submission.time)
        self._recent_waits.add(_ALL, wait)
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
        self._remember_run(job.submission, time - job.start)

    def _remember_run(self, submission: Submission, seconds: float) -> None:
        for name, category in self._categories(submission).items():
            self._runs[name].add(category, seconds)

    def requeue(self, key: Hashable) -> None:
        """Put a job that runs back into the queue: it waits since its submission."""
        job = self._jobs.get(key)
        if job is None or math.isnan(job.start):
            return
        job.start = math.nan
        self._running.remove(key)
        self._waiting.add(key, _queue_row(job.submission, job.submission.time))

    def cut_short(self, key: Hashable) -> None:
        """Take a job off the machine that did not end by itself: how long it runs nobody knows yet."""
        self.requeue(key)
        self.leave(key)
        self._jobs.pop(key, None)

    def tell(self, kind: EventKind, key: Hashable, time: float) -> None:
        """Take in what happened to a job that was submitted before."""
        match kind:
            case EventKind.END:
                self.finish(key, time)
            case EventKind.LEAVE:
                self.leave(key)
            case EventKind.REQUEUE:
                self.requeue(key)
            case EventKind.WITHDRAW:
                self.withdraw(key)
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
            "alike": (user, processors, request, submission.queue),
        }

    def features(self, submission: Submission, *, before: float = math.inf) -> Floats:
        """Features of a job if it were submitted now, as :meth:`submit` gives them.

        Parameters
        ----------
        submission : Submission
            What it says.
        before : float
            Only jobs submitted before this moment seem to wait: for a job that waits itself.
        """
        waiting = self._waiting.table
        if before < math.inf:
            waiting = waiting[waiting[:, SINCE] < before]
        out = np.empty(len(FEATURES))
        fill_features(self._asked(submission), waiting, self._running.table, self._running.order, out)
        out[HISTORY_AT:] = self._past_of(submission)
        return out

    def _asked(self, submission: Submission) -> Floats:
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
                self.total_processors,
            ),
            np.float64,
        )

    def _past_of(self, submission: Submission) -> Numbers:
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
