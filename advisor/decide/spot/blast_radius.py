"""How much of one owner's work may be in one spot pool, so that no loss takes all of it at once. Pure.

An owner is a user, or a chain of jobs that depend on each other. The provision loop asks at each launch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from advisor.model.snapshot import QueuedJob

LEAST_NODES: Final = 4
"""An owner with fewer nodes may have them all in one pool: a loss of three is no catastrophe."""
_JOB: Final = re.compile(r":(\d{1,10})")


class Part(NamedTuple):
    """Nodes that may be launched in the same pools; no pools: not as spot."""

    nodes: tuple[str, ...]
    pools: tuple[str, ...]


def owners_of(jobs: Iterable[QueuedJob]) -> dict[int, tuple[str, ...]]:
    """Job id to its owners: its user, and the chain that it is a part of, named by its lowest job id.

    All jobs that one job depends on are of one chain with it, even if it waits and they run.
    """
    known = {queued.job.job_id: queued for queued in jobs}
    first: dict[int, int] = {}

    def root(job_id: int) -> int:
        while first.get(job_id, job_id) != job_id:
            job_id = first[job_id]
        return job_id

    for job_id, queued in known.items():
        for named in _JOB.findall(queued.job.dependency or ""):
            low, high = sorted((root(job_id), root(int(named))))
            first[high] = first[low] = low
    found = {}
    for job_id, queued in known.items():
        user = (f"user {queued.job.user}",) if queued.job.user else ()
        chain = (f"chain {root(job_id)}",) if job_id in first else ()
        found[job_id] = user + chain
    return found


def spread(
    nodes: Sequence[str],
    pools: Sequence[str],
    running: Sequence[Mapping[str, int]],
    share: float,
) -> list[Part]:
    """Divide nodes that are to be launched among pools, so that no owner has too many in one of them.

    Args:
        nodes: The nodes of jobs that all have the same owners.
        pools: Those that will do, the best first.
        running: Owner to pool to the number of the owner's running spot nodes in it.
        share: The most of an owner's spot nodes that may be in one pool; where there are fewer pools than
            that needs, an even share.

    Returns:
        One part with all pools where any division will do, else a part for each pool, and one without pools
        for what has no room.
    """
    most = max(share, 1.0 / len(pools)) if pools else 1.0
    room = {pool: len(nodes) for pool in pools}
    for counts in running:
        total = sum(counts.values()) + len(nodes)
        limit = math.ceil(most * total - 1e-9) if total >= LEAST_NODES else total
        for pool in pools:
            room[pool] = min(room[pool], max(0, limit - counts.get(pool, 0)))
    if all(free >= len(nodes) for free in room.values()):
        return [Part(tuple(nodes), tuple(pools))]
    parts, left = [], tuple(nodes)
    for pool in pools:
        if some := left[: room[pool]]:
            parts.append(Part(some, (pool,)))
            left = left[len(some) :]
    return [*parts, Part(left, ())] if left else parts
