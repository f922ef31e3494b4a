"""What moved jobs that still wait in the cloud's queue will take: no node was launched for them yet.

The submit server forgets what it has committed when a look shows the job. Its money is promised when its node
is launched (:mod:`advisor.service.state.budget`), which is later: in between it is counted here, or a
burst of submissions would be told each by itself that the day's money is enough. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from advisor.decide.submission.capacity import cost_usd
from advisor.model.advice import Capacity
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.slurm.protocol import PENDING, QueuedJob


def with_committed(cloud: CloudState, jobs: Iterable[QueuedJob], settings: Settings) -> CloudState:
    """The cloud with the money and the reserved nodes of moved jobs that wait there."""
    usd, reserved = 0.0, 0
    by_account = dict[str, float]()
    for queued in jobs:
        job = queued.job
        if queued.state != PENDING or job.queue != settings.cluster.burst_partition:
            continue
        moved = moved_by_us(queued)
        if moved is None or moved.capacity not in set(Capacity):
            continue
        capacity = Capacity(moved.capacity)
        if capacity is Capacity.RESERVED:
            reserved += job.array_tasks * cloud.nodes_at_most(job)
        run = moved.numbers.get("predicted_cloud_run", math.nan)
        cost = cost_usd(job, run, capacity, cloud, settings)
        if math.isfinite(cost):
            usd += cost
            if job.account:
                by_account[job.account] = by_account.get(job.account, 0.0) + cost
    if not (usd or reserved):
        return cloud
    return cloud.committed(usd, by_account, reserved)
