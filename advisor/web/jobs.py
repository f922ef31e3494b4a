"""The page of a job: the four questions, their answers and numbers, and the outcome."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from advisor.decide.explanation.display import clean, quantity
from advisor.decide.explanation.phrases import HEADINGS, NAMES, PHRASES
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import hedge_sentence
from advisor.decide.explanation.wording import sentence, time_limit_sentence
from advisor.history.ledger_rows import LedgerRow
from advisor.history.records import AdviceRecord
from advisor.model.advice import Advice
from advisor.model.job import JobOutcome
from advisor.model.job_id import JobId
from advisor.service.admin.why_view import Known, known_of, ledger_advice
from advisor.web.answers import Answers, RefusedError
from advisor.web.asking import job_id_of
from advisor.web.forms import person_of
from advisor.web.persons import Person
from advisor.web.site import Site

_NEVER = (
    "It was never advised: it was submitted without the advisor, before there was one, or as a heterogeneous "
    "job, which is never moved."
)

_NO_JOB_ID: Final = "this is no job id: write it as 95, or 95_2 for a task of an array"


def add_to(app: FastAPI, site: Site, answers: Answers) -> None:
    """Add the pages."""

    @app.api_route("/jobs", methods=["GET", "HEAD"])
    def find(job: str = "") -> Response:
        job_id = job_id_of(job)
        if job_id is None:
            raise RefusedError(400, _NO_JOB_ID)
        return RedirectResponse(f"{site.first.web.path}/jobs/{job_id.name}", 303)

    @app.api_route("/jobs/{job}", methods=["GET", "HEAD"])
    def show(request: Request, job: str) -> Response:
        job_id = job_id_of(job)
        if job_id is None:
            raise RefusedError(400, _NO_JOB_ID)
        known, outcomes = _known(site, job_id)
        record, finished = known.record, known.ended
        _refuse(person_of(request), job_id, record, finished)
        if record is None:
            return answers.page(request, "job.html", _without_advice(job_id, finished), advised=None)
        # which of an array's tasks ended how is known by Slurm's own numbers of them only
        alone = job_id.task is None
        data = {
            **ledger_advice(job_id, known if alone else known._replace(ended=None), record),
            "outcome": next((row for row in outcomes if alone and row.job_id == job_id.job), None),
            "outcomes": outcomes,
            "finished": finished if alone else None,
        }
        return answers.page(request, "job.html", data, advised=_in_words(record))


def _known(site: Site, job_id: JobId) -> tuple[Known, list[LedgerRow]]:
    """What is known of a job, and what became of the jobs of its advice."""
    with site.history() as store:
        known = known_of(store, job_id.job)
        return known, [] if known.record is None else store.outcomes_of(known.record.advice.advice_id)


def _refuse(person: Person, job_id: JobId, record: AdviceRecord | None, finished: JobOutcome | None) -> None:
    """Refuse what a person may not see, then what is not there."""
    if not (person.sees_all or _is_of(person.name, record, finished)):
        raise RefusedError(403, f"job {job_id.name} is not one of {person.name}'s, or nothing is known of it")
    if record is None and finished is None:
        raise RefusedError(
            404,
            f"nothing is known of job {job_id.name}: no advice is in the ledger and it has not ended. "
            f"`advisor why {job_id.name}` on the controller also asks Slurm",
        )


def _without_advice(job_id: JobId, finished: JobOutcome | None) -> dict[str, Any]:
    return {
        "job_id": job_id.job,
        "asked": job_id.name,
        "source": None,
        "headline": _never(finished),
        "outcome": None,
        "finished": finished,
    }


def _is_of(user: str, record: AdviceRecord | None, finished: JobOutcome | None) -> bool:
    """Whether a job is a user's: whatever is known of it says so."""
    jobs = [one.job for one in (record, finished) if one is not None]
    return bool(jobs) and all(job.user == user for job in jobs)


def _never(finished: JobOutcome | None) -> str:
    """Why a job has no advice, as far as it is known."""
    if finished is not None and finished.job.heterogeneous:
        return f"It was never advised. {PHRASES[Reason.HETEROGENEOUS]}"
    return _NEVER


def _in_words(record: AdviceRecord) -> dict[str, Any]:
    """The questions with their answers, as `advisor why` prints them."""
    advice = record.advice
    return {
        "answers": [
            {
                "question": HEADINGS[answer.question],
                "verdict": answer.verdict.value,
                "sentence": sentence(answer),
                "reason": clean(answer.reason),
                "numbers": [
                    (clean(NAMES.get(name, name)), quantity(number)) for name, number in answer.numbers
                ],
            }
            for answer in advice.answers
        ],
        "also": list(_also(advice)),
    }


def _also(advice: Advice) -> list[str]:
    said = [time_limit_sentence(advice.time_limit)] if advice.time_limit else []
    return said + ([f"{hedge_sentence(advice.hedge)}."] if advice.hedge else [])
