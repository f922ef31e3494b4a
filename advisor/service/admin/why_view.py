"""What `advisor why` and a job's page say of one advice: plain data. Asks nobody."""

from __future__ import annotations

from typing import Any

from advisor.decide.admin_comment import RecordedAdvice
from advisor.decide.wording import headline, recorded_headline
from advisor.history.records import AdviceRecord


def ledger_advice(job_id: int, record: AdviceRecord) -> dict[str, Any]:
    """The whole of it, from the ledger."""
    return {
        "job_id": job_id,
        "source": "ledger",
        "headline": headline(record.advice),
        "advice": record.advice,
        "job": record.job,
        "estimates": record.estimates,
    }


def recorded_advice(job_id: int, recorded: RecordedAdvice) -> dict[str, Any]:
    """What the job's own AdminComment says."""
    return {
        "job_id": job_id,
        "source": "admin-comment",
        "headline": recorded_headline(recorded),
        "recorded": recorded,
    }
