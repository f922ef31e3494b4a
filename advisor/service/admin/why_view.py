"""The data of `advisor why` and of a job's page about one advice."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final, NamedTuple

from advisor.decide.explanation.admin_comment import RecordedAdvice
from advisor.decide.explanation.display import duration
from advisor.decide.explanation.phrases import PHRASES
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.wording import headline, recorded_headline
from advisor.history.records import AdviceRecord
from advisor.history.schema import SAME_MOMENT_SECONDS
from advisor.history.store import HistoryStore
from advisor.model.advice import Mode
from advisor.model.job import JobOutcome
from advisor.model.job_id import JobId, array_of
from advisor.service.admin.since import clock_text

_AT_SUBMISSION: Final = 5.0
"""Seconds from a submission to its advice at most."""


class Known(NamedTuple):
    """What history and ledger know of the newest job with a number.

    Attributes:
        record: Its newest advice.
        ended: How it ended.
        before: When an older job with this number was submitted, epoch seconds: Slurm begins its numbers anew
            after MaxJobId, or without its state.
    """

    record: AdviceRecord | None
    ended: JobOutcome | None
    before: float | None = None

    def of_older_alone(self) -> Known:
        """The same where it is all of an older job."""
        return self if self.record is None else Known(None, None, self.record.job.submit_time)


def known_of(store: HistoryStore, job_id: int) -> Known:
    """What is known of a job; of an array of LSF, that was advised as a whole, also by an element."""
    numbered = job_id if store.advice_of(job_id) is not None else array_of(job_id)
    record, ended = store.advice_of(numbered), store.of_job(job_id)
    if record is None:
        return Known(None, ended)
    submitted, is_its = record.job.submit_time, ended is None or ended.advice_id == record.advice.advice_id
    if ended is not None and not is_its:
        if ended.job.submit_time > record.advice.time + SAME_MOMENT_SECONDS:
            return Known(None, ended, submitted)
        if ended.end_time < submitted:
            return Known(record, None, ended.job.submit_time)
    older = store.advice_of(numbered, until=submitted - SAME_MOMENT_SECONDS)
    return Known(record, ended, None if older is None else older.job.submit_time)


def ledger_advice(
    job_id: JobId, known: Known, record: AdviceRecord, *, now_in: str | None = None
) -> dict[str, Any]:
    """The whole advice, from the ledger; ``asked`` is the job id as the user typed it.

    ``of_older`` is a sentence about an older job with this number, ``of_array`` one about an advice that is
    not of the asked task alone, ``wait_interval`` one about the forecast wait, and ``ended_elsewhere`` one
    about where it is (``now_in``) or ended; None: nothing is to be said. ``advised_later`` is when a job that
    waited was advised anew, epoch seconds; None: it was at its submission.
    """
    return {
        "job_id": job_id.job,
        "asked": job_id.name,
        "source": "ledger",
        "headline": headline(record.advice),
        "advised_later": _advised_later(record),
        "of_older": of_older(job_id, known),
        "of_array": _of_array(job_id, record),
        "wait_interval": _wait_interval(record),
        "ended_elsewhere": _ended_elsewhere(record, known.ended, now_in),
        "advice": record.advice,
        "job": record.job,
        "estimates": record.estimates,
    }


def of_older(job_id: JobId, known: Known) -> str | None:
    """A sentence about an older job that had this number."""
    if known.before is None:
        return None
    return (
        f"An older job {job_id.job}, submitted {clock_text(known.before)}, had this number before: "
        f"`advisor decisions --job {job_id.job}` lists the advice of both."
    )


def _ended_elsewhere(record: AdviceRecord, ended: JobOutcome | None, now_in: str | None) -> str | None:
    """A sentence about a job that was sent to the cloud and is, or has ended, in another partition."""
    advice = record.advice
    if advice.mode is not Mode.ACT:
        return None
    if ended is None and advice.partition is not None and now_in not in {None, advice.partition}:
        return f"It did not stay there: its partition is {now_in} now."
    if ended is None or ended.advice_id != advice.advice_id:
        return None
    if advice.partition is None or ended.partition in {None, advice.partition}:
        return None
    return f"It did not stay there: it has ended in partition {ended.partition}."


def _advised_later(record: AdviceRecord) -> float | None:
    time = record.advice.time
    return time if time - record.job.submit_time > _AT_SUBMISSION else None


def _of_array(job_id: JobId, record: AdviceRecord) -> str | None:
    tasks = record.job.array_tasks
    number = "1 task" if tasks == 1 else f"{tasks:,} tasks"
    said = []
    if job_id.task is not None:
        said.append(
            f"This is the advice for the whole of job {job_id.job} ({number}). The ledger does not know "
            f"their numbers, so it cannot tell whether there is a task {job_id.task}: "
            f"`sacct -j {job_id.job}` lists them."
        )
    if tasks > 1 and record.advice.number("predicted_cost") is not None:
        said.append(
            f"It is an array of {number}: costs are those of all of them, wait, run time and saving those of "
            "one."
        )
    return " ".join(said) or None


def _wait_interval(record: AdviceRecord) -> str | None:
    wait = record.estimates.wait
    # a job that a rule keeps here may wait for something else
    if len(record.advice.answers) < 2 or not isfinite(wait.seconds) or not isfinite(wait.upper - wait.lower):
        return None
    return (
        f"It is expected to wait about {duration(wait.seconds)} here, in {100 * wait.coverage:g} of 100 "
        f"cases between {duration(wait.lower)} and {duration(wait.upper)}."
    )


def recorded_advice(job_id: JobId, recorded: RecordedAdvice) -> dict[str, Any]:
    """The advice in the job's AdminComment."""
    return {
        "job_id": job_id.job,
        "asked": job_id.name,
        "source": "admin-comment",
        "headline": recorded_headline(recorded),
        "recorded": recorded,
    }


def heterogeneous_job(job_id: JobId, leader: int | None) -> dict[str, Any]:
    """A part of a heterogeneous job, for which the hook asks no advice: Slurm shows it single parts.

    ``leader`` is the id of the whole job; None: Slurm has forgotten it, and only the history has the part.
    """
    reason = Reason.HETEROGENEOUS
    return {
        "job_id": job_id.job,
        "asked": job_id.name,
        "source": "history" if leader is None else "slurm",
        "heterogeneous_job_id": leader,
        "headline": "Starts where its user said: nothing about it is changed.",
        "reason": reason.value,
        "sentence": PHRASES[reason],
    }
