"""What the loops of `advisor control` learn of a queued job's advice from its AdminComment. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.decide.explanation.admin_comment import RecordedAdvice, parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.model.advice import CAPACITY_FEATURES, ENDING_SECONDS
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob


def moved_by_us(queued: QueuedJob | None) -> RecordedAdvice | None:
    """The advice that moved a job; None for a job that the advisor did not move."""
    recorded = parse_admin_comment(queued.admin_comment) if queued is not None else None
    if recorded is None or recorded.reason == Reason.EXPLICIT_BURST:
        return None
    return recorded if recorded.placement == "burst" and recorded.mode == "act" else None


def predicted_cloud_seconds(queued: QueuedJob) -> float | None:
    """Run time in the cloud, seconds, as predicted at the job's submission; None without a prediction."""
    recorded = parse_admin_comment(queued.admin_comment)
    predicted = recorded.numbers.get("predicted_cloud_run") if recorded is not None else None
    return predicted if predicted is not None and predicted > 0.0 else None


def limit_there(job: Job, moved: RecordedAdvice | None) -> float | None:
    """The time limit that a job has in the cloud, seconds, also before it is raised there; None: none."""
    raised = None if moved is None else moved.time_limit
    if raised is not None and job.requested_time == raised.asked_seconds:
        return raised.given_seconds
    return job.requested_time


def longest_seconds(
    job: Job, moved: RecordedAdvice | None, stop_seconds: float | None, *, unlimited: float
) -> float:
    """Longest run time in the cloud, seconds: to its stop, else to its time limit.

    Args:
        stop_seconds: The stop of a hedged job in the watch loop's record; None: that of its advice.
        unlimited: What a job without a time limit counts as.
    """
    known = limit_there(job, moved)
    limit = unlimited if known is None else known
    if stop_seconds is None and moved is not None and moved.hedge is not None:
        stop_seconds = moved.hedge.stop_seconds
    return limit if stop_seconds is None else min(stop_seconds + ENDING_SECONDS, limit)


def home_of(moved: RecordedAdvice, settings: Settings) -> str:
    """Partitions that a moved job returns to: its original ones, else the first on-premise one."""
    ours = settings.cluster.on_premise_partitions
    names = (moved.origin or "").split(",")
    return ",".join(names) if set(names).issubset(ours) else ours[0]


def own_features(queued: QueuedJob) -> tuple[str, ...] | None:
    """A job's constraint without the advisor's features; None when it has none of them."""
    own = tuple(word for word in queued.job.features if word not in CAPACITY_FEATURES)
    return own if len(own) < len(queued.job.features) else None


def changes_home(
    partition: str, limit_seconds: float | None, features: Sequence[str] | None
) -> dict[str, str]:
    """Arguments of ``scontrol update`` that return a job on-premise.

    ``limit_seconds`` is the user's own time limit, ``features`` comes from :func:`own_features`; None leaves
    the limit or the constraint as it is.
    """
    changes = {"partition": partition}
    if limit_seconds is not None:
        changes["timelimit"] = f"{limit_seconds / 60.0:.0f}"
    if features is not None:
        changes["features"] = "&".join(features)
    return changes


def changes_to_return(queued: QueuedJob, moved: RecordedAdvice, settings: Settings) -> dict[str, str]:
    """:func:`changes_home` for a job that the advisor moved; a limit that its user has set since stays."""
    now = queued.job.requested_time
    limit = moved.users_limit(now)
    return changes_home(home_of(moved, settings), None if limit == now else limit, own_features(queued))
