"""What the placement forests look at: the request, the queue as this job meets it, and the user's history.

One object fed with submissions, starts and ends in the order they become known; a replay feeds it from a
log (`features_of`), a live site may feed it from snapshots. Nothing of the future can get in: a feature is
computed at the submission from what the object was told before.
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.model.table import JobTable
from advisor.predict._addresses import (
    WORD_BYTES,
    Placed,
    address_of,
    block,
    by_address,
    doubles_at,
    entry,
    words_at,
)
from advisor.predict._placement_lags import UNKNOWN, Lags, Numbers, Rows, back, mean, median
from advisor.predict._placement_queue import (
    COLUMNS,
    HEAD,
    ORDER,
    PROCESSORS,
    QUEUE,
    QUEUE_FEATURES,
    REQUEST,
    ROWS,
    TABLE,
    USER,
    order_at,
    queue_features,
)

Floats = NDArray[np.float64]

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

_QUEUE_AT: Final = len(_REQUEST_FEATURES)
_HISTORY_AT: Final = _QUEUE_AT + len(QUEUE_FEATURES)

# The block of one submission, in words: heads of the tables of waiting and running jobs; what is asked; then
# the features, of which those of the past are filled in beforehand.
_WAITING, _RUNNING, _NOW, _TOTAL, _CLOCK, _JOB = range(6)
_REQUESTED: Final = _JOB + COLUMNS
_GROUP: Final = _REQUESTED + 1
_EXECUTABLE: Final = _REQUESTED + 2
FEATURES_AT: Final = _REQUESTED + 3
"""Where in the block the features are."""
_BLOCK: Final = FEATURES_AT + len(FEATURES)
_LAST_JOB: Final = 5
_PAST_BYTES: Final = WORD_BYTES * (len(_HISTORY_FEATURES) - _LAST_JOB)
_ASKED: Final = struct.Struct(f"={FEATURES_AT - _NOW}d")
_ASKED_OFFSET: Final = WORD_BYTES * _NOW
_HISTORY: Final = struct.Struct(f"={_PAST_BYTES}s{_LAST_JOB}d")
_HISTORY_OFFSET: Final = WORD_BYTES * (FEATURES_AT + _HISTORY_AT)
_MOST_KEPT: Final = 65_536
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


class PlacementFeatures(Placed):
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
    address : int
        Of the block from which :func:`look_at` works out the features of what was asked last (:meth:`ask`).
    """

    def __init__(self, total_processors: int, *, clock_offset_seconds: float = 0.0) -> None:
        self.total_processors = float(total_processors)
        self._offset = clock_offset_seconds
        self._jobs: dict[Hashable, _Live] = {}
        self._waiting, self._running = Rows(), Rows()
        self._runs = {
            "user": Lags(8, _user_runs),
            "size": Lags(8, _last_two),
            "request": Lags(8, _last_two),
            "executable": Lags(8, _last_two),
            "alike": Lags(8, _alike_runs),
        }
        self._waits = {name: Lags(4, _last_and_mean) for name in ("queue", "user", "queue_size")}
        self._recent_waits = Lags(20, _recent_means)
        self._histories: dict[tuple[float, ...], bytes] = {}
        self._own_runs: dict[int, dict[tuple[float, ...], bytes]] = {}
        self._kept = 0
        self._last: dict[int, _Live] = {}
        # the features are put together here: numpy's own ways are long for so few numbers
        words, numbers = block(_BLOCK)
        words[_WAITING], words[_RUNNING] = address_of(self._waiting.head), address_of(self._running.head)
        self._block_bytes = words.data
        self._out = numbers[FEATURES_AT:]
        self.address = address_of(words)
        self._fill = entry(look_at)

    def submit(self, key: Hashable, submission: Submission) -> Floats:
        """Give the features of a job and put it into the queue.

        Returns
        -------
        float64, shape (features,)
            In the order of `FEATURES`.
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
        self._histories.clear()
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
        self._histories.clear()
        self._own_runs.pop(submission.user, None)
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

    def features(self, submission: Submission) -> Floats:
        """Features of a job if it were submitted now; shape (features,), in the order of `FEATURES`."""
        return self.look(submission).copy()

    def look(self, submission: Submission) -> Floats:
        """The same in an array that the next call fills anew: for one submission at a time."""
        self.ask(submission)
        self._fill(self.address)
        return self._out

    def ask(self, submission: Submission) -> None:
        """Put into the block what only Python knows; :func:`look_at` does the rest."""
        now, processors, requested, user, group, queue, executable = submission
        request = DEFAULT_REQUEST_SECONDS if requested != requested else requested  # noqa: PLR0124 (NaN)
        _ASKED.pack_into(
            self._block_bytes,
            _ASKED_OFFSET,
            now,
            self.total_processors,
            now + self._offset,
            processors,
            request,
            now,
            queue,
            user,
            requested,
            group,
            executable,
        )
        # what the past says of such a job: the same words are asked again and again between two events
        said = submission[1:]
        past = self._histories.get(said)
        if past is None:
            past = self._histories[said] = self._past_of(submission)
        _HISTORY.pack_into(self._block_bytes, _HISTORY_OFFSET, past, *self._last_job(submission))

    def _past_of(self, submission: Submission) -> bytes:
        waits = self._waits
        size = submission.processors.bit_length()
        return b"".join(
            (
                self._runs_of(submission),
                self._recent_waits.of(_ALL),
                waits["queue"].of(submission.queue),
                waits["user"].of(submission.user),
                waits["queue_size"].of((submission.queue, size)),
            )
        )

    def _runs_of(self, submission: Submission) -> bytes:
        """What the user's own runs say: others' events do not change it."""
        own = self._own_runs.get(submission.user)
        if own is None:
            own = self._own_runs[submission.user] = {}
        words = (submission.processors, _request(submission), submission.queue, submission.executable)
        found = own.get(words)
        if found is None:
            runs = self._runs
            found = own[words] = b"".join(
                [runs[name].of(category) for name, category in self._categories(submission).items()]
            )
            self._kept += 1
            if self._kept > _MOST_KEPT:
                self._own_runs.clear()
                self._kept = 0
        return found

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


@by_address
def look_at(address: int) -> None:
    """Work out the features of the submission that a block asks about, but for the user's past."""
    words = words_at(address, FEATURES_AT)
    asked = doubles_at(address, FEATURES_AT)
    out = doubles_at(address + WORD_BYTES * FEATURES_AT, _HISTORY_AT)
    now, clock = asked[_NOW], asked[_CLOCK]
    job = asked[_JOB:_REQUESTED]
    out[0] = UNKNOWN if np.isnan(asked[_REQUESTED]) else asked[_REQUESTED]
    out[1] = job[PROCESSORS]
    out[2] = job[PROCESSORS] * job[REQUEST]
    out[3], out[4], out[5], out[6] = job[QUEUE], job[USER], asked[_GROUP], asked[_EXECUTABLE]
    out[7] = clock % 86_400.0
    out[8] = clock // 86_400.0 % 7.0
    out[9] = now
    order_at(words[_RUNNING])
    running = words_at(words[_RUNNING], HEAD)
    waiting = words_at(words[_WAITING], HEAD)
    queue_features(
        now,
        asked[_TOTAL],
        job,
        doubles_at(waiting[TABLE], waiting[ROWS] * COLUMNS).reshape((waiting[ROWS], COLUMNS)),
        doubles_at(running[TABLE], running[ROWS] * COLUMNS).reshape((running[ROWS], COLUMNS)),
        words_at(running[ORDER], running[ROWS]),
        out[_QUEUE_AT:_HISTORY_AT],
    )


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


# What the features say of the last few numbers of a category.


def _last_two(lags: Numbers) -> Numbers:
    return back(lags, 1), back(lags, 2)


def _user_runs(lags: Numbers) -> Numbers:
    extremes = (max(lags), median(lags)) if lags else (UNKNOWN, UNKNOWN)
    return back(lags, 1), back(lags, 2), back(lags, 3), *extremes


def _alike_runs(lags: Numbers) -> Numbers:
    return back(lags, 1), mean(lags, 6), max(lags) if lags else UNKNOWN, float(len(lags))


def _last_and_mean(lags: Numbers) -> Numbers:
    return back(lags, 1), mean(lags)


def _recent_means(lags: Numbers) -> Numbers:
    return mean(lags, 5), mean(lags)


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
    observer = observer_of(table)
    features = np.full((len(table), len(FEATURES)), np.nan)
    done = 0
    for kind, row, time in _events(table, count):
        if kind is not EventKind.SUBMIT:
            observer.tell(kind, row, time)
            continue
        features[row] = observer.submit(row, _submission(table, row))
        done += 1
        if tick is not None and done % 512 == 0:
            tick(512)
    return features


def observer_of(table: JobTable) -> PlacementFeatures:
    """An observer of a log's machine that has seen nothing yet."""
    machine = table.total_processors or int(table.processors.max(initial=1))
    return PlacementFeatures(machine, clock_offset_seconds=table.start_of_log + table.utc_offset_seconds)


def retrace(table: JobTable, keys: Sequence[Hashable]) -> PlacementFeatures:
    """An observer that has seen a whole log, as `features_of` leaves it behind.

    Parameters
    ----------
    table : JobTable
        A job that still waits has an infinite wait and run time, one that runs an infinite run time.
    keys : sequence
        Under which each row is to be found afterwards.
    """
    observer = observer_of(table)
    for kind, row, time in _events(table, len(table)):
        if kind is EventKind.SUBMIT:
            observer.join(keys[row], _submission(table, row))
        else:
            observer.tell(kind, keys[row], time)
    return observer


def _events(table: JobTable, count: int) -> Iterator[tuple[EventKind, int, float]]:
    """What happened to the first rows of a log: kind, row and seconds, in order; nothing that is to come.

    A requeued job is on the machine from its first start on: when its runs in between ended a log does not
    say. Where the first start is not known, either, from its last.
    """
    ran = np.flatnonzero(table.run[:count] > 0)
    wait = np.maximum(table.wait, 0.0)
    start = table.submit + wait
    first = table.submit + np.maximum(table.first_wait, 0.0)
    again = ran[table.requeued_seconds[ran] != 0.0]  # NaN is not 0
    once = ran[np.isfinite(first[ran])]
    ends = np.where(table.is_whole[ran], EventKind.END, EventKind.CUT_SHORT)
    starts = np.where(first[once] > table.submit[once], EventKind.START, EventKind.START_AT_ONCE)
    parts = (
        (ran, start + table.run, ends),
        (once, first, starts),
        (ran, table.submit, np.full(len(ran), EventKind.SUBMIT)),
        (again, start, np.full(len(again), EventKind.REQUEUE)),
        (again, start, np.full(len(again), EventKind.START_AGAIN)),
    )
    rows, times, kinds = (
        np.concatenate(columns)
        for columns in zip(*((rows, all_times[rows], kinds) for rows, all_times, kinds in parts), strict=True)
    )
    order = np.lexsort((rows, kinds, times))
    for event in order[np.isfinite(times[order])]:
        yield EventKind(kinds[event]), int(rows[event]), float(times[event])


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
