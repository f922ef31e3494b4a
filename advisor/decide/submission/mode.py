"""Whether one job's advice is acted on: its partition's mode, what its user said, and the pilot. Pure."""

from __future__ import annotations

from advisor.decide.submission.rules import comment_words
from advisor.model.advice import Mode
from advisor.model.job import Job
from advisor.model.settings import Settings


def mode_for(job: Job, settings: Settings) -> Mode:
    """Act or shadow."""
    cluster = settings.cluster
    said = cluster.mode_of(job.queue)
    if said is Mode.SHADOW or not _is_acting(said, job, settings):
        return Mode.SHADOW
    has_pilot = cluster.pilot_users or cluster.pilot_accounts
    if has_pilot and job.user not in cluster.pilot_users and job.account not in cluster.pilot_accounts:
        return Mode.SHADOW
    return Mode.ACT


def _is_acting(said: Mode, job: Job, settings: Settings) -> bool:
    if said is Mode.OPT_IN:
        return settings.cluster.opt_in_comment.casefold() in comment_words(job)
    return said is Mode.ACT


def tells_user(job: Job, settings: Settings) -> bool:
    """Whether a job that is not moved is told what the cloud would do for it."""
    return settings.cluster.mode_of(job.queue) in {Mode.ADVISE, Mode.OPT_IN}
