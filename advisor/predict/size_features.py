"""Features of the size classifier (Zrigui et al. 2022, section 4.1), for a log at once or job by job.

Two flavours:

``paper``
    Table 4 as printed; lag and aggregation features know only jobs that had finished by the week's start.
``advisor``
    Table 4's ideas on everything known at the moment of submission: the most recent *finished* jobs, how long
    the newest ones have already run, what the user has live, bursts, equal names.

At equal times a submission comes before a start and a start before an end: a job that ends in the very second
of a submission is not yet known to it.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.model.job import Job, JobOutcome
from advisor.model.table import JobTable
from advisor.predict import _size_rows as kernel
from advisor.predict import _size_state
from advisor.predict._addresses import WORD_BYTES, Placed, address_of, block, entry
from advisor.predict._size_state import KINDS, State, empty_state, indexed_anew, with_room

Flavour: TypeAlias = Literal["paper", "advisor"]
WEEK_SECONDS: Final = 7 * 86400.0
NO_DIVIDER: Final = 1e9
"""Stands for the divider while there is none: every job is shorter, so that all classes seen are equal."""

_NAMES = {"paper": kernel.PAPER_NAMES, "advisor": kernel.ADVISOR_NAMES}
_EVENTS_AT_ONCE = 20_000
_COUNTER = re.compile(r"\d+")
_HASHES: Final = struct.Struct("=3Q")
_ASKED: Final = struct.Struct(f"={_HASHES.size}s5d")
_ASKED_OFFSET: Final = WORD_BYTES * kernel.NAMES
_MOST_NAMED: Final = 65_536


def feature_names(flavour: Flavour) -> tuple[str, ...]:
    """Names of a row's columns, in their order."""
    return _NAMES[flavour]


@lru_cache(maxsize=65_536)
def _hash(value: str | None) -> int:
    """64 bits of a nominal value: the same in every process, unlike Python's own hash."""
    if value is None:
        return 0
    return int.from_bytes(hashlib.blake2b(value.encode("utf-8", "replace"), digest_size=8).digest(), "big")


@lru_cache(maxsize=65_536)
def family(name: str | None) -> str | None:
    """A job name without its counters: ``run_017`` and ``run_018`` are the same work."""
    if name is None or name.isdecimal():
        return name
    return _COUNTER.sub("#", name)


def _calendar(local: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hour, day of week (Monday 0), day of month, month, week of the year, quarter; shape (n, 6).

    ``local`` is the site's own clock in seconds since the epoch.
    """
    days = np.floor(local / 86400.0)
    date = days.astype(np.int64).astype("datetime64[D]")
    month = date.astype("datetime64[M]")
    of_year = month.astype(np.int64) % 12
    return np.column_stack(
        [
            np.floor((local - 86400.0 * days) / 3600.0),
            (days + 3) % 7,
            (date - month).astype(np.int64) + 1,
            of_year + 1,
            (date - date.astype("datetime64[Y]")).astype(np.int64) // 7 + 1,
            of_year // 3 + 1,
        ]
    ).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizeHistory:
    """Jobs as the classifier needs them, in submission order, all columns of length n.

    Attributes
    ----------
    submit, start, end : float64
        Seconds on one clock; ``start`` and ``end`` infinite for a job that still waits or runs.
    request, processors : float64
        Requested time in seconds (0 where unknown) and processors.
    names : uint64, shape (n, 3)
        Hashes of user, queue and job name.
    labelled : bool
        The job has a queue or a name.
    calendars : float64, shape (n, 6)
        See ``CALENDAR`` in :mod:`advisor.predict._size_rows`.
    order : int64
        Which row of what it was made from each row is.
    """

    submit: NDArray[np.float64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    request: NDArray[np.float64]
    processors: NDArray[np.float64]
    names: NDArray[np.uint64]
    labelled: NDArray[np.bool_]
    calendars: NDArray[np.float64]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.submit)

    @property
    def run(self) -> NDArray[np.float64]:
        """Run times in seconds; NaN while unknown."""
        with np.errstate(invalid="ignore"):
            run = self.end - self.start
        return np.where(np.isfinite(run), run, np.nan)

    @property
    def ran(self) -> NDArray[np.bool_]:
        """Jobs that have run and ended: only these teach."""
        return self.run > 0

    def until(self, now: float) -> Self:
        """What was known at ``now``: jobs submitted before it, without the starts and ends still to come."""
        rows = self.submit < now
        columns = {column.name: getattr(self, column.name)[rows] for column in fields(self)}
        for name in ("start", "end"):
            columns[name] = np.where(columns[name] < now, columns[name], np.inf)
        return replace(self, **columns)

    @classmethod
    def from_table(cls, table: JobTable) -> Self:
        """Jobs of a log. A wait below 0 counts as 0: nothing starts before it was submitted."""
        order = np.argsort(table.submit, kind="stable")
        start = table.submit + np.maximum(np.nan_to_num(table.wait), 0.0)
        names = np.column_stack([_hashes(codes) for codes in (table.user, table.queue, table.executable)])
        return cls(
            submit=table.submit[order],
            start=start[order],
            end=(start + table.run)[order],
            request=np.nan_to_num(table.requested_time)[order],
            processors=table.processors[order].astype(np.float64),
            names=names[order],
            labelled=((table.queue >= 0) | (table.executable >= 0))[order],
            calendars=_calendar(table.submit[order] + table.start_of_log + table.utc_offset_seconds),
            order=order,
        )

    @classmethod
    def from_outcomes(
        cls, outcomes: Iterable[JobOutcome], *, start_of_log: float = 0.0, utc_offset_seconds: float = 0.0
    ) -> Self:
        """Finished jobs in any order; those that never ran or were cut short are passed over."""
        times: list[tuple[float, float, float, float, float]] = []
        names: list[tuple[int, int, int]] = []
        for outcome in outcomes:
            if outcome.run_seconds <= 0 or not outcome.is_whole:
                continue
            job = outcome.job
            start = max(job.submit_time, outcome.start_time)
            end = start + outcome.run_seconds
            times.append((job.submit_time, start, end, job.requested_time or 0.0, job.processors))
            names.append(hashes_of(job))
        columns = np.array(times, np.float64).reshape(-1, 5)
        hashed = np.array(names, np.uint64).reshape(-1, 3)
        order = np.argsort(columns[:, 0], kind="stable")
        submit, start_times, end_times, request, processors = columns[order].T
        return cls(
            submit=submit,
            start=start_times,
            end=end_times,
            request=request,
            processors=processors,
            names=hashed[order],
            labelled=(hashed[order, 1] != 0) | (hashed[order, 2] != 0),
            calendars=_calendar(submit + start_of_log + utc_offset_seconds),
            order=order,
        )

    def numbers(self) -> NDArray[np.float64]:
        """Request, processors, run time (-1: never ran) and label flag, as the kernel takes them."""
        run = np.where(self.run <= 0, -1.0, self.run)
        return np.column_stack([self.request, self.processors, run, self.labelled])


def _hashes(codes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hashes of a table's nominal codes: those of their decimal text, as ``iter_outcomes`` gives it."""
    values, places = np.unique(codes, return_inverse=True)
    hashed = [_hash(str(value) if value >= 0 else None) for value in values.tolist()]
    return np.array(hashed, np.uint64)[places]


def hashes_of(job: Job) -> tuple[int, int, int]:
    """Hashes of a job's user, queue and name (its counters left out); 0 where unknown."""
    return _hash(job.user), _hash(job.queue), _hash(family(job.name))


@dataclass(frozen=True, slots=True, eq=False)
class WeeklyDividers:
    """The divider in force in each week since the first submission (section 3.3).

    Attributes
    ----------
    origin : float
        Time of the first submission, where weeks begin.
    seconds : float64
        One a week: the median run time of all jobs that had *finished before that week*; NaN while none had.
        The paper's Table 2 takes the whole log's median, which looks ahead.
    """

    origin: float
    seconds: NDArray[np.float64]

    @classmethod
    def of(cls, history: SizeHistory) -> Self:
        """Dividers of every week up to the last event of a history."""
        origin = float(history.submit[0]) if len(history) else 0.0
        finished = np.isfinite(history.end)
        last = (
            max(history.submit.max(), history.end[finished].max(initial=origin)) if len(history) else origin
        )
        weeks = int((last - origin) // WEEK_SECONDS) + 2
        order = np.argsort(history.end, kind="stable")
        order = order[history.ran[order]]
        ends, runs = history.end[order], history.run[order]
        known = np.searchsorted(ends, origin + WEEK_SECONDS * np.arange(weeks), side="left")
        medians = [float(np.median(runs[:count])) if count else np.nan for count in known]
        return cls(origin, np.array(medians))

    def week_of(self, times: NDArray[np.float64]) -> NDArray[np.int64]:
        """Week number of each time."""
        with np.errstate(invalid="ignore"):
            weeks = np.floor((times - self.origin) / WEEK_SECONDS)
        return np.clip(weeks, 0, len(self.seconds) - 1).astype(np.int64)

    def at(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Divider in force at each time; NaN while there is none."""
        return self.seconds[self.week_of(times)]


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """A history played through: features at each submission, and what is remembered at its end."""

    rows: NDArray[np.float32]
    state: State
    submissions: NDArray[np.int64]


def replay_features(history: SizeHistory, dividers: WeeklyDividers, flavour: Flavour) -> Replayed:
    """Features of every job of a history, each from what was known when it was submitted."""
    ends = history.end
    if flavour == "paper":  # an end is known from the next week's start on
        weeks = np.ceil((ends - dividers.origin) / WEEK_SECONDS)
        ends = np.where(np.isfinite(ends), dividers.origin + weeks * WEEK_SECONDS, ends)
    count = len(history)
    what = np.repeat(np.array([kernel.SUBMISSION, kernel.START, kernel.END], np.int8), count)
    when = np.concatenate([history.submit, history.start, ends])
    which = np.tile(np.arange(count), 3)
    order = np.lexsort((which, what, when))
    order = order[np.isfinite(when[order])]
    rows = np.empty((count, len(feature_names(flavour))), np.float32)
    numbers = history.numbers()
    state, submissions = empty_state(), np.full(count, -1, np.int64)
    for begin in range(0, len(order), _EVENTS_AT_ONCE):
        part = order[begin : begin + _EVENTS_AT_ONCE]
        in_force = np.nan_to_num(dividers.at(when[part]), nan=NO_DIVIDER)
        state = with_room(state, KINDS * len(part))
        kernel.replay(
            state,
            (what[part], when[part], which[part], in_force),
            history.names,
            numbers,
            history.calendars,
            flavour == "paper",
            rows,
            submissions,
        )
    return Replayed(rows, state, submissions)


class LiveFeatures(Placed):
    """The ``advisor`` features kept up job by job: the same functions, one event at a time.

    Parameters
    ----------
    state : State, optional
        What is remembered so far, e.g. a replayed history's.
    start_of_log : float
        Epoch seconds of time 0; 0 when times are epoch seconds.
    utc_offset_seconds : float
        The site's offset from UTC.

    Attributes
    ----------
    address : int
        Of the block that :func:`advisor.predict._size_rows.row_at` fills a row of for who was asked last.
    """

    def __init__(
        self, state: State | None = None, *, start_of_log: float = 0.0, utc_offset_seconds: float = 0.0
    ) -> None:
        self._clock = start_of_log + utc_offset_seconds
        self.start_of_log = start_of_log
        self.utc_offset_seconds = utc_offset_seconds
        # the hashes of names that come together; looked up in one step
        self._named: dict[tuple[str | None, str | None, str | None], bytes] = {}
        # numbers go into and out of compiled code by a block that is made once
        words, numbers = block(kernel.BLOCK)
        self._words, self._bytes = words, words.data
        self._row = numbers[kernel.ROW :].view(np.float32)[: len(kernel.ADVISOR_NAMES)]
        self.address = address_of(words)
        self._fill = entry(kernel.row_at)
        self._use(state if state is not None else empty_state())

    def _use(self, state: State) -> None:
        self._state, words = state, self._words
        words[kernel.INDEX_KEYS], words[kernel.INDEX_ROWS] = map(address_of, state[:2])
        words[kernel.STATS], words[kernel.SLOTS], words[kernel.COUNTERS] = map(address_of, state[2:])
        words[kernel.PLACES], words[kernel.CATEGORIES] = len(state.index_keys), len(state.stats)
        words[kernel.SUBMISSIONS] = len(state.slots)

    def row(self, job: Job, divider: float) -> NDArray[np.float32]:
        """Features of a submission, shape (features,)."""
        self.ask(job, divider)
        self._fill(self.address)
        return self._row.copy()

    def ask(self, job: Job, divider: float) -> None:
        """Put a submission into the block: :func:`advisor.predict._size_rows.row_at` does the rest."""
        names = (job.user, job.queue, job.name)
        hashes = self._named.get(names)
        if hashes is None:
            if len(self._named) >= _MOST_NAMED:
                self._named.clear()
            hashes = self._named[names] = _HASHES.pack(*hashes_of(job))
        time = job.submit_time
        _ASKED.pack_into(
            self._bytes,
            _ASKED_OFFSET,
            hashes,
            time,
            job.requested_time or 0.0,
            job.processors,
            time + self._clock,
            divider,
        )

    def submit(self, job: Job) -> int:
        """Note a submission; returns its number."""
        state = with_room(self._state, KINDS)
        if state is not self._state:
            self._use(state)
        request, processors = job.requested_time or 0.0, float(job.processors)
        names = np.array(hashes_of(job), np.uint64)
        keys = np.empty(KINDS, np.uint64)
        _size_state.categories_of(names, request, processors, self._day_of_week(job), keys)
        return int(_size_state.submit(self._state, keys, job.submit_time, request, processors))

    def start(self, number: int, time: float) -> None:
        """Note that the job with that number runs."""
        _size_state.start(self._state, number, time)

    def runs_since(self, number: int) -> float:
        """When the job with that number started; NaN where it waits, or was submitted long ago."""
        slot = self._state.slots[number % len(self._state.slots)]
        return float(slot[_size_state.SLOT_START]) if slot[_size_state.SLOT_NUMBER] == number else math.nan

    def end(self, number: int, time: float, run_seconds: float, divider: float) -> None:
        """Note that it has ended; ``run_seconds`` below 0: it never ran."""
        _size_state.end(self._state, number, time, run_seconds, divider)

    def _day_of_week(self, job: Job) -> float:
        return ((job.submit_time + self._clock) // 86400.0 + 3) % 7

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, no longer than what is in use."""
        used = int(self._state.counters[0])
        followed = min(int(self._state.counters[1]), len(self._state.slots))
        return {
            "index_keys": self._state.index_keys,
            "index_rows": self._state.index_rows,
            "stats": self._state.stats[:used],
            "slots": self._state.slots[:followed],
            "counters": self._state.counters,
            "capacity": np.array([len(self._state.slots)], np.int64),
            "clock": np.array([self.start_of_log, self.utc_offset_seconds]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild what :meth:`to_arrays` gave, checked so that no index can leave an array.

        Raises
        ------
        BadInput
            Incomplete or damaged.
        """
        try:
            state = _checked_state(arrays)
            start_of_log, utc_offset_seconds = (float(number) for number in arrays["clock"])
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise BadInput(
                f"damaged history: {error!r}",
                where="size model",
                mend="Run `advisor retrain`.",
                code="size.arrays",
            ) from None
        return cls(state, start_of_log=start_of_log, utc_offset_seconds=utc_offset_seconds)


def _checked_state(arrays: Mapping[str, NDArray[Any]]) -> State:
    categories, submissions = (int(number) for number in arrays["counters"])
    capacity = int(arrays["capacity"][0])
    index_keys = np.array(arrays["index_keys"], np.uint64)
    index_rows = np.array(arrays["index_rows"], np.int64)
    stats = np.array(arrays["stats"], np.float64)
    kept = np.array(arrays["slots"], np.float64)
    places = len(index_keys)
    sound = (
        0 < capacity <= 2**24
        and 0 <= categories == len(stats)
        and places >= 16
        and places & (places - 1) == 0
        and places > categories
        and index_rows.shape == index_keys.shape
        and stats.shape == (categories, _size_state.STATS)
        and kept.shape == (min(submissions, capacity), _size_state.SLOTS)
        and np.array_equal(np.sort(index_rows[index_rows >= 0]), np.arange(categories))
        and bool(np.all(kept[:, _size_state.SLOT_CATEGORY :] < max(categories, 1)))
        and bool(np.all(kept[:, _size_state.SLOT_CATEGORY :] >= 0))
    )
    if not sound:
        msg = "its arrays do not fit together"
        raise ValueError(msg)
    slots = np.full((capacity, _size_state.SLOTS), -1.0)
    slots[: len(kept)] = kept
    counters = np.array([categories, submissions], np.int64)
    return indexed_anew(State(index_keys, index_rows, stats, slots, counters))
