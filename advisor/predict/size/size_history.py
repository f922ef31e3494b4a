"""The history from which `advisor retrain` and replays train the size classifier (Zrigui et al. 2022).

Jobs are in the order of their submissions. The divider between small and large is set anew each week.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from advisor.model.job import JobOutcome
from advisor.model.table import JobTable
from advisor.predict.size._size_state import hash_of, hashes_of

WEEK_SECONDS: Final = 7 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizeHistory:
    """Jobs in submission order, all columns of length n.

    Attributes:
        submit, start, end: Seconds on one clock; ``start`` and ``end`` are infinite while unknown.
        request, processors: Requested time in seconds (0 where unknown) and processors.
        names: uint64, shape (n, 3): Hashes of user, queue and job name.
        local: The site's local times of the submissions, seconds since the epoch.
    """

    submit: NDArray[np.float64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    request: NDArray[np.float64]
    processors: NDArray[np.float64]
    names: NDArray[np.uint64]
    local: NDArray[np.float64]

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
        """Whether each job has run and ended; only these teach."""
        return self.run > 0

    def until(self, now: float) -> Self:
        """The history as known at ``now``: jobs submitted before, without later starts and ends."""
        rows = self.submit < now
        columns = {column.name: getattr(self, column.name)[rows] for column in fields(self)}
        for name in ("start", "end"):
            columns[name] = np.where(columns[name] < now, columns[name], np.inf)
        return replace(self, **columns)

    @classmethod
    def from_table(cls, table: JobTable) -> Self:
        """The jobs of a log. A wait below 0 counts as 0."""
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
            local=table.submit[order] + table.start_of_log + table.utc_offset_seconds,
        )

    @classmethod
    def from_outcomes(
        cls, outcomes: Iterable[JobOutcome], *, start_of_log: float = 0.0, utc_offset_seconds: float = 0.0
    ) -> Self:
        """Finished jobs in any order; those that never ran or were cut short are left out."""
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
            local=submit + start_of_log + utc_offset_seconds,
        )

    def numbers(self) -> NDArray[np.float64]:
        """The numbers that `_size_rows.replay` needs, shape (n, 4).

        Requested seconds, processors, run time in seconds (-1: never ran; NaN: unknown), and whether it has a
        queue or a name.
        """
        run = np.where(self.run <= 0, -1.0, self.run)
        return np.column_stack([self.request, self.processors, run, self.names[:, 1:].any(axis=1)])


def _hashes(codes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hashes of a table's nominal codes by their decimal text, as ``iter_outcomes`` gives it."""
    values, index = np.unique(codes, return_inverse=True)
    hashed = [hash_of(str(value) if value >= 0 else None) for value in values.tolist()]
    return np.array(hashed, np.uint64)[index]


@dataclass(frozen=True, slots=True, eq=False)
class WeeklyDividers:
    """The divider in force in each week since the first submission (section 3.3).

    Attributes:
        origin: Time of the first submission, at which the weeks begin.
        seconds: One per week: the median run time of the jobs *finished before that week*; NaN while there
            were none. The paper's Table 2 takes the whole log's median, which looks ahead.
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
