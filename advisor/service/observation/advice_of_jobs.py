"""What advice a job in the queue was submitted under, from its AdminComment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from advisor.decide.explanation.admin_comment import RecordedAdvice, parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.model.advice import Capacity
from advisor.model.settings import Settings
from advisor.slurm.protocol import QueuedJob

CAPACITY_FEATURES: Final = frozenset(capacity.value for capacity in Capacity)
"""Node features of ours: whatever else a job asks for is its user's."""


def moved_by_us(queued: QueuedJob | None) -> RecordedAdvice | None:
    """The advice that moved a job; None for a job we did not move."""
    recorded = parse_admin_comment(queued.admin_comment) if queued is not None else None
    if recorded is None or recorded.reason == Reason.EXPLICIT_BURST:
        return None
    return recorded if recorded.placement == "burst" and recorded.mode == "act" else None


def predicted_cloud_seconds(queued: QueuedJob) -> float | None:
    """How long a job was predicted to run in the cloud, at its submission; None where it was not."""
    recorded = parse_admin_comment(queued.admin_comment)
    predicted = recorded.numbers.get("predicted_cloud_run") if recorded is not None else None
    return predicted if predicted is not None and predicted > 0.0 else None


def home_of(moved: RecordedAdvice, settings: Settings) -> str:
    """The on-premise partition a job we moved comes back to: where it was, if that is still ours to use."""
    ours = settings.cluster.on_premise_partitions
    names = (moved.origin or "").split(",")
    return ",".join(names) if set(names).issubset(ours) else ours[0]


def own_features(queued: QueuedJob) -> tuple[str, ...] | None:
    """A job's constraint without ours, which names nodes of the cloud; None when there is none of ours."""
    own = tuple(word for word in queued.job.features if word not in CAPACITY_FEATURES)
    return own if len(own) < len(queued.job.features) else None


def changes_home(
    partition: str, limit_seconds: float | None, features: Sequence[str] | None
) -> dict[str, str]:
    """What Slurm is told of a job that comes back on-premise.

    Parameters
    ----------
    partition : str
        See `home_of`.
    limit_seconds : float or None
        The user's own time limit: here the job is as fast as its user reckoned. None leaves it.
    features : sequence of str or None
        See `own_features`. None leaves its constraint.
    """
    changes = {"partition": partition}
    if limit_seconds is not None:
        changes["timelimit"] = f"{limit_seconds / 60.0:.0f}"
    if features is not None:
        changes["features"] = "&".join(features)
    return changes


def returned(queued: QueuedJob, moved: RecordedAdvice, settings: Settings) -> dict[str, str]:
    """The same for a job that we moved."""
    limit = moved.time_limit.asked_seconds if moved.time_limit is not None else None
    return changes_home(home_of(moved, settings), limit, own_features(queued))
