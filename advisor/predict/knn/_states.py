"""Cluster states at every submission of a log, by one compiled pass over sorted events.

The rules are those of :class:`advisor.predict.knn.tracker.ClusterTracker`; the tests compare the two event by
event.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.model.cluster import ClusterState
from advisor.model.table import JobTable


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
    """The state that each submission of a log meets, in the table's row order.

    Rows may be in any order. A wait below 0 counts as 0. A row with a run time of 0 or less waits and then
    leaves the queue. Where the table does not know its machine's size, the most processors that were busy so
    far stand for it. Unknown requests: see :mod:`advisor.predict.knn.tracker`.
    """
    order = np.argsort(table.submit, kind="stable")
    submit = table.submit[order]
    origin = submit[0] if len(submit) else 0.0
    submit = submit - origin
    start = submit + np.maximum(np.nan_to_num(table.wait[order]), 0.0)
    end = start + np.maximum(np.nan_to_num(table.run[order]), 0.0)
    request = _filled_requests(table.requested_time[order])
    settled = np.minimum(end, start + request)
    integers = np.zeros((4, len(submit)), np.int64)
    floats = np.zeros((2, len(submit)))
    events = _Events(
        submit=submit,
        start=start,
        end=end,
        settled=settled,
        by_start=np.argsort(start, kind="stable"),
        by_end=np.argsort(end, kind="stable"),
        by_settled=np.argsort(settled, kind="stable"),
        processors=table.processors[order].astype(np.int64),
        request=request,
    )
    _fill_waiting(events, integers[0], floats[0])
    _fill_running(events, table.total_processors, integers[1:])
    _fill_remaining_work(events, floats[1])
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    queue_size, free, total, running = integers[:, back]
    queued, remaining = floats[:, back]
    return StateColumns(
        time=table.submit.copy(),
        queue_size=queue_size,
        queued_work_core_seconds=queued,
        remaining_work_core_seconds=remaining,
        free_processors=free,
        total_processors=total,
        running_jobs=running,
    )


def _filled_requests(request: Floats) -> Floats:
    """Requests in seconds; unknown ones become the mean of the known ones before them, in whole seconds."""
    known = np.isfinite(request) & (request >= 0)
    counts = np.cumsum(known)
    means = np.rint(np.cumsum(np.where(known, request, 0.0)) / np.maximum(counts, 1))
    return np.where(known, request, means)


class _Events(NamedTuple):
    """Jobs by rank of submission, and these ranks in the order of later events; times in seconds."""

    submit: Floats
    start: Floats
    end: Floats
    settled: Floats  # when nothing of the request is left: at its limit or its end
    by_start: Ints
    by_end: Ints
    by_settled: Ints
    processors: Ints
    request: Floats


# Jobs are identified by their rank of submission. An event at or before a submission counts when its job has
# a lower rank; the sorts are stable, so at equal times jobs of higher rank come last.


@compiled
def _fill_waiting(events: _Events, count: Ints, work: Floats) -> None:
    """Number and requested work of the waiting jobs at each submission."""
    submit, start, by_start = events.submit, events.start, events.by_start
    n, waiting, following = len(submit), 0, 0
    queued = 0.0
    for rank in range(n):
        now = submit[rank]
        while following < n and start[by_start[following]] <= now and by_start[following] < rank:
            job = by_start[following]
            following += 1
            waiting -= 1
            queued -= events.processors[job] * events.request[job]
        queued = queued if waiting else 0.0  # drops accumulated rounding
        count[rank], work[rank] = waiting, queued
        waiting += 1
        queued += events.processors[rank] * events.request[rank]


@compiled
def _fill_running(events: _Events, total_processors: int, integers: Ints) -> None:
    """Free and total processors and number of running jobs."""
    start, end, by_start, by_end = events.start, events.end, events.by_start, events.by_end
    n, running, running_processors, most_busy, next_start, next_end = len(start), 0, 0, 0, 0, 0
    for rank in range(n):
        now = events.submit[rank]
        while True:  # starts and ends in order of time, ends first
            starts = next_start < n and start[by_start[next_start]] <= now and by_start[next_start] < rank
            ends = next_end < n and end[by_end[next_end]] <= now and by_end[next_end] < rank
            if not (starts or ends):
                break
            is_end = ends and not (starts and start[by_start[next_start]] < end[by_end[next_end]])
            job = by_end[next_end] if is_end else by_start[next_start]
            next_end += int(is_end)
            next_start += int(not is_end)
            if end[job] > start[job]:
                running += -1 if is_end else 1
                running_processors += -events.processors[job] if is_end else events.processors[job]
            most_busy = max(most_busy, running_processors)
        total = total_processors if total_processors > 0 else most_busy
        integers[0, rank] = max(0, total - running_processors)
        integers[1, rank] = total
        integers[2, rank] = running


@compiled
def _fill_remaining_work(events: _Events, out: Floats) -> None:
    """Processor-seconds that the running jobs have left of their requests at each submission."""
    start, by_start = events.start, events.by_start
    settled, by_settled = events.settled, events.by_settled
    n, next_start, next_settled, owing = len(start), 0, 0, 0
    owed = 0.0  # processors times the end of the request; the remaining work is owed - owing * now
    for rank in range(n):
        now = events.submit[rank]
        while next_start < n and start[by_start[next_start]] <= now and by_start[next_start] < rank:
            job = by_start[next_start]
            next_start += 1
            if events.end[job] > start[job]:
                owed += events.processors[job] * (start[job] + events.request[job])
                owing += events.processors[job]
        while (
            next_settled < n and settled[by_settled[next_settled]] <= now and by_settled[next_settled] < rank
        ):
            job = by_settled[next_settled]
            next_settled += 1
            if events.end[job] > start[job]:
                owed -= events.processors[job] * (start[job] + events.request[job])
                owing -= events.processors[job]
        owed = owed if owing else 0.0  # drops accumulated rounding
        out[rank] = max(0.0, owed - owing * now)
