"""Placement features of a log: its events are applied in the order in which they became known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.arrays import Floats
from advisor.model.table import JobTable
from advisor.papers.forests.placement_features import EventKind, PlacementFeatures
from advisor.papers.forests.submission_features import FEATURES, Submission


def features_of(table: JobTable, *, stop: int | None = None) -> Floats:
    """Features of a log's submissions, each from what was known then; shape (rows, features).

    At equal times ends come first, then starts, then submissions; a job that starts at once starts after its
    own submission. Rows that never ran, and rows from ``stop`` on, are NaN. Where the log does not say how
    large the machine was, its largest job does.
    """
    count = len(table) if stop is None else min(stop, len(table))
    machine = table.total_processors or int(table.processors.max(initial=1))
    site = PlacementFeatures(machine, clock_offset_seconds=table.start_of_log + table.utc_offset_seconds)
    features = np.full((len(table), len(FEATURES)), np.nan)
    for kind, row, time in _events(table, count):
        if kind is EventKind.SUBMIT:
            features[row] = site.submit(row, _submission(table, row))
        else:
            site.apply_event(kind, row, time)
    return features


def _events(table: JobTable, count: int) -> Iterator[tuple[EventKind, int, float]]:
    """Past events of the first rows of a log, in order: kind, row and seconds.

    A requeued job occupies the machine from its first start on, because a log does not say when its earlier
    runs ended; where the first start is unknown, from its last.
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
        executable=int(table.executable[row]),
    )
