"""What advice a job in the queue was submitted under, from its AdminComment. Pure."""

from __future__ import annotations

from advisor.decide.reasons import Reason
from advisor.decide.wording import RecordedAdvice, parse_admin_comment
from advisor.model.settings import Settings
from advisor.slurm.protocol import QueuedJob


def moved_by_us(queued: QueuedJob | None) -> RecordedAdvice | None:
    """The advice that moved a job; None for a job we did not move."""
    recorded = parse_admin_comment(queued.admin_comment) if queued is not None else None
    if recorded is None or recorded.reason == Reason.EXPLICIT_BURST:
        return None
    return recorded if recorded.placement == "burst" and recorded.mode == "act" else None


def home_of(moved: RecordedAdvice, settings: Settings) -> str:
    """The on-premise partition a job we moved comes back to: where it was, if that is still ours to use."""
    ours = settings.cluster.on_premise_partitions
    names = (moved.origin or "").split(",")
    return ",".join(names) if set(names).issubset(ours) else ours[0]
