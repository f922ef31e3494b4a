"""Limits of the jobs that a user, account or QOS may have in the queue (``MaxSubmitJobs`` and others).

Where one has no room for a placeholder its jobs keep no place (:attr:`advisor.model.site.SiteState.full`).
"""

from __future__ import annotations

from typing import NamedTuple

from advisor.model.job import Job


class SubmitKey(NamedTuple):
    """Whose jobs a limit of jobs in the queue counts: of a QOS, an account, a user, or two of these."""

    qos: str = ""
    account: str = ""
    user: str = ""


def submit_keys(job: Job) -> tuple[SubmitKey, ...]:
    """The limits of jobs in the queue that count a job, where there are such."""
    user, account, qos = job.user or "", job.account or "", job.qos or ""
    of_qos = SubmitKey(qos=qos), SubmitKey(qos=qos, account=account), SubmitKey(qos=qos, user=user)
    return (SubmitKey(account=account, user=user), SubmitKey(account=account), *of_qos)
