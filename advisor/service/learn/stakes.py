"""What a job that was moved to the cloud may lose there at worst. Pure."""

from __future__ import annotations

from typing import Final

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.model.advice import Placement
from advisor.model.settings import Settings
from advisor.predict.forecast.distribution import EDGES
from advisor.slurm.protocol import QueuedJob

_MAX_RUN_SECONDS: Final = float(EDGES[-1])


def worst_loss_seconds(queued: QueuedJob, settings: Settings, boot_seconds: float) -> float:
    """Largest loss of turnaround, seconds, of all tasks of a job that the advisor moved.

    It is 0 for all other jobs, and for a hedged job, which can come back.
    """
    if settings.cluster.burst_partition not in queued.partitions:
        return 0.0
    advice = parse_admin_comment(queued.admin_comment)
    if advice is None or advice.placement != Placement.BURST or advice.reason == Reason.EXPLICIT_BURST:
        return 0.0
    if advice.hedge is not None:
        return 0.0
    job = queued.job
    stake = advice.numbers.get("stake")
    if stake is None:  # moved by the published rule, which knows no stakes
        limit = advice.users_limit(job.requested_time)
        longest = _MAX_RUN_SECONDS if limit is None else min(limit, _MAX_RUN_SECONDS)
        stake = boot_seconds + (settings.placement.performance_ratio(job.processors) - 1.0) * longest
    return job.array_tasks * max(0.0, stake)
