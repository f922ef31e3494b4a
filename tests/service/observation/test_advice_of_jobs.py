"""What is changed of a moved job that returns on-premise."""

from __future__ import annotations

import pytest

from advisor.decide.explanation.admin_comment import RecordedAdvice
from advisor.model.advice import TimeLimit
from advisor.model.settings import Settings
from advisor.service.observation.advice_of_jobs import changes_to_return
from tests.service.doubles import make_queued


@pytest.mark.parametrize(
    ("now", "becomes"),
    [
        (2220.0, "30"),
        (2160.0, "30"),  # MaxTime of the burst partition kept it shorter than it was to be
        (1200.0, None),  # its user has shortened it since
        (3600.0, None),
        (None, None),
    ],
)
def test_a_limit_that_its_user_has_set_since_stays(now: float | None, becomes: str | None) -> None:
    moved = RecordedAdvice(
        advice_id="1",
        placement="burst",
        mode="act",
        size="unknown",
        reason="capacity.spot",
        time_limit=TimeLimit(asked_seconds=1800.0, given_seconds=2220.0),
    )
    queued = make_queued(7, queue="burst", requested_time=now)
    assert changes_to_return(queued, moved, Settings()).get("timelimit") == becomes
