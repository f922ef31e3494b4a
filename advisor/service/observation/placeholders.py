"""Which jobs of a queue are the advisor's placeholders, and whether they were changed. Pure.

A placeholder belongs to its user, who may change it or name any of their jobs like one. Neither must give
the user an advantage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from advisor.model.job import PLACEHOLDER_COMMENT
from advisor.model.snapshot import JobView, QueuedJob
from advisor.service.state.hedge_entries import HedgeEntry

_ROUNDING_SECONDS: Final = 1.0


def placeholder_for(queued: QueuedJob, users: Mapping[int, str | None]) -> int | None:
    """Id of the job that a placeholder stands for, by name, comment and user; None for other jobs.

    ``users`` maps the jobs in the queue to their users. A job that is missing from it may have ended.
    """
    job = queued.job
    other = job.placeholder_for
    if other is None or job.job_id <= other or job.comment != PLACEHOLDER_COMMENT:
        return None
    return other if users.get(other, job.user) == job.user else None


def standing_for_others(jobs: Sequence[QueuedJob]) -> dict[int, int]:
    """Ids of placeholders whose jobs are in the queue too, and the ids of those jobs."""
    found = placeholders_of(jobs)
    if not found:
        return {}
    ids = {queued.job.job_id for queued in jobs}
    return {place.job.job_id: other for other, places in found.items() if other in ids for place in places}


def placeholders_of(jobs: Sequence[QueuedJob]) -> dict[int, list[QueuedJob]]:
    """All placeholders in the queue by the id of their job, which may have ended."""
    found: dict[int, list[QueuedJob]] = {}
    if any(queued.job.placeholder_for is not None for queued in jobs):
        users = {queued.job.job_id: queued.job.user for queued in jobs}
        for queued in jobs:
            other = placeholder_for(queued, users)
            if other is not None:
                found.setdefault(other, []).append(queued)
    return found


def submitted_for(entry: HedgeEntry, own: JobView, candidates: Iterable[QueuedJob]) -> int:
    """Id of a placeholder that was submitted before a crash and is large and long enough; 0: none."""
    for queued in candidates:
        job = queued.job
        is_long = entry.limit_seconds is None or _limit(job.requested_time) >= (
            entry.limit_seconds - _ROUNDING_SECONDS
        )
        if is_long and job.processors >= own.processors_asked:
            return job.job_id
    return 0


def shape_kept(place: JobView, own: JobView) -> dict[str, int | float | None]:
    """A new placeholder's shape as its hedge entry records it: at most that of the job itself.

    Slurm's counts of a pending job may be estimates; those of a running job are rounded up to whole cores or
    nodes.
    """
    return {
        "place_processors": min(place.processors, max(own.processors_asked, own.processors)),
        "place_nodes": min(place.nodes, own.nodes),
        "place_limit_seconds": place.limit_seconds,
    }


def was_changed(entry: HedgeEntry, place: JobView) -> bool:
    """Whether a placeholder asks for less than at its submission, or waits in another partition."""
    least = entry.place_limit_seconds
    return (
        place.processors < entry.place_processors
        or place.nodes < entry.place_nodes
        or (least is not None and _limit(place.limit_seconds) < least - _ROUNDING_SECONDS)
        or not set(place.partition.split(",")).issubset(entry.partition.split(","))
    )


def _limit(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds
