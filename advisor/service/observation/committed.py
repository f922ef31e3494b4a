"""The money and reserved nodes that moved jobs will use once their nodes are launched. Pure.

The submit server counts a job's cost until a poll shows the job; the record of
spending (:mod:`advisor.service.state.budget`) counts it from the launch of its node on. In between it is
counted here: otherwise each of many simultaneous submissions would see a budget that is large enough for it
alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from advisor.decide.submission.cloud_terms import cost_usd
from advisor.model.advice import Capacity
from advisor.model.limits import far_from_start
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.model.snapshot import PENDING, QueuedJob
from advisor.service.observation.advice_of_jobs import longest_seconds, moved_by_us


def with_committed(
    cloud: CloudState,
    jobs: Sequence[QueuedJob],
    settings: Settings,
    stop_of: Callable[[int], float | None] = lambda _: None,
) -> CloudState:
    """The state of the cloud, less the money and the reserved nodes of moved jobs that wait for a node.

    With a budget a job's cost is that of its longest run where spot has no room, as its launch will be asked
    for it; else that of its predicted run. Jobs that a limit
    holds have none, but for as many as may start next (`far_from_start`).

    Args:
        stop_of: The stop of a job that keeps a place, which may be that of a second run; None: its advice's.
    """
    usd, reserved = 0.0, Counter[str]()
    by_account, far = dict[str, float](), far_from_start(jobs, settings.cluster.burst_partition)
    for queued in jobs:
        job = queued.job
        if queued.state != PENDING or job.queue != settings.cluster.burst_partition or job.job_id in far:
            continue
        moved = moved_by_us(queued)
        if moved is None or moved.capacity not in set(Capacity):
            continue
        capacity = Capacity(moved.capacity)
        nodes = cloud.for_job(job)
        if queued.memory_mb and job.memory_mb is None:  # which may need more nodes than processors do
            job = replace(job, memory_mb=queued.memory_mb)
        if capacity is Capacity.RESERVED:
            reserved[nodes.class_name] += job.array_tasks * nodes.nodes_at_most(job)
        if settings.budget.limits_spending:
            run = longest_seconds(job, moved, stop_of(job.job_id), unlimited=math.nan)
            # the launch of a spot job may be on-demand
            options = {capacity, Capacity.ON_DEMAND if capacity is Capacity.SPOT else capacity}
            cost = max(cost_usd(job, run, option, nodes, settings) for option in options)
        else:
            run = moved.numbers.get("predicted_cloud_run", math.nan)
            cost = cost_usd(job, run, capacity, nodes, settings)
        if math.isfinite(cost):
            usd += cost
            for payer in job.payers:
                by_account[payer] = by_account.get(payer, 0.0) + cost
    if not (usd or reserved):
        return cloud
    return cloud.committed(usd, by_account, reserved)
