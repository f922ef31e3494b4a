"""How many tasks of arrays the queue forecast tells apart: simulating 200,000 of them takes hours. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from advisor.model.snapshot import QueuedJob

MAX_TASKS: Final = 200
_MAX_ROWS: Final = 10_000
"""Of the waiting jobs' tasks; the first task of each job has a row in any case."""


def tasks_apart(waiting: Collection[QueuedJob]) -> int:
    """Tasks of one array that have rows of their own; the others are one wide job at its end."""
    apart = MAX_TASKS
    while apart > 1 and sum(min(queued.job.array_tasks, apart) for queued in waiting) > _MAX_ROWS:
        apart //= 2
    return apart


def rows_of(queued: QueuedJob, apart: int) -> int:
    """The number of rows that a waiting job has, where so many tasks of an array have their own."""
    return min(queued.job.array_tasks, apart) + (queued.job.array_tasks > apart)
