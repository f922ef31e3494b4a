"""Which jobs of a queue are placeholders of ours, and whether one is still what we submitted. Pure.

A placeholder is its user's job: he may change it, and give any job of his the name of one. Neither must
bring him anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from advisor.model.job import PLACEHOLDER_COMMENT
from advisor.service.state.hedge_entries import Kept
from advisor.slurm.protocol import JobView, QueuedJob

_ROUNDING_SECONDS: Final = 1.0


def placeholder_for(queued: QueuedJob, users: Mapping[int, str | None]) -> int | None:
    """Id of the job whose place a job keeps, by name, comment and user; None for all others.

    Parameters
    ----------
    queued : QueuedJob
        Any job.
    users : mapping
        Users of the jobs in the queue. A job that is not in it may have ended.
    """
    job = queued.job
    other = job.placeholder_for
    if other is None or job.job_id <= other or job.comment != PLACEHOLDER_COMMENT:
        return None
    return other if users.get(other, job.user) == job.user else None


def users_of(jobs: Iterable[QueuedJob]) -> dict[int, str | None]:
    """User of each job."""
    return {queued.job.job_id: queued.job.user for queued in jobs}


def standing_for_others(jobs: Sequence[QueuedJob]) -> dict[int, int]:
    """Placeholders whose job is in the queue too: their ids to those of their jobs."""
    found = placeholders_of(jobs)
    if not found:
        return {}
    ids = {queued.job.job_id for queued in jobs}
    return {place.job.job_id: other for other, places in found.items() if other in ids for place in places}


def placeholders_of(jobs: Sequence[QueuedJob]) -> dict[int, list[QueuedJob]]:
    """All placeholders in the queue, by the job whose place they keep, which may have ended."""
    found: dict[int, list[QueuedJob]] = {}
    if any(queued.job.placeholder_for is not None for queued in jobs):
        users = users_of(jobs)
        for queued in jobs:
            other = placeholder_for(queued, users)
            if other is not None:
                found.setdefault(other, []).append(queued)
    return found


def submitted_for(kept: Kept, own: JobView, candidates: Iterable[QueuedJob]) -> int:
    """The placeholder that was submitted for a job before a crash; 0: none that has its shape."""
    for queued in candidates:
        job = queued.job
        is_long = kept.limit_seconds is None or _limit(job.requested_time) >= (
            kept.limit_seconds - _ROUNDING_SECONDS
        )
        if is_long and job.processors >= own.processors_asked:
            return job.job_id
    return 0


def shape_kept(place: JobView, own: JobView) -> dict[str, int | float | None]:
    """What of a new placeholder's shape is noted in `Kept`: no more than the job itself is known to have.

    Slurm's counts of a job that waits may be estimates; those of one that runs are rounded up to whole cores
    or nodes.
    """
    return {
        "place_processors": min(place.processors, max(own.processors_asked, own.processors)),
        "place_nodes": min(place.nodes, own.nodes),
        "place_limit_seconds": place.limit_seconds,
    }


def was_changed(kept: Kept, place: JobView) -> bool:
    """Whether a placeholder asks for less than it was submitted with, or waits elsewhere."""
    least = kept.place_limit_seconds
    return (
        place.processors < kept.place_processors
        or place.nodes < kept.place_nodes
        or (least is not None and _limit(place.limit_seconds) < least - _ROUNDING_SECONDS)
        or not set(place.partition.split(",")).issubset(kept.partition.split(","))
    )


def _limit(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds
