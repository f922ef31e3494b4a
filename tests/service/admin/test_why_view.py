"""What `advisor why` and a job's page say beside the answers."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from advisor.history.records import AdviceRecord
from advisor.model.estimate import Estimate
from advisor.model.job_id import parse_job_id
from advisor.service.admin.why_view import Known, ledger_advice
from tests.decide.cases import make_estimates, make_job
from tests.decide.submission.test_priced import offered

WAIT = Estimate(seconds=180.0, variance=100.0, lower=0.0, upper=2400.0)


def shown(job_id: str, **job: Any) -> dict[str, Any]:
    estimates = replace(make_estimates(), wait=WAIT)
    record = AdviceRecord(advice=offered(**job), job=make_job(**job), estimates=estimates)
    return ledger_advice(parse_job_id(job_id, where="JOBID"), Known(record, None), record)


def test_the_numbers_of_an_array_are_of_different_tasks() -> None:
    said = shown("22", array_tasks=3)["of_array"]
    assert said == (
        "It is an array of 3 tasks: costs are those of all of them, wait, run time and saving those of one."
    )
    both = shown("22_1", array_tasks=3)["of_array"]
    assert both.startswith("This is the advice for the whole of job 22 (3 tasks). ")
    assert both.endswith(said)
    assert shown("22")["of_array"] is None


def test_the_interval_of_the_wait() -> None:
    assert shown("22")["wait_interval"] == (
        "It is expected to wait about 3 min here, in 90 of 100 cases between 0 s and 40 min."
    )


def test_a_job_that_a_rule_keeps_may_wait_for_something_else() -> None:
    assert shown("22", comment="no-burst")["wait_interval"] is None


def test_an_advice_that_was_given_later_is_told_from_the_submission() -> None:
    at = shown("22")["advice"].time
    assert shown("22", submit_time=at)["advised_later"] is None
    assert shown("22", submit_time=at - 3600.0)["advised_later"] == at
