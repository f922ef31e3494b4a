"""Slurm's order of waiting jobs where partitions have different tiers (``PriorityTier``), for forecasts.

The jobs of a higher tier are tried before all of a lower one, whatever their priorities are (slurm.conf(5)).
So a tier is written into a job's priority, above the 32 bits that Slurm's has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from advisor.model.job import ANYBODY
from advisor.model.machine import PartitionTerms
from advisor.model.snapshot import QueuedJob

_OF_A_TIER: Final = 2**32


def added_by_tiers(ours: Sequence[str], partitions: Mapping[str, PartitionTerms]) -> dict[str, int]:
    """What each partition adds to the priorities of its jobs; empty where all are of one tier."""
    tiers = {name: partitions[name].tier for name in ours if name in partitions}
    least = min(tiers.values(), default=0)
    found = {name: _OF_A_TIER * (tier - least) for name, tier in tiers.items()}
    return found if any(found.values()) else {}


def in_order(waiting: Iterable[QueuedJob], added: Mapping[str, int]) -> list[QueuedJob]:
    """The waiting jobs as Slurm tries them, with what their partitions add to their priorities.

    A job that names several partitions has the place of the highest.
    """
    if added:
        waiting = (
            replace(queued, priority=queued.priority + max(added.get(name, 0) for name in queued.partitions))
            for queued in waiting
        )
    return sorted(waiting, key=lambda queued: (-queued.priority, queued.job.submit_time, queued.job.job_id))


def of_new_jobs(known: Mapping[str, float], of_queues: Mapping[str, float]) -> dict[str, float]:
    """Priorities of new jobs by `Job.priority_keys`.

    A partition in which none of a user's jobs was seen is entered in the middle of its tier; where priorities
    are not known, behind its last job.

    Args:
        known: Learned from the jobs that wait (:mod:`advisor.service.control.first_priorities`).
        of_queues: Of a partition alone: where its tier begins.
    """
    middle = known.get(ANYBODY, 0.0) % _OF_A_TIER
    return {**{key: begins + middle for key, begins in of_queues.items()}, **known}
