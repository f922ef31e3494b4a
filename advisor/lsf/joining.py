"""Join the advice that an esub asked for to its job, whose id an esub cannot know. Pure.

The `advise` loop does so in each round.

The esub leaves the advice's id in the job's description, where its user has written none. Otherwise a job and
an advice belong together that agree in user, name, processors and project, and in time to a few seconds.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final

from advisor.history.records import AdviceRecord
from advisor.lsf.live_job import LiveJob
from advisor.model.advice import Mode

OUR_WORDS: Final = "Burst Advisor: "
"""How a description begins that the advisor has written: it is nothing that the user said."""
_TOKEN: Final = f"{OUR_WORDS}advice "
_LONGEST_ID: Final = 80
_NAME_CHARACTERS: Final = 256
"""An esub sends no more of a name."""
_BEFORE_SECONDS: Final = 30.0
"""bsub waits for a busy mbatchd after the esub has asked."""
_AFTER_SECONDS: Final = 2.0
"""The submission's time has whole seconds, and a clock of another host may differ."""


def said_by_user(description: str | None) -> str | None:
    """A description that the job's user has written; None where there is none, or it is ours."""
    return description if description and not description.startswith(OUR_WORDS) else None


def token_of(description: str) -> str:
    """The id of the advice that an esub left in a description; empty where there is none."""
    return description[len(_TOKEN) :][:_LONGEST_ID].strip() if description.startswith(_TOKEN) else ""


def joined(
    jobs: Iterable[LiveJob], advice: Iterable[AdviceRecord], *, burst_queues: frozenset[str]
) -> dict[int, AdviceRecord]:
    """The advice of each job that has one, by LSF's id, which the elements of an array share.

    What a description says is its user's word: an advice for another user's job, or of another time, is not
    joined. An advice that moves a job is joined only where the job is in the cloud's queue: an esub may have
    left it alone after it had asked.

    Args:
        advice: What was given to submissions and belongs to no job yet.
        burst_queues: The queues to which the esub moves jobs.
    """
    first: dict[int, LiveJob] = {}
    for job in jobs:
        first.setdefault(job.job_id, job)
    given = sorted(advice, key=lambda record: record.advice.time)
    free = {record.advice.advice_id: record for record in given if not record.job.job_id}
    found: dict[int, AdviceRecord] = {}
    by_submission = sorted(first.values(), key=lambda job: (not token_of(job.description), job.submit_time))
    for job in by_submission:
        match = next(_matches(job, free, burst_queues), None)
        if match is not None:
            found[job.job_id] = free.pop(match.advice.advice_id)
    return found


def raised(found: Mapping[int, AdviceRecord], waiting: Container[int]) -> dict[int, dict[str, str]]:
    """The changes that put waiting jobs first whose advice says so, by job."""
    return {
        job_id: {"sitefactor": str(record.advice.priority_offset)}
        for job_id, record in found.items()
        if record.advice.priority_offset > 0 and job_id in waiting
    }


def _matches(
    job: LiveJob, free: Mapping[str, AdviceRecord], burst_queues: frozenset[str]
) -> Iterator[AdviceRecord]:
    token = token_of(job.description)
    for record in [free[token]] if token in free else () if token else free.values():
        advised, advice = record.job, record.advice
        since = job.submit_time - advice.time
        is_moved = advice.mode is Mode.ACT and advice.partition is not None
        is_there = job.queue in burst_queues or not is_moved
        is_his = advised.user == job.user and -_AFTER_SECONDS <= since <= _BEFORE_SECONDS
        if is_his and is_there and (token or _is_alike(job, record)):
            yield record


def _is_alike(job: LiveJob, record: AdviceRecord) -> bool:
    advised = record.job
    name = job.name.partition("[")[0] if job.array_index else job.name
    is_named_so = advised.name in {None, "", name[:_NAME_CHARACTERS]}
    return is_named_so and advised.processors == job.processors and advised.account in {None, job.project}
