"""Finished jobs as columns, for replays, simulations and training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

UNKNOWN_CODE = -1
"""Code of an unknown nominal value in a column of :class:`JobTable`."""


def limits_of(requested_time: NDArray[np.float64], run: NDArray[np.float64]) -> NDArray[np.float64]:
    """Time limits of finished jobs, seconds: a job that asked for none has that of its site, its MaxTime.

    For MaxTime stands the longest limit, or the longest run time where that is shorter: one absurd request is
    not the site's limit. It is no shorter than any run of a job that asked for none, which was not ended
    there. A job's own run time never stands for its limit: it is not known at the submission.

    Args:
        requested_time, run: As in :class:`JobTable`, of the same length.
    """
    asks = ~np.isnan(requested_time)
    longest_run = run.max(initial=0.0)
    max_time = min(requested_time[asks].max(initial=0.0), longest_run) or longest_run
    return np.where(asks, requested_time, max(max_time, run[~asks].max(initial=0.0)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobTable:
    """Finished jobs in submission order, one array a column, all of length n.

    Attributes:
        submit: Seconds since the log's start.
        wait: Seconds from submission to start.
        run: Seconds from start to end.
        processors: Requested processors, else used ones; at least 1.
        requested_time: Seconds; NaN where the log has none.
        user, group, queue: Nominal codes; ``UNKNOWN_CODE`` where unknown.
        status: SWF status (1 completed, 0 failed, 5 cancelled, -1 unknown).
        executable: Code of the job's name or executable (SWF column 14); all ``UNKNOWN_CODE`` when not given.
        account: Code of the account; default: ``group``.
        application: Code of the job's name without its counters (:func:`~advisor.model.job.family`); default:
            ``executable``.
        requeued_seconds: Seconds from the first to the last start of a requeued job; NaN where the first is
            unknown. Default 0.
        ineligible_seconds: Seconds from submission in which the job might not start; default 0.
        held: What each job held of processors, memory (MiB; else what it asked for) and GPUs, shape
            ``(n, 3)``. Default: processors alone.
        is_whole: False where the last run was cut short (node failure, preemption). Default True.
        start_of_log: Epoch seconds of time 0 (SWF header ``UnixStartTime``); 0 when unknown. Needed for week
            days.
        utc_offset_seconds: The site's offset from UTC.
        total_processors: Processors of the machine (header ``MaxProcs``); 0 when unknown.
        name: Name of the log, for titles.
        names: Column (``user``, ``group``, ``queue``, ``executable``, ...) to the text of each code,
            ``names[column][code]``. A column without an entry has codes that are names themselves: 95 is user
            ``"95"``, as in a log.
    """

    job_id: NDArray[np.int64]
    submit: NDArray[np.float64]
    wait: NDArray[np.float64]
    run: NDArray[np.float64]
    processors: NDArray[np.int64]
    requested_time: NDArray[np.float64]
    user: NDArray[np.int64]
    group: NDArray[np.int64]
    queue: NDArray[np.int64]
    status: NDArray[np.int64]
    executable: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    account: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    application: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    requeued_seconds: NDArray[np.float64] = field(default_factory=lambda: np.empty(0, np.float64))
    ineligible_seconds: NDArray[np.float64] = field(default_factory=lambda: np.empty(0, np.float64))
    held: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 3), np.int64))
    is_whole: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    start_of_log: float = 0.0
    utc_offset_seconds: float = 0.0
    total_processors: int = 0
    name: str = ""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.executable):
            object.__setattr__(self, "executable", np.full(len(self.submit), UNKNOWN_CODE, np.int64))
        if not len(self.account):
            object.__setattr__(self, "account", self.group)
        if not len(self.application):
            object.__setattr__(self, "application", self.executable)
        if not len(self.requeued_seconds):
            object.__setattr__(self, "requeued_seconds", np.zeros(len(self.submit)))
        if not len(self.ineligible_seconds):
            object.__setattr__(self, "ineligible_seconds", np.zeros(len(self.submit)))
        if not len(self.held):
            nothing = np.zeros(len(self.submit), np.int64)
            object.__setattr__(self, "held", np.column_stack((self.processors, nothing, nothing)))
        if not len(self.is_whole):
            object.__setattr__(self, "is_whole", np.ones(len(self.submit), np.bool_))

    def __len__(self) -> int:
        return len(self.submit)

    @property
    def start(self) -> NDArray[np.float64]:
        """Start times, seconds."""
        return self.submit + self.wait

    @property
    def end(self) -> NDArray[np.float64]:
        """End times, seconds."""
        return self.submit + self.wait + self.run

    @property
    def limits(self) -> NDArray[np.float64]:
        """Time limits, seconds; see :func:`limits_of`."""
        return limits_of(self.requested_time, self.run)

    @property
    def first_wait(self) -> NDArray[np.float64]:
        """Seconds from submission to the first start; NaN where unknown, or it might not start at once."""
        return np.where(self.ineligible_seconds > 0.0, np.nan, self.wait - self.requeued_seconds)

    @property
    def whole_run(self) -> NDArray[np.float64]:
        """Run times; NaN where the run was cut short."""
        return np.where(self.is_whole, self.run, np.nan)

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64] | slice) -> Self:
        """Select rows by boolean mask, row numbers or slice, in that order."""
        columns = {
            column.name: getattr(self, column.name)[rows]
            for column in fields(self)
            if isinstance(getattr(self, column.name), np.ndarray)
        }
        return replace(self, **columns)
