"""How many of the waiting jobs are before a small job that is submitted now: small jobs go first.

Found at each poll; `advisor serve` forecasts the wait of a small job by it.
"""

from __future__ import annotations

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.price.array_rows import rows_of
from advisor.service.price.queue_view import OnPremiseQueue

_LEAST_SHOWN = 1
"""Slurm shows a priority of 0 as 1; 0 is that of a job whose priority is not known."""


def rows_before_small(queue: OnPremiseQueue, settings: Settings) -> list[int | None]:
    """The number of rows of each of `seen_queues` that a new small job does not overtake; None: all.

    Its own priority is taken to be that of the last job of the machine that was not put first, and the site's
    offset.
    """
    if not settings.size.enabled or settings.size.small_priority_offset <= 0:
        return [None] * len(queue.machines)
    last: dict[int, int] = {}
    for queued in queue.waiting:
        if not was_put_first(queued):
            place = queue.place_of(queued)
            last[place] = min(queued.priority, last.get(place, queued.priority))
    rows: list[int | None] = []
    for place in range(len(queue.machines)):
        own = last.get(place, 0) - _LEAST_SHOWN + settings.size.small_priority_offset
        before = (q for q in queue.waiting if queue.place_of(q) == place and q.priority >= own)
        count = sum(rows_of(queued, queue.tasks_apart) for queued in before)
        rows.append(count if last.get(place, 0) >= _LEAST_SHOWN else None)
    return rows


def was_put_first(queued: QueuedJob) -> bool:
    """Whether the advisor has added to a job's priority."""
    recorded = parse_admin_comment(queued.admin_comment)
    return recorded is not None and recorded.size == "small" and recorded.mode == "act"
