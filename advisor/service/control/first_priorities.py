"""The priorities with which new jobs of each user begin, learned at each poll from the jobs that wait.

With ``priority/multifactor`` a new job is not the last of the queue: its user's share, its QOS and its
partition decide. Its age counts nothing yet. So a waiting job's priority less what its age has added is that
of a new job of the same user, account, QOS and partition.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Final

from advisor.model.job import ANYBODY
from advisor.model.snapshot import QueuedJob
from advisor.service.control.small_first import was_put_first
from advisor.slurm.steering import Ageing

_KEPT_SECONDS: Final = 86_400.0
_MAX_KEYS: Final = 5_000
_MIN_KEYS: Final = 10
"""So many tell by their median where a user begins who has had no job."""


class FirstPriorities:
    """Priorities of new jobs by `Job.priority_keys`, as far as they are known. Not thread-safe."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}  # with the time of the poll

    def update(
        self, jobs: Iterable[QueuedJob], ageing: Ageing | None, small_offset: int, now: float
    ) -> dict[str, float]:
        """Take in the waiting jobs of a poll; empty where each new job is the last.

        Args:
            small_offset: What the advisor adds to the priorities of small jobs.
            now: Epoch seconds.
        """
        if ageing is None:
            self._seen.clear()
            return {}
        newest: dict[str, tuple[float, float]] = {}
        for queued in jobs:
            if not queued.is_queued or queued.priority <= 1 or queued.restarts:
                continue
            submit = queued.job.submit_time
            added = small_offset if was_put_first(queued) else 0
            first = queued.priority - added - ageing.of_a_job(now - submit)
            if first <= 0.0:
                continue  # it ages from a later time than its submission
            for key in queued.job.priority_keys[:2]:  # not of all users of a queue
                if newest.get(key, (0.0,))[0] <= submit:
                    newest[key] = submit, first
        kept = {key: seen for key, seen in self._seen.items() if now - seen[1] <= _KEPT_SECONDS}
        kept |= {key: (first, now) for key, (_, first) in newest.items()}
        if len(kept) > _MAX_KEYS:
            kept = dict(sorted(kept.items(), key=lambda item: -item[1][1])[:_MAX_KEYS])
        self._seen = kept
        found = {key: first for key, (first, _) in kept.items()}
        if len(found) >= _MIN_KEYS:
            found[ANYBODY] = statistics.median(found.values())
        return found
