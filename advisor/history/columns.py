"""Convert database rows to a :class:`JobTable` page by page, which saves memory for millions of jobs.

Trainings, tunings and simulations of a site's own jobs read the history so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Row

from advisor.history._rows import held_of
from advisor.history.swf import STATUS_OF_STATE
from advisor.model.job import CUT_SHORT, JobState, family
from advisor.model.table import UNKNOWN_CODE, JobTable

_REAL = ("submit_time", "start_time", "end_time", "requested_time")
_NOMINAL = {
    "user": "user_name",
    "group": "group_name",
    "queue": "queue",
    "executable": "name",
    "account": "account",
}
"""Column of the table to that of the database."""
_CODED = (*_NOMINAL, "application")


class TableBuilder:
    """Collects pages of rows of the ``job`` table."""

    def __init__(self) -> None:
        self._integers: list[NDArray[np.int64]] = []
        self._reals: list[NDArray[np.float64]] = []
        self._is_whole: list[NDArray[np.bool_]] = []
        self._held: list[NDArray[np.int64]] = []
        self._codes: dict[str, dict[str, int]] = {name: {} for name in _CODED}

    def add(self, rows: Sequence[Row[Any]], first_starts: Mapping[int, float]) -> None:
        """Add one page; ``first_starts``: known first starts of requeued jobs by position, epoch seconds."""
        held = [(max(row.processors, row.processors_used), held_of(row.details)) for row in rows]
        reals = [[getattr(row, name) for row in rows] for name in _REAL]
        reals.append([first_starts.get(row.position) if row.restarts else row.start_time for row in rows])
        reals.append([more.ineligible_seconds for _, more in held])
        self._is_whole.append(np.array([JobState(row.state) not in CUT_SHORT for row in rows], np.bool_))
        self._reals.append(np.array(reals, dtype=np.float64))  # None becomes NaN
        of_each = [
            (used, more.memory_held_mb or row.memory_mb or 0, more.gpus_held)
            for row, (used, more) in zip(rows, held, strict=True)
        ]
        self._held.append(np.array(of_each, dtype=np.int64).reshape(-1, 3))
        integers = [
            [row.job_id for row in rows],
            [row.processors for row in rows],
            [STATUS_OF_STATE[JobState(row.state)] for row in rows],
        ]
        integers += [
            [self._code(name, getattr(row, column)) for row in rows] for name, column in _NOMINAL.items()
        ]
        integers.append([self._code("application", family(row.name)) for row in rows])
        self._integers.append(np.array(integers, dtype=np.int64))

    def _code(self, column: str, name: str | None) -> int:
        if name is None:
            return UNKNOWN_CODE
        codes = self._codes[column]
        return codes.setdefault(name, len(codes))

    def build(self, *, utc_offset_seconds: float, total_processors: int, name: str) -> JobTable:
        """All pages as one table in submission order."""
        reals = np.concatenate(self._reals, axis=1) if self._reals else np.empty((6, 0))
        nothing = np.empty((3 + len(_CODED), 0), np.int64)
        integers = np.concatenate(self._integers, axis=1) if self._integers else nothing
        order = np.lexsort((integers[0], reals[0]))
        submit, start, end, requested, first_start, ineligible = reals[:, order]
        integers = integers[:, order]
        is_whole = np.concatenate(self._is_whole)[order] if self._is_whole else np.empty(0, np.bool_)
        held = np.concatenate(self._held)[order] if self._held else np.empty((0, 3), np.int64)
        first = float(np.floor(submit[0])) if len(submit) else 0.0
        return JobTable(
            job_id=integers[0],
            processors=integers[1],
            status=integers[2],
            **dict(zip(_CODED, integers[3:], strict=True)),
            submit=submit - first,
            wait=start - submit,
            run=end - start,
            requested_time=requested,
            requeued_seconds=start - first_start,
            ineligible_seconds=ineligible,
            is_whole=is_whole,
            held=held,
            start_of_log=first,
            utc_offset_seconds=utc_offset_seconds,
            total_processors=total_processors,
            name=name,
            names={column: tuple(codes) for column, codes in self._codes.items()},
        )


def in_burst(table: JobTable, burst_partition: str) -> NDArray[np.bool_]:
    """Whether a job ran in the burst partition, shape ``(n,)``."""
    queues = table.names.get("queue", ())
    if burst_partition not in queues:
        return np.zeros(len(table), np.bool_)
    return np.asarray(table.queue == queues.index(burst_partition), np.bool_)


def on_premise(table: JobTable, burst_partition: str) -> JobTable:
    """The jobs that ran on-premise, with times in epoch seconds."""
    here = table.select(~in_burst(table, burst_partition))
    return replace(here, submit=here.submit + here.start_of_log, start_of_log=0.0)
